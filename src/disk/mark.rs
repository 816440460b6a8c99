//! A small file beside the file: its lock, and the number of the last batch that was on the disk.
//!
//! SQLite ends its reading of a log at the first frame that is damaged, without a word about commits behind it. The
//! mark is written after a batch is on the disk and is not synced, so it never promises more than there is. A file that
//! has fewer batches than its mark has lost some.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{SHA256, digest};

const MAGIC: &[u8; 8] = b"tgmark01";
/// Magic, batch and a part of their SHA-256.
const LENGTH: usize = 32;

/// The open and locked file.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    /// What it told when it was opened.
    pub noted: Noted,
}

/// What a mark tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It was never written, or the system has not kept what was.
    Nothing,
    /// The number of a batch that was on the disk.
    Batch(u64),
    /// It is not what was written, and proves nothing.
    Damaged,
}

/// Why the mark was not locked.
#[derive(Debug)]
pub(super) enum NotLocked {
    /// Another process has it.
    InUse,
    /// The system says why.
    Failed(io::Error),
}

/// Returns the path of the mark of a file.
pub(super) fn path_of(file: &Path) -> PathBuf {
    super::beside::beside(file, "-mark")
}

/// Returns whether a process has the file open.
pub(super) fn is_locked(file: &Path) -> bool {
    let mark = File::open(path_of(file));
    mark.is_ok_and(|mark| matches!(mark.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns what the mark of a file tells, which may be in use.
pub(super) fn noted(file: &Path) -> io::Result<Noted> {
    match fs::read(path_of(file)) {
        Ok(bytes) => Ok(read(&bytes[..bytes.len().min(LENGTH)])),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Noted::Nothing),
        Err(error) => Err(error),
    }
}

/// Says so if a file whose last batch is `batch` has fewer than its mark tells.
pub(super) fn lost(file: &Path, noted: Noted, batch: u64) -> Option<String> {
    matches!(noted, Noted::Batch(marked) if marked > batch).then(|| {
        format!(
            "commits are missing at its end, perhaps behind a damaged place of its log; or an older copy was put in its \
             place: then remove \"{}\"",
            path_of(file).display()
        )
    })
}

/// Says so if the mark of a file cannot tell whether the file has lost anything.
pub(super) fn unreadable(file: &Path, noted: Noted) -> Option<String> {
    (noted == Noted::Damaged).then(|| {
        format!(
            "its mark \"{}\" is damaged, and cannot tell whether commits are missing at the end of the file; a \
             start writes it anew, or remove it",
            path_of(file).display()
        )
    })
}

impl Mark {
    /// Locks the mark of the file at `file`, until it is dropped or the process ends in whatever way.
    pub(super) fn lock(file: &Path) -> Result<Self, NotLocked> {
        let opened =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path_of(file));
        Self::lock_opened(opened.map_err(NotLocked::Failed)?)
    }

    fn lock_opened(mut file: File) -> Result<Self, NotLocked> {
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => NotLocked::InUse,
            TryLockError::Error(error) => NotLocked::Failed(error),
        })?;
        // The process that had it may have removed it, and another one have made and locked a new one.
        if file.metadata().map_err(NotLocked::Failed)?.nlink() == 0 {
            return Err(NotLocked::InUse);
        }
        let mut bytes = Vec::with_capacity(LENGTH);
        file.by_ref().take(LENGTH as u64).read_to_end(&mut bytes).map_err(NotLocked::Failed)?;
        Ok(Self { noted: read(&bytes), file })
    }

    /// Removes a mark that was never written. It stays locked until it is dropped.
    pub(super) fn remove(&self, file: &Path) {
        if self.file.metadata().is_ok_and(|found| found.len() == 0) {
            // One that stays says nothing.
            let _ = fs::remove_file(path_of(file));
        }
    }

    /// Writes the number of a batch that is on the disk.
    pub(super) fn write(&self, batch: u64) -> io::Result<()> {
        self.file.write_all_at(&written(batch), 0)
    }
}

fn written(batch: u64) -> Vec<u8> {
    let mut bytes = [MAGIC.as_slice(), &batch.to_be_bytes()].concat();
    let check = digest(&SHA256, &bytes);
    bytes.extend_from_slice(&check.as_ref()[..LENGTH - bytes.len()]);
    bytes
}

fn read(bytes: &[u8]) -> Noted {
    // It is not synced, so that a power loss may leave zeros.
    if bytes.iter().all(|byte| *byte == 0) {
        return Noted::Nothing;
    }
    let batch = bytes.get(MAGIC.len()..).and_then(|rest| rest.first_chunk()).map(|batch| u64::from_be_bytes(*batch));
    batch.filter(|batch| bytes == written(*batch)).map_or(Noted::Damaged, Noted::Batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_changed_one_proves_nothing() {
        let mark = written(7);
        assert_eq!((mark.len(), read(&mark)), (LENGTH, Noted::Batch(7)));
        for bit in 0..8 * LENGTH {
            let mut flipped = mark.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), Noted::Damaged);
        }
        assert!((1..LENGTH).all(|length| read(&mark[..length]) == Noted::Damaged));
        assert_eq!([read(&[]), read(&[0; LENGTH])], [Noted::Nothing; 2]);
    }

    #[test]
    fn a_mark_is_locked_once_and_tells_the_last_number_the_next_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let first = Mark::lock(&path).expect("free");
        assert_eq!(first.noted, Noted::Nothing);
        first.write(3).expect("room");
        assert!(matches!(Mark::lock(&path), Err(NotLocked::InUse)));
        assert!(is_locked(&path));
        drop(first);
        assert!(!is_locked(&path));
        assert_eq!(Mark::lock(&path).expect("free").noted, Noted::Batch(3));
    }

    #[test]
    fn a_mark_that_was_removed_before_it_was_locked_locks_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let first = Mark::lock(&path).expect("free");
        let opened = File::open(path_of(&path)).expect("there");
        first.remove(&path);
        drop(first);
        let second = Mark::lock(&path).expect("a new one");
        assert!(matches!(Mark::lock_opened(opened), Err(NotLocked::InUse)));
        second.write(1).expect("room");
        second.remove(&path);
        assert!(path_of(&path).exists(), "one that says something stays");
    }
}
