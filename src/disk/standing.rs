//! Whether the files still stand where they were opened. SQLite goes on with files that were moved away or removed:
//! what it writes to them is not found by the next start, and another process gets the lock of a new mark.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{Unavailable, beside::beside};

/// The file, its log, the index of that, and its mark.
const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-mark"];

/// The files that were opened.
#[derive(Debug)]
pub(super) struct Standing([OpenedFile; 4]);

/// A file that was opened, by what tells it from every other one.
#[derive(Debug)]
struct OpenedFile {
    path: PathBuf,
    id: FileId,
}

#[derive(Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self { device: found.dev(), inode: found.ino() })
    }
}

impl Standing {
    /// Returns the files of the open file at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let opened = |suffix| {
            let path = beside(path, suffix);
            FileId::of(&path).map(|id| OpenedFile { path, id })
        };
        let [file, log, index, mark] = SUFFIXES.map(opened);
        Ok(Self([file?, log?, index?, mark?]))
    }

    /// Says so if one of them does not stand at its place any more.
    pub(super) fn check(&self) -> Result<(), Unavailable> {
        let moved = |opened: &&OpenedFile| FileId::of(&opened.path).map_or(true, |id| id != opened.id);
        match self.0.iter().find(moved) {
            None => Ok(()),
            Some(OpenedFile { path, .. }) => {
                let path = path.display();
                Err(Unavailable(
                    format!("\"{path}\" was moved away or removed while it was in use; put it back").into(),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::disk::{Disk, OpenOptions};

    #[tokio::test]
    async fn files_that_were_moved_away_or_replaced_take_nothing_until_they_are_put_back() {
        for suffix in SUFFIXES {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("store");
            let options = OpenOptions { path: path.clone(), key: None, old_keys: Vec::new(), max_bytes: 1 << 26 };
            let (disk, _) = Disk::open(&options, &Arc::default()).expect("new");
            let write = || disk.write(|connection| connection.execute("UPDATE state SET batch = batch", ()));
            write().await.expect("room");
            let (file, away) = (beside(&path, suffix), folder.path().join("away"));
            fs::rename(&file, &away).expect("there");
            for is_replaced in [false, true] {
                if is_replaced {
                    fs::copy(&away, &file).expect("room");
                }
                let refused = write().await.expect_err("nothing finds what is written").0;
                assert!(refused.contains(&format!("{}\" was moved away", file.display())), "{refused}");
                assert!(!disk.is_available());
            }
            fs::rename(&away, &file).expect("there");
            write().await.expect("it is there again");
            assert!(disk.is_available());
        }
    }
}
