//! A file that may not grow: what needs no room is written, whatever else needs some.

use std::sync::{Arc, mpsc};

use rusqlite::Connection;

use super::{Disk, Folder, closed};
use crate::{
    disk::{Later, LaterKey, OpenOptions, Operation, Unavailable},
    observe::Observer,
};

const MAX_BYTES: u64 = 1 << 20;
/// The bytes of a row.
const SMALL: i64 = 10_000;
/// The bytes of one that finds no room where a few rows have gone.
const LARGE: i64 = 100_000;

async fn put(disk: &Disk, id: i64, bytes: i64) -> Result<(), Unavailable> {
    disk.write(move |connection| connection.execute("INSERT INTO chunks VALUES (?1, zeroblob(?2))", (id, bytes)))
        .await
        .map(drop)
}

async fn remove(disk: &Disk, first: i64, last: i64) -> Result<usize, Unavailable> {
    disk.write(move |connection| connection.execute("DELETE FROM chunks WHERE id BETWEEN ?1 AND ?2", [first, last]))
        .await
}

/// Waits until the row is there, or is not.
async fn wait_for(disk: &Disk, id: i64, is_there: bool) {
    let read = move |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM chunks WHERE id = ?1", [id], |row| row.get::<_, bool>(0))
    };
    while disk.read(read).await != Ok(is_there) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

fn later(disk: &Disk, row: u128, run: impl Fn(&Connection) -> rusqlite::Result<usize> + Send + Sync + 'static) {
    let key = LaterKey { kind: "test", row, task: None };
    disk.later(key, Later::new(move |connection| run(connection).map(drop)));
}

/// Makes a file that has no room for one row more. Returns how many it has.
async fn fill(disk: &Disk) -> i64 {
    let mut rows = 0;
    while put(disk, rows, SMALL).await.is_ok() {
        rows += 1;
    }
    rows
}

#[tokio::test]
async fn what_finds_no_room_keeps_nothing_else_from_the_disk_and_the_file_is_full_until_it_does() {
    let folder = Folder::new();
    let options = OpenOptions { max_bytes: MAX_BYTES, ..folder.options(None, &[]) };
    let observer = Arc::<Observer>::default();
    let (disk, _) = Disk::open(&options, &observer).expect("new");
    let rows = fill(&disk).await;
    assert!(rows > 50 && !disk.is_available(), "{rows} rows");
    // Work that can wait, in one batch: some that finds no room, the removal of a row, and more of both.
    for row in [0, 2] {
        let id = 1000 + i64::try_from(row).expect("small");
        later(&disk, row, move |rows| rows.execute("INSERT INTO chunks VALUES (?1, zeroblob(?2))", (id, LARGE)));
    }
    for (row, id) in [(1, 0), (3, 1)] {
        later(&disk, row, move |rows| rows.execute("DELETE FROM chunks WHERE id = ?1", [id]));
    }
    // Operations, in one batch: each fails or is done for itself.
    let (first, no_room, again, last) =
        tokio::join!(remove(&disk, 2, 2), put(&disk, 2000, LARGE), put(&disk, 2001, LARGE), remove(&disk, 3, 3));
    assert_eq!((first, last), (Ok(1), Ok(1)));
    for refused in [no_room, again] {
        assert!(refused.expect_err("there is no room").0.contains("full"));
    }
    wait_for(&disk, 0, false).await;
    wait_for(&disk, 1, false).await;
    let metrics = observer.open_metrics();
    assert!(!disk.is_available() && metrics.contains("taskgate_disk_unavailable 1"), "{metrics}");
    // Once there is room the work is done, and the file is not full any more.
    remove(&disk, 4, 40).await.expect("it needs no room");
    for id in [1000, 1002] {
        wait_for(&disk, id, true).await;
    }
    while !observer.open_metrics().contains("taskgate_disk_unavailable 0") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(disk.is_available());
    closed(disk);
}

#[tokio::test]
async fn much_that_finds_no_room_takes_few_batches_and_what_stands_behind_it_is_written() {
    let folder = Folder::new();
    let options = OpenOptions { max_bytes: MAX_BYTES, ..folder.options(None, &[]) };
    let (disk, _) = Disk::open(&options, &Arc::default()).expect("new");
    fill(&disk).await;
    let batch = || disk.read(|rows| rows.query_row("SELECT batch FROM state", (), |row| row.get::<_, i64>(0)));
    let before = batch().await.expect("whole");
    // Nothing is written until all of this waits.
    let (go, waits) = mpsc::channel::<()>();
    disk.submit(Operation::new(move |_| Ok(waits.recv().is_ok()), drop)).expect("room");
    let large = |id: i64| {
        disk.begin_write(move |rows| rows.execute("INSERT INTO chunks VALUES (?1, zeroblob(?2))", (id, LARGE)))
    };
    let refused: Vec<_> = (1000..1200).map(|id| large(id).expect("room")).collect();
    let removed = disk.begin_write(|rows| rows.execute("DELETE FROM chunks WHERE id = 0", ())).expect("room");
    drop(go);
    assert_eq!(removed.await, Ok(Ok(1)));
    for refused in refused {
        assert!(refused.await.expect("told").expect_err("there is no room").0.contains("full"));
    }
    let batches = batch().await.expect("whole") - before;
    assert!((12..=16).contains(&batches), "{batches} batches");
    closed(disk);
}

#[tokio::test]
async fn at_a_stop_what_makes_room_is_written_behind_much_that_finds_none() {
    let folder = Folder::new();
    let options = OpenOptions { max_bytes: MAX_BYTES, ..folder.options(None, &[]) };
    let (disk, _) = Disk::open(&options, &Arc::default()).expect("new");
    let rows = fill(&disk).await;
    // Nothing is written until all of this waits.
    let (go, waits) = mpsc::channel::<()>();
    disk.submit(Operation::new(move |_| Ok(waits.recv().is_ok()), drop)).expect("room");
    for id in 1000..1300_u32 {
        later(&disk, id.into(), move |rows| rows.execute("INSERT INTO chunks VALUES (?1, zeroblob(?2))", (id, LARGE)));
    }
    for id in 0..5_u32 {
        later(&disk, id.into(), move |rows| rows.execute("DELETE FROM chunks WHERE id = ?1", [id]));
    }
    drop(go);
    assert!(!disk.close(), "not all was written");
    drop(disk);
    let (disk, _) = Disk::open(&options, &Arc::default()).expect("whole");
    let left = disk.read(|rows| rows.query_row("SELECT count(*) FROM chunks", (), |row| row.get::<_, i64>(0))).await;
    assert_eq!(left, Ok(rows - 5));
    closed(disk);
}

#[tokio::test]
async fn a_long_log_takes_no_room_of_the_file() {
    let folder = Folder::new();
    let (disk, _) = Disk::open(&folder.options(None, &[]), &Arc::default()).expect("new");
    put(&disk, 0, LARGE).await.expect("room");
    let used = disk.used_bytes();
    // The log cannot be brought into the file before its reader has ended.
    let reader = Connection::open(folder.path()).expect("there");
    reader.execute_batch("BEGIN; SELECT count(*) FROM chunks").expect("readable");
    for _ in 0..100 {
        disk.write(|rows| rows.execute("UPDATE chunks SET data = randomblob(length(data))", ())).await.expect("room");
    }
    let log = std::fs::metadata(crate::disk::beside::beside(&folder.path(), "-wal")).expect("there").len();
    assert!(log > 100 * LARGE.cast_unsigned(), "{log} bytes");
    assert_eq!(disk.used_bytes(), used);
}
