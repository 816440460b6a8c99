//! Where the file is: its one path, what stands there, and what to do where the system does not let taskgate have it.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{error, schema::APPLICATION};

/// What every file of SQLite begins with.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";
/// Where the header has [`APPLICATION`].
const APPLICATION_AT: usize = 68;
/// Where it has the version of the format that a writer has to know: 2 at most.
const WRITE_VERSION_AT: usize = 18;
/// The part of the header that is looked at.
const HEADER: usize = 72;
/// What to do where the system lets taskgate read or write too little.
pub(super) const NEEDS: &str =
    "the user of taskgate has to be able to read and write the file, what stands beside it, and their folder";

/// Who looks for a file, and so what helps where there is another one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Looks {
    /// A start, at the place that the configuration names.
    Start,
    /// A command that only reads the file that its line names.
    Reader,
}

impl Looks {
    fn elsewhere(self) -> &'static str {
        match self {
            Self::Start => "set another store.path",
            Self::Reader => "name the file of a store",
        }
    }

    fn damaged(self, why: &str) -> String {
        match self {
            Self::Start => error::damaged(why),
            Self::Reader => why.to_owned(),
        }
    }
}

/// Returns the one path of the file, and makes its folder where there is none.
pub(super) fn place(path: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    match fs::canonicalize(&path) {
        Ok(path) => return Ok(path),
        // What it leads to may be on a disk that is not mounted. A new file in its place would be on another one.
        Err(error) if fs::symlink_metadata(&path).is_ok_and(|found| found.is_symlink()) => {
            return Err(format!(
                "it is a link that leads to no file: {error}; put back what it leads to, or name a path without the link"
            ));
        }
        Err(_) => {}
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it is not the path of a file".to_owned());
    };
    let sync = |folder: &Path| File::open(folder).and_then(|folder| folder.sync_all());
    let made = make_folder(folder, sync).and_then(|()| fs::canonicalize(folder));
    let folder = made.map_err(|error| {
        let said = match error.kind() {
            // Where a folder has to be.
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => format!("{error}; {}", Looks::Start.elsewhere()),
            _ => said(&error),
        };
        format!("its folder \"{}\" cannot be used: {said}", folder.display())
    })?;
    Ok(folder.join(name))
}

/// Makes a folder, and those above it, where there are none. Each is synced into the one above it, so that no power
/// loss takes a folder from which a task was acknowledged.
fn make_folder(folder: &Path, sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    missing.into_iter().rev().filter_map(Path::parent).try_for_each(sync)
}

/// Refuses a file that has further names: each would have a lock, a log and a mark of its own beside it.
pub(super) fn has_one_name(path: &Path) -> Result<(), String> {
    match fs::metadata(path).map_err(|error| said(&error))?.nlink() {
        // None while another process replaces it.
        0 | 1 => Ok(()),
        names => Err(format!(
            "it has {names} names (hard links), and under another one a further process could open it; remove the other \
             names, or move the file away and put a copy in its place"
        )),
    }
}

/// Returns whether there is a file; one that is not taskgate's is an error.
pub(super) fn look(path: &Path, looks: Looks) -> Result<bool, String> {
    let elsewhere = looks.elsewhere();
    // Opening a pipe would wait for its other end.
    match fs::metadata(path) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(format!("it is not a file; {elsewhere}")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(said(&error)),
    }
    let mut header = Vec::with_capacity(HEADER);
    let read = File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut header));
    read.map_err(|error| said(&error))?;
    let application = header.get(APPLICATION_AT..).and_then(|bytes| bytes.first_chunk());
    match (header.starts_with(SQLITE), application.map(|bytes| i32::from_be_bytes(*bytes))) {
        (true, Some(APPLICATION)) => Ok(true),
        (true, Some(_)) => Err(format!(
            "it is a database of another program, or its beginning is damaged; {elsewhere}, or restore a backup"
        )),
        _ if header.iter().all(|byte| *byte == 0) => Err(looks.damaged("its beginning is empty")),
        _ => Err(format!(
            "it does not begin as a store of taskgate does: it is another file, or its beginning is damaged; {elsewhere}, or \
             restore a backup"
        )),
    }
}

/// Says so if the header of a file has SQLite only read it.
pub(super) fn is_writable(path: &Path) -> Result<(), String> {
    let mut header = [0; WRITE_VERSION_AT + 1];
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).map_err(|error| said(&error))?;
    match header[WRITE_VERSION_AT] {
        0..=2 => Ok(()),
        version => Err(format!(
            "its header is damaged: version {version} has SQLite only read it; `taskgate store backup FILE NEW` \
             makes a copy of it that a start takes"
        )),
    }
}

/// Returns what the system says, and what to do about it.
pub(super) fn said(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => format!("{error}; {NEEDS}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_leads_to_no_file_is_refused_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("store");
        std::os::unix::fs::symlink(folder.path().join("not mounted/store"), &link).expect("room");
        let refused = place(&link).expect_err("it leads nowhere");
        assert!(refused.contains("it is a link that leads to no file"), "{refused}");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
        let (disk, file) = (folder.path().join("not mounted"), folder.path().join("not mounted/store"));
        fs::create_dir(disk).and_then(|()| fs::write(&file, "text")).expect("room");
        assert_eq!(place(&link), Ok(fs::canonicalize(file).expect("there")), "a link to a file is that file");
    }

    #[test]
    fn each_new_folder_is_synced_into_the_one_above_it_from_the_top_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let (top, middle, low) = (folder.path().join("a"), folder.path().join("a/b"), folder.path().join("a/b/c"));
        let mut synced = Vec::new();
        let mut make = |path: &Path| {
            make_folder(path, |above| {
                synced.push(above.to_owned());
                Ok(())
            })
            .expect("room");
            std::mem::take(&mut synced)
        };
        assert_eq!(make(&low), [folder.path(), &top, &middle]);
        assert!(make(&low).is_empty(), "nothing is new");
        let failed = make_folder(&low.join("d"), |_| Err(ErrorKind::Other.into()));
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::Other), "what may be lost is not used");
        place(&top.join("d/store")).expect("room");
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        for (looks, helps) in [(Looks::Start, "set another store.path"), (Looks::Reader, "name the file of a store")] {
            assert_eq!(look(&pipe, looks), Err(format!("it is not a file; {helps}")));
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_and_what_may_not_be_read_are_named_with_the_way_on() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "text").expect("room");
        let refused = place(&folder.path().join("file/store")).expect_err("it is in a file");
        assert!(refused.contains("its folder") && refused.contains("cannot be used"), "{refused}");
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            assert!(said(&kind.into()).contains(NEEDS));
        }
    }
}
