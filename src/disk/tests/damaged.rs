//! Damage that a start does not look for, in results: what meets it fails alone, and the file takes everything else.

use std::sync::Arc;

use rusqlite::Connection;

use super::{Disk, Folder, closed, put, session};
use crate::disk::{Later, LaterKey, Rescue, SessionWrites, backup};

/// The bytes of a page.
const PAGE: usize = 4096;
/// What the damaged row is made of.
const FILLING: u8 = b'x';

/// Returns a file in which a piece of a result goes on behind the end of the file.
async fn damaged() -> Folder {
    let folder = Folder::new();
    let disk = folder.open(None);
    let insert = |connection: &Connection| {
        let large = vec![FILLING; 20 * PAGE];
        connection.execute("INSERT INTO chunks VALUES (0, zeroblob(9999)), (1, ?1), (2, x'00')", [large])
    };
    disk.write(insert).await.expect("room");
    closed(disk);
    folder.change("", |bytes| {
        let is_of_it = |page: &[u8]| page[4..].iter().all(|byte| *byte == FILLING);
        let first = bytes.chunks_exact(PAGE).position(is_of_it).expect("a page of it") + 1;
        let number = u32::try_from(first).expect("few").to_be_bytes();
        let named = [&[FILLING; 16][..], &number].concat();
        let at = bytes.windows(named.len()).position(|part| part == named).expect("its row names it");
        bytes[at + 16] ^= 0x40;
    });
    folder
}

/// Removes the damaged row, and one before it.
fn remove(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM chunks WHERE id <= 1", ()).map(drop)
}

/// Returns what a check of the file finds.
fn found(folder: &Folder) -> Vec<String> {
    let mut found = Vec::new();
    Rescue::open(&folder.path(), &[]).expect("readable").check(|what| found.push(what));
    found
}

#[tokio::test]
async fn work_that_meets_damage_is_set_aside_and_everything_else_is_written() {
    let folder = damaged().await;
    let before = found(&folder);
    assert!(!before.is_empty());
    let observer = Arc::<crate::observe::Observer>::default();
    let (disk, _) = Disk::open(&folder.options(None, &[]), &observer).expect("a start does not read results");
    let key = LaterKey { kind: "result", row: 1, task: None };
    disk.later(key, Later::new(remove));
    disk.later(
        LaterKey { row: 2, ..key },
        Later::new(|connection| connection.execute("DELETE FROM chunks WHERE id = 2", ()).map(drop)),
    );
    put(&disk, 0..3).await;
    let batch = async || {
        disk.read(|connection| connection.query_row("SELECT batch FROM state", (), |row| row.get::<_, i64>(0))).await
    };
    // Until the work was tried, which can wait.
    while !observer.open_metrics().contains("taskgate_disk_damages_total 1") {
        put(&disk, 0..1).await;
    }
    // With what stood behind it.
    put(&disk, 0..1).await;
    let batches = batch().await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(batch().await, batches, "it is not tried again");
    put(&disk, 3..4).await;
    let metrics = observer.open_metrics();
    for told in ["taskgate_disk_damages_total 1", "taskgate_disk_unavailable 0", "taskgate_disk_failures_total 0"] {
        assert!(metrics.contains(told), "{told}");
    }
    let left = |connection: &Connection| connection.query_row("SELECT sum(id) FROM chunks", (), |row| row.get(0));
    assert_eq!(disk.read(left).await, Ok(1), "the row beside it has gone");
    assert!(disk.is_available());
    closed(disk);
    assert_eq!(found(&folder), before, "nothing else was damaged");
    assert_eq!(folder.open(None).load_sessions().await.expect("whole").len(), 4);
}

#[tokio::test]
async fn an_operation_that_meets_damage_fails_and_no_other_of_its_batch() {
    let folder = damaged().await;
    let before = found(&folder);
    let observer = Arc::<crate::observe::Observer>::default();
    let (disk, _) = Disk::open(&folder.options(None, &[]), &observer).expect("a start does not read results");
    let (first, meets, second) = tokio::join!(
        disk.put_session(session(1), SessionWrites::default()),
        disk.write(remove),
        disk.put_session(session(2), SessionWrites::default())
    );
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert!(meets.expect_err("it is damaged").0.contains("malformed"));
    assert!(disk.is_available() && observer.open_metrics().contains("taskgate_disk_damages_total 1"));
    closed(disk);
    assert_eq!(found(&folder), before, "nothing else was damaged");
}

#[tokio::test]
async fn a_header_that_lets_nobody_write_is_damage_and_a_copy_is_whole() {
    let (folder, saved) = (Folder::new(), Folder::new());
    let disk = folder.open(None);
    put(&disk, 0..1).await;
    closed(disk);
    folder.change("", |bytes| bytes[18] ^= 4);
    assert!(folder.refused().contains("its header is damaged"));
    let damages = found(&folder);
    assert!(damages.len() == 1 && damages[0].contains("its header is damaged"), "{damages:?}");
    backup(&folder.path(), &saved.path()).expect("readable");
    let disk = saved.open(None);
    assert_eq!(disk.load_sessions().await.expect("whole"), [session(0)]);
    closed(disk);
}
