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
/// Bytes that the pointer map has for a page: its kind, and the number of the page that leads to it.
const ENTRY: usize = 5;
/// The root of a table, to which no page leads.
const ROOT: u8 = 1;
/// A page in the list of free pages.
const FREE: u8 = 2;
/// The first page in which a row of a tree goes on.
const REST: u8 = 3;
/// A page in which it goes on from another such page.
const FURTHER_REST: u8 = 4;
/// A page of a tree to which another one leads.
const BRANCH: u8 = 5;
/// SQLite never uses the page that has this byte.
pub(super) const LOCKED_BYTE: usize = 0x4000_0000;

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
    if !pages.size.is_power_of_two() || pages.usable < 480 {
        return Err(Wrong::Damaged("its header has no size of a page".to_owned()));
    }
    pages.count = commits.length.unwrap_or_else(|| number(&header, 28));
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

    /// Returns the first page that `other`, of the same length, has not.
    fn first_outside(&self, other: &Self) -> Option<u32> {
        let outside = self.0.iter().zip(&other.0).map(|(ours, others)| ours & !others);
        let (word, at) = outside.zip(0..).find(|(word, _)| *word != 0)?;
        Some(at * 64 + word.trailing_zeros())
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

    /// Checks that the pointer map fits the list and itself: each page has a kind, the free ones are those of the list,
    /// what leads to a page is of a kind that can, and no row goes on from one page in two.
    ///
    /// SQLite asks the map whether a row goes on in the next page of the file, and looks at the row only where it does
    /// not. One entry that says so wrongly has two pages follow one: that of the page that really follows is there too.
    fn check_map(&self, listed: &Set) -> Result<(), Wrong> {
        let wrong = |page| Err(Wrong::Damaged(format!("its pointer map is wrong about page {page}")));
        // Pages of trees, and those in which their rows go on; those that lead to one of a tree or to the first in which a
        // row goes on, and those from which a row goes on.
        let [mut trees, mut rests, mut parents, mut followed] = std::array::from_fn(|_| Set::up_to(self.count));
        trees.add(1);
        let (mut map, mut read) = (Vec::new(), 0);
        for page in 3..=self.count {
            let its_map = self.map_of(page);
            if its_map != read {
                (map, read) = (self.read(its_map)?, its_map);
            }
            // The map has no entry for itself, and SQLite none for the page that it never uses.
            let at = page.checked_sub(its_map + 1).filter(|_| page != self.locked());
            let entry = at.and_then(|at| map.get(at as usize * ENTRY..)).and_then(|entry| entry.first_chunk::<ENTRY>());
            if listed.has(page) && entry != Some(&[FREE, 0, 0, 0, 0]) {
                return Err(Wrong::Damaged(format!("page {page} is in the list of free pages, and in use")));
            }
            let Some([kind, before @ ..]) = entry else { continue };
            let before = u32::from_be_bytes(*before);
            if before > self.count {
                return wrong(page);
            }
            match *kind {
                FREE if listed.has(page) => continue,
                FREE => {
                    return Err(Wrong::Damaged(format!("page {page} is free, and not in the list of free pages")));
                }
                ROOT | BRANCH => trees.add(page),
                REST | FURTHER_REST => rests.add(page),
                _ => return wrong(page),
            };
            if *kind == FURTHER_REST && !followed.add(before) {
                return wrong(page);
            }
            if [REST, BRANCH].contains(kind) {
                parents.add(before);
            }
        }
        let astray = parents.first_outside(&trees).or_else(|| followed.first_outside(&rests));
        astray.map_or(Ok(()), wrong)
    }

    /// Returns the page of the pointer map that tells of `page`.
    fn map_of(&self, page: u32) -> u32 {
        // No page is so large that either does not fit.
        let told_by_one = u32::try_from(self.usable / ENTRY).unwrap_or(u32::MAX - 1) + 1;
        let map = (page - 2) / told_by_one * told_by_one + 2;
        if map == self.locked() { map + 1 } else { map }
    }

    /// Returns the page that SQLite never uses.
    fn locked(&self) -> u32 {
        u32::try_from(LOCKED_BYTE / self.size).unwrap_or(u32::MAX - 1) + 1
    }
}
