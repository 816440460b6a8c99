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
    /// The number that it had when it was opened.
    pub batch: Option<u64>,
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

/// Returns the number in the mark of a file, which may be in use.
pub(super) fn noted(file: &Path) -> io::Result<Option<u64>> {
    match fs::read(path_of(file)) {
        Ok(bytes) => Ok(read(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says so if a file whose last batch is `batch` has fewer than its mark tells.
pub(super) fn lost(file: &Path, marked: Option<u64>, batch: u64) -> Option<String> {
    marked.filter(|marked| *marked > batch).map(|_| {
        format!(
            "commits are missing at its end, perhaps behind a damaged place of its log; or an older copy was put in its \
             place: then remove \"{}\"",
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
        Ok(Self { batch: read(&bytes), file })
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

/// Returns the number in a mark; `None` for one that was never written, or was torn, which proves nothing.
fn read(bytes: &[u8]) -> Option<u64> {
    let batch = u64::from_be_bytes(bytes.get(MAGIC.len()..MAGIC.len() + 8)?.try_into().ok()?);
    (bytes == written(batch)).then_some(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written_and_a_changed_one_proves_nothing() {
        let mark = written(7);
        assert_eq!((mark.len(), read(&mark)), (LENGTH, Some(7)));
        for bit in 0..8 * LENGTH {
            let mut flipped = mark.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read(&flipped), None);
        }
        assert!((0..LENGTH).all(|length| read(&mark[..length]).is_none()));
    }

    #[test]
    fn a_mark_is_locked_once_and_tells_the_last_number_the_next_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let first = Mark::lock(&path).expect("free");
        assert_eq!(first.batch, None);
        first.write(3).expect("room");
        assert!(matches!(Mark::lock(&path), Err(NotLocked::InUse)));
        assert!(is_locked(&path));
        drop(first);
        assert!(!is_locked(&path));
        assert_eq!(Mark::lock(&path).expect("free").batch, Some(3));
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
