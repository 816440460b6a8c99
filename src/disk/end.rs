//! Whether a file has all of its pages. Without a log SQLite reads nothing of a file that is too short; with one it takes
//! pages that neither has for zeros.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{
    page_map::LOCKED_BYTE,
    wal::{Commits, number},
};

/// Says how many pages are there, if some are missing at the end of the file that the `commits` of its log do not have.
///
/// # Errors
/// The file cannot be read.
pub(super) fn missing(path: &Path, commits: &Commits) -> io::Result<Option<String>> {
    let mut header = [0; 32];
    let mut file = File::open(path)?;
    file.read_exact(&mut header)?;
    let size = match number(&header, 16) >> 16 {
        // What it is instead is damage, which is told elsewhere.
        0 => return Ok(None),
        // As 65536 is written.
        1 => 1 << 16,
        size => size,
    };
    // A part of a page is none.
    let in_file = u32::try_from(file.metadata()?.len() / u64::from(size)).unwrap_or(u32::MAX);
    let (pages, missing) = match commits.length {
        None => {
            let pages = number(&header, 28);
            (pages, pages.saturating_sub(in_file))
        }
        Some(pages) => {
            let is_used = |page: &u32| u64::from(page - 1) != LOCKED_BYTE as u64 / u64::from(size);
            let behind = (in_file.saturating_add(1)..=pages).filter(is_used);
            let missing = behind.filter(|page| !commits.pages.contains_key(page)).count();
            (pages, u32::try_from(missing).unwrap_or(u32::MAX))
        }
    };
    Ok((missing > 0).then(|| format!("its end is missing: {} of {pages} pages are there", pages - missing)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// Looks for the end of a file with so many bytes, whose header tells so many pages.
    fn missing_of(bytes: usize, pages: u32, commits: &Commits) -> Option<String> {
        let mut file = vec![0; bytes];
        file[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        file[28..32].copy_from_slice(&pages.to_be_bytes());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        std::fs::write(&path, file).expect("room");
        missing(&path, commits).expect("there")
    }

    #[test]
    fn a_file_without_commits_in_its_log_has_as_many_pages_as_its_header_tells() {
        let none = Commits::default();
        assert_eq!(missing_of(3 * PAGE, 3, &none), None);
        assert_eq!(missing_of(4 * PAGE, 3, &none), None, "a step that gave space back may have left it");
        let said = "its end is missing: 2 of 3 pages are there";
        assert_eq!(
            [2 * PAGE, 3 * PAGE - 1].map(|bytes| missing_of(bytes, 3, &none)),
            [(); 2].map(|()| Some(said.into()))
        );
    }

    #[test]
    fn each_page_behind_the_file_is_one_of_the_commits_of_its_log() {
        let commits = |pages: &[u32]| Commits { pages: pages.iter().map(|page| (*page, 0)).collect(), length: Some(5) };
        assert_eq!(missing_of(3 * PAGE, 3, &commits(&[1, 4, 5])), None);
        assert_eq!(missing_of(5 * PAGE, 9, &commits(&[1])), None, "the log is newer than the header");
        let said = missing_of(3 * PAGE, 3, &commits(&[1, 5])).expect("the fourth is missing");
        assert_eq!(said, "its end is missing: 4 of 5 pages are there");
    }

    #[test]
    fn the_page_at_a_gibibyte_which_sqlite_never_uses_is_not_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let mut header = [0; 32];
        header[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        std::fs::write(&path, header).expect("room");
        let behind = u32::try_from(LOCKED_BYTE / PAGE).expect("few") + 2;
        File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_len(LOCKED_BYTE as u64))
            .expect("a sparse file");
        let has = |page| Commits { pages: [(page, 0)].into(), length: Some(behind) };
        assert_eq!(missing(&path, &has(behind)).expect("there"), None);
        assert!(missing(&path, &has(1)).expect("there").is_some());
    }
}
