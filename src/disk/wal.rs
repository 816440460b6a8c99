//! Looks through the log before SQLite reads it. SQLite takes the first frame that does not fit for the end of the log,
//! and commits behind it for rubbish.
//!
//! Every commit is on the disk before the next one is written, a log begins anew when the file is opened, and what a
//! batch that failed has left is cut off before the next one. So only the last commit of a log can be torn: where
//! frames of the same log go on behind the next commit after a frame that does not fit, the log was damaged. The last
//! commit is what the mark is for.
//!
//! A commit that is torn may leave sectors of an earlier log that stood in the same place. Where a frame's header lies
//! in two of them, what makes it a commit may be the earlier log's, and the rest this one's.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

/// The bytes of the header of a log, and of each frame before its page.
pub(super) const HEADER: usize = 32;
pub(super) const FRAME_HEADER: usize = 24;
/// The bytes that a disk writes wholly or not at all.
const SECTOR: usize = 512;

/// Checksums of SQLite's log: two sums over pairs of words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sums(u32, u32);

impl Sums {
    fn add(mut self, bytes: &[u8], big_endian: bool) -> Self {
        let word = |bytes: &[u8]| {
            let bytes = bytes.first_chunk().copied().unwrap_or_default();
            if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
        };
        for pair in bytes.chunks_exact(8) {
            self.0 = self.0.wrapping_add(word(pair)).wrapping_add(self.1);
            self.1 = self.1.wrapping_add(word(&pair[4..])).wrapping_add(self.0);
        }
        self
    }
}

/// The commits of a log, as SQLite reads them.
#[derive(Debug, Default)]
pub(super) struct Commits {
    /// Where the newest version of each page stands.
    pub pages: HashMap<u32, u64>,
    /// How many pages the file has after the last one.
    pub length: Option<u32>,
}

/// Returns the number at a place of a header.
pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// Returns the commits of the log, or what is wrong with it if commits stand behind a damaged place. No log is no
/// mistake.
///
/// # Errors
/// The log cannot be read.
pub(super) fn check(path: &Path) -> io::Result<Result<Commits, String>> {
    match File::open(path) {
        Ok(file) => scan(&mut BufReader::with_capacity(1 << 16, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Ok(Commits::default())),
        Err(error) => Err(error),
    }
}

fn scan(log: &mut impl Read) -> io::Result<Result<Commits, String>> {
    let (mut header, mut commits) = ([0; HEADER], Commits::default());
    if !fill(log, &mut header)? {
        return Ok(Ok(commits));
    }
    let big_endian = number(&header, 0) & 1 == 1;
    let page = number(&header, 8) as usize;
    let salts = (number(&header, 16), number(&header, 20));
    let mut sums = Sums(0, 0).add(&header[..24], big_endian);
    let header_fits = number(&header, 0) & !1 == 0x377f_0682
        && page.is_power_of_two()
        && (512..=65536).contains(&page)
        && sums == Sums(number(&header, 24), number(&header, 28));
    if !header_fits {
        return Ok(behind_a_broken_header(log)?.map(|()| commits));
    }
    let mut frame = vec![0; FRAME_HEADER + page];
    let (mut broken, mut commit_behind) = (None, false);
    let (mut at, mut begins, mut of_next_commit) = (0, HEADER, Vec::new());
    while fill(log, &mut frame)? {
        at += 1;
        let same_log = (number(&frame, 8), number(&frame, 12)) == salts;
        let told = Sums(number(&frame, 16), number(&frame, 20));
        let fits = same_log && sums.add(&frame[..8], big_endian).add(&frame[FRAME_HEADER..], big_endian) == told;
        if broken.is_none() && !fits {
            broken = Some(at);
        }
        if broken.is_none() {
            of_next_commit.push((number(&frame, 0), (begins + FRAME_HEADER) as u64));
            if number(&frame, 4) != 0 {
                commits.pages.extend(of_next_commit.drain(..));
                commits.length = Some(number(&frame, 4));
            }
        }
        if let (Some(broken), true) = (broken, same_log) {
            if commit_behind {
                return Ok(Err(format!("frame {broken} of its log does not fit, and commits stand behind it")));
            }
            let is_of_one_log = fits || begins / SECTOR == (begins + 8) / SECTOR;
            commit_behind = number(&frame, 4) != 0 && is_of_one_log;
        }
        // Behind a broken frame, each one is compared with what the one before it tells.
        sums = told;
        begins += frame.len();
    }
    Ok(Ok(commits))
}

/// Says whether anything stands behind a header that does not fit. The header is on the disk before the first frame is
/// written, and lies in one sector, so that no end of the machine tears it.
fn behind_a_broken_header(log: &mut impl Read) -> io::Result<Result<(), String>> {
    let mut rest = [0; 4096];
    loop {
        let length = log.read(&mut rest)?;
        if rest[..length].iter().any(|byte| *byte != 0) {
            return Ok(Err("the header of its log does not fit".to_owned()));
        }
        if length == 0 {
            return Ok(Ok(()));
        }
    }
}

/// Fills `bytes`. Returns whether there was enough.
fn fill(log: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a log of `frames` frames of 4096 bytes, of which those with numbers in `commits` are commits.
    fn log(frames: u32, commits: &[u32]) -> Vec<u8> {
        let mut log = [0x377f_0682_u32, 3_007_000, 4096, 0, 5, 6].map(u32::to_be_bytes).concat();
        let mut sums = Sums(0, 0).add(&log, false);
        log.extend([sums.0, sums.1].map(u32::to_be_bytes).concat());
        for number in 1..=frames {
            let head = [number, if commits.contains(&number) { frames } else { 0 }].map(u32::to_be_bytes).concat();
            let page = vec![number.to_le_bytes()[0]; 4096];
            sums = sums.add(&head, false).add(&page, false);
            log.extend([head, [5, 6, sums.0, sums.1].map(u32::to_be_bytes).concat(), page].concat());
        }
        log
    }

    fn begins(frame: usize) -> usize {
        HEADER + (frame - 1) * (FRAME_HEADER + 4096)
    }

    fn finds_damage(log: &[u8]) -> bool {
        scan(&mut &log[..]).expect("it is read").is_err()
    }

    #[test]
    fn a_torn_commit_with_a_sector_of_an_earlier_log_is_no_damage() {
        let mut torn = log(45, &[40, 45]);
        assert!(!finds_damage(&torn));
        torn[begins(41) + 100] ^= 1;
        assert!(!finds_damage(&torn), "only the last commit does not fit");
        // The header of frame 42 lies in two sectors: the first one still has the end of a commit that stood there.
        assert_eq!((begins(42) + 8) % SECTOR, 0);
        torn[begins(42)..][..8].copy_from_slice(&[0, 0, 0, 9, 0, 0, 0, 9]);
        assert!(!finds_damage(&torn));
    }

    #[test]
    fn frames_behind_a_commit_behind_a_frame_that_does_not_fit_are_damage_wherever_the_commit_lies() {
        for commit in [41, 42, 43] {
            let mut damaged = log(45, &[commit, 45]);
            damaged[begins(41) + 100] ^= 1;
            assert!(finds_damage(&damaged), "the commit is frame {commit}");
        }
    }
}
