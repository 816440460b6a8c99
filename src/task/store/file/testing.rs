//! Stores in files, for tests.

use std::{path::Path, sync::Arc};

use tempfile::TempDir;

use super::{FileStore, rows};
use crate::{
    disk::{Disk, OpenOptions, Opened},
    task::{Clock, store::MaxKept},
};

/// The limit on the bytes of a file in tests.
const MAX_BYTES: u64 = 1 << 30;

/// Where Linux has files in memory.
const IN_MEMORY: &str = "/dev/shm";

/// Returns an empty folder, in memory where that can be: what a disk costs is not what most tests are about.
pub(in crate::task) fn folder() -> TempDir {
    tempfile::tempdir_in(IN_MEMORY).or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Returns how many cases a property of stores is checked with where each case makes a file.
pub(in crate::task) fn file_cases() -> u32 {
    if Path::new(IN_MEMORY).is_dir() { 200 } else { 30 }
}

/// Returns how tests open the store in a folder.
pub(in crate::task) fn options(folder: &TempDir, key: Option<&str>) -> OpenOptions {
    OpenOptions {
        path: folder.path().join("store"),
        key: key.map(str::to_owned),
        old_keys: Vec::new(),
        max_bytes: MAX_BYTES,
    }
}

/// Opens the store in a folder, by the time of the file if there is no clock.
pub(in crate::task) async fn opened(
    folder: &TempDir,
    max: MaxKept,
    key: Option<&str>,
    clock: Option<Clock>,
) -> FileStore {
    let (disk, Opened { now, .. }) = Disk::open(&options(folder, key), &Arc::default()).expect("a new or whole file");
    let clock = clock.unwrap_or_else(|| Clock::starting_at(now));
    FileStore::open(disk, max, MAX_BYTES, clock, Arc::default()).await.expect("a whole file")
}

/// Returns the disk of a store.
pub(in crate::task) fn disk_of(store: &FileStore) -> Disk {
    store.disk.clone()
}

/// Returns the place that the next task gets.
pub(in crate::task) async fn next_place(store: &FileStore) -> u64 {
    store.disk.read(rows::next_place).await.expect("available")
}
