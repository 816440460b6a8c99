//! Checks what SQLite believes of pages without a look: the list of the free ones, and the pointer map, which says of
//! each page what leads to it. SQLite would write over a page in use that a damaged list names, and would free pages of
//! other rows that a damaged map has a removed row go on in.
//!
//! The file is read directly, before SQLite has it open: closing a further descriptor would drop SQLite's locks on it.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::{
    beside::beside,
    wal::{Commits, number},
};

/// The bytes of the header of the file.
const HEADER: usize = 100;
/// What the pointer map says of a free page: its kind, and that no page leads to it.
const FREE: [u8; 5] = [2, 0, 0, 0, 0];
/// The kind of a page in which a row goes on from another such page, whose number follows.
const GOES_ON: u8 = 4;
/// SQLite never uses the page that has this byte.
const LOCKED_BYTE: usize = 0x4000_0000;

/// The pages of a file with the commits of its log.
struct Pages<'a> {
    file: File,
    log: Option<File>,
    commits: &'a Commits,
    /// The bytes of a page.
    size: usize,
    /// The bytes of it that SQLite uses.
    usable: usize,
    /// How many there are.
    count: u32,
}

/// What is wrong with the list or the map, or that they cannot be read.
enum Wrong {
    Damaged(String),
    Unreadable(io::Error),
}

impl From<io::Error> for Wrong {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Damaged("its end is missing".to_owned()),
            _ => Self::Unreadable(error),
        }
    }
}

/// Says what is wrong with the list of free pages, or with the pointer map, of a file whose log has these commits.
///
/// # Errors
/// The file cannot be read.
pub(super) fn check(path: &Path, commits: &Commits) -> io::Result<Result<(), String>> {
    match walk(path, commits) {
        Ok(()) => Ok(Ok(())),
        Err(Wrong::Damaged(why)) => Ok(Err(why)),
        Err(Wrong::Unreadable(error)) => Err(error),
    }
}

fn walk(path: &Path, commits: &Commits) -> Result<(), Wrong> {
    let log = if commits.pages.is_empty() { None } else { Some(File::open(beside(path, "-wal"))?) };
    let mut pages = Pages { file: File::open(path)?, log, commits, size: HEADER, usable: HEADER, count: 1 };
    let header = pages.read(1)?;
    // A page of 65536 bytes is written as 1.
    let size = number(&header, 16) >> 16;
    pages.size = if size == 1 { 1 << 16 } else { size as usize };
    pages.usable = pages.size.saturating_sub(header[20].into());
    pages.count = commits.length.unwrap_or_else(|| number(&header, 28));
    if !pages.size.is_power_of_two() || pages.usable < 480 {
        return Err(Wrong::Damaged("its header has no size of a page".to_owned()));
    }
    let listed = pages.listed(number(&header, 32), number(&header, 36))?;
    // A file that was made by another program may have no pointer map.
    if number(&header, 52) == 0 { Ok(()) } else { pages.check_map(&listed) }
}

/// A set of pages.
struct Set(Vec<u64>);

impl Set {
    /// Returns an empty set, for pages up to `last`.
    fn up_to(last: u32) -> Self {
        Self(vec![0; last as usize / 64 + 1])
    }

    fn has(&self, page: u32) -> bool {
        self.0[page as usize / 64] & 1 << (page % 64) != 0
    }

    /// Adds a page, and returns whether it is new.
    fn add(&mut self, page: u32) -> bool {
        let is_new = !self.has(page);
        self.0[page as usize / 64] |= 1 << (page % 64);
        is_new
    }
}

impl Pages<'_> {
    fn read(&self, page: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.size];
        match (self.commits.pages.get(&page), &self.log) {
            (Some(at), Some(log)) => log.read_exact_at(&mut bytes, *at)?,
            _ => self.file.read_exact_at(&mut bytes, u64::from(page - 1) * self.size as u64)?,
        }
        Ok(bytes)
    }

    /// Returns the pages of the list, which begins with the page `trunk` and has `count` of them.
    fn listed(&self, mut trunk: u32, count: u32) -> Result<Set, Wrong> {
        let mut listed = Set::up_to(self.count);
        let mut found = 0;
        let mut add = |page| {
            if !(3..=self.count).contains(&page) {
                return Err(Wrong::Damaged(format!("page {page} of {} is in the list of free pages", self.count)));
            }
            if !listed.add(page) {
                return Err(Wrong::Damaged(format!("page {page} is twice in the list of free pages")));
            }
            found += 1;
            Ok(())
        };
        while trunk != 0 {
            add(trunk)?;
            let bytes = self.read(trunk)?;
            let leaves = number(&bytes, 4) as usize;
            if leaves > self.usable / 4 - 2 {
                return Err(Wrong::Damaged(format!("page {trunk} is no part of the list of free pages")));
            }
            (0..leaves).try_for_each(|leaf| add(number(&bytes, 8 + 4 * leaf)))?;
            trunk = number(&bytes, 0);
        }
        if found != count {
            return Err(Wrong::Damaged(format!(
                "{found} pages are in the list of free pages, and its header tells of {count}"
            )));
        }
        Ok(listed)
    }

    /// Checks that the pointer map has the pages of the list as free ones, and no row go on from one page in two.
    ///
    /// SQLite asks the map whether a row goes on in the next page of the file, and looks at the row only where it does
    /// not. A map that says so wrongly has two pages follow one: the page that really follows is in it too.
    fn check_map(&self, listed: &Set) -> Result<(), Wrong> {
        let mut followed = Set::up_to(self.count);
        let (mut map, mut read) = (Vec::new(), 0);
        for page in 3..=self.count {
            let its_map = self.map_of(page);
            if its_map != read {
                (map, read) = (self.read(its_map)?, its_map);
            }
            // A page of the map has no entry for itself.
            let entry = page.checked_sub(its_map + 1).map(|entry| entry as usize * FREE.len());
            let entry = entry.and_then(|at| map.get(at..)).and_then(|entry| entry.first_chunk());
            if listed.has(page) && entry != Some(&FREE) {
                return Err(Wrong::Damaged(format!("page {page} is in the list of free pages, and in use")));
            }
            let Some([GOES_ON, before @ ..]) = entry else { continue };
            let before = u32::from_be_bytes(*before);
            if before > self.count {
                return Err(Wrong::Damaged(format!("page {before} of {} is in the pointer map", self.count)));
            }
            if !followed.add(before) {
                return Err(Wrong::Damaged(format!("page {before} goes on in two pages by the pointer map")));
            }
        }
        Ok(())
    }

    /// Returns the page of the pointer map that tells of `page`.
    fn map_of(&self, page: u32) -> u32 {
        // No page is so large that either does not fit.
        let told_by_one = u32::try_from(self.usable / FREE.len()).unwrap_or(u32::MAX - 1) + 1;
        let locked = u32::try_from(LOCKED_BYTE / self.size).unwrap_or(u32::MAX - 1) + 1;
        let map = (page - 2) / told_by_one * told_by_one + 2;
        if map == locked { map + 1 } else { map }
    }
}
