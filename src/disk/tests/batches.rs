//! What becomes of operations that fail, alone and with others.

use std::sync::Arc;

use super::{Disk, Folder, closed, put, session};
use crate::disk::{
    Later, LaterKey, Operation, SessionWrites,
    batch::Batches,
    beside::beside,
    cut::LogEnd,
    mark::Mark,
    queue::Taken,
    rusqlite,
    standing::Standing,
    time::{FileTime, Seen},
};

#[tokio::test]
async fn an_operation_that_fails_undoes_itself_and_no_other_of_its_batch() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let fails = |disk: &Disk| {
        let disk = disk.clone();
        tokio::spawn(async move {
            disk.write(|connection| {
                connection.execute("DELETE FROM sessions", ())?;
                connection.execute("INSERT INTO no_such_table VALUES (1)", ())
            })
            .await
        })
    };
    let (first, second, third) = (
        disk.put_session(session(1), SessionWrites::default()),
        fails(&disk),
        disk.put_session(session(2), SessionWrites::default()),
    );
    let (first, second, third) = tokio::join!(first, second, third);
    assert_eq!((first, third), (Ok(()), Ok(())));
    assert!(second.expect("no panic").expect_err("no such table").0.contains("no_such_table"));
    assert_eq!(disk.load_sessions().await.expect("whole").len(), 2);
    assert!(disk.is_available());
}

#[tokio::test]
async fn what_can_wait_and_fails_each_time_does_not_hold_up_the_end() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let tried = Arc::new(std::sync::atomic::AtomicUsize::default());
    for row in 0..600 {
        let tried = Arc::clone(&tried);
        let work = move |connection: &rusqlite::Connection| {
            tried.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            connection.execute("INSERT INTO no_such_table VALUES (1)", ()).map(drop)
        };
        disk.later(LaterKey { kind: "fails", row, task: None }, Later::new(work));
    }
    disk.touch_session(session(1).id, 9);
    let begun = std::time::Instant::now();
    assert!(!disk.close(), "not all was written");
    assert!(begun.elapsed() < std::time::Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(tried.load(std::sync::atomic::Ordering::Relaxed) >= 600);
}

#[tokio::test]
async fn operations_that_wait_are_done_at_a_stop_whatever_else_cannot_be() {
    let folder = Folder::new();
    let disk = folder.open(None);
    // Nothing is written until the store is closed.
    let (go, waits) = std::sync::mpsc::channel::<()>();
    disk.submit(Operation::new(move |_| Ok(waits.recv().is_ok()), drop)).expect("room");
    let fails = |connection: &rusqlite::Connection| connection.execute("INSERT INTO no_such_table VALUES (1)", ());
    disk.later(LaterKey { kind: "fails", row: 0, task: None }, Later::new(move |rows| fails(rows).map(drop)));
    for id in 0..3 {
        let put = move |rows: &rusqlite::Connection| rows.execute("INSERT INTO chunks VALUES (?1, zeroblob(10))", [id]);
        // One fills a batch.
        disk.submit(Operation::new(put, drop).of_bytes(2 << 20)).expect("room");
    }
    let closing = std::thread::spawn({
        let disk = disk.clone();
        move || disk.close()
    });
    while disk.submit(Operation::new(|_| Ok(()), drop)).is_ok() {
        std::thread::yield_now();
    }
    drop(go);
    assert!(!closing.join().expect("no panic"), "not all was written");
    drop(disk);
    let disk = folder.open(None);
    let count = disk.read(|rows| rows.query_row("SELECT count(*) FROM chunks", (), |row| row.get::<_, i64>(0))).await;
    assert_eq!(count, Ok(3));
    closed(disk);
}

#[tokio::test]
async fn what_can_wait_and_fails_each_time_does_not_keep_the_disk_busy() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let batch = async || {
        disk.read(|connection| connection.query_row("SELECT batch FROM state", (), |row| row.get::<_, i64>(0))).await
    };
    // More than one batch takes.
    for row in 0..600 {
        let work = |connection: &rusqlite::Connection| connection.execute("INSERT INTO no_such_table VALUES (1)", ());
        disk.later(
            LaterKey { kind: "fails", row, task: None },
            Later::new(move |connection| work(connection).map(drop)),
        );
    }
    let begun = std::time::Instant::now();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let batches = batch().await.expect("whole");
    // There are two or three a second. Without a rest there would be hundreds.
    let most = 10 * i64::try_from(begun.elapsed().as_secs()).expect("short");
    assert!(batches <= most, "{batches} batches in vain");
    put(&disk, 0..1).await;
}

#[tokio::test]
async fn a_panic_of_the_thread_that_writes_is_told_to_all_who_wait_and_to_the_operator() {
    let folder = Folder::new();
    let observer = Arc::<crate::observe::Observer>::default();
    let (disk, _) = Disk::open(&folder.options(None, &[]), &observer).expect("new");
    put(&disk, 0..1).await;
    let panics = disk.write(|connection| {
        assert!(connection.is_autocommit(), "this panic is a part of the test");
        Ok(())
    });
    let (panicked, with_it) = tokio::join!(panics, disk.put_session(session(1), SessionWrites::default()));
    assert_eq!(&*panicked.expect_err("it has panicked").0, "it gave no answer");
    with_it.expect_err("it is not on the disk");
    assert!(!disk.close(), "what waited was not written");
    assert!(!disk.is_available() && observer.open_metrics().contains("taskgate_disk_unavailable 1"));
    assert_eq!(
        &*disk.put_session(session(2), SessionWrites::default()).await.expect_err("it has ended").0,
        "it is closed"
    );
    drop(disk);
    assert_eq!(folder.open(None).load_sessions().await.expect("whole"), [session(0)]);
}

#[tokio::test]
async fn a_session_that_the_disk_did_not_remove_is_removed_when_it_does() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..2).await;
    let away = folder.path().with_extension("away");
    std::fs::rename(folder.path(), &away).expect("there");
    disk.touch_session(session(0).id, 9);
    disk.remove_session(session(0).id).tried().await.expect_err("it takes nothing");
    std::fs::rename(&away, folder.path()).expect("there");
    while disk.load_sessions().await.expect("whole") != [session(1)] {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    closed(disk);
    assert_eq!(folder.open(None).load_sessions().await.expect("whole"), [session(1)]);
}

#[tokio::test]
async fn a_close_says_so_where_the_disk_does_not_take_what_waits() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..1).await;
    // A file that was moved away takes nothing.
    std::fs::rename(folder.path(), folder.path().with_extension("away")).expect("there");
    disk.touch_session(session(0).id, 9);
    assert!(!disk.close(), "the use was not noted");
}

#[test]
fn giving_space_back_leaves_the_log_room_for_batches_while_something_reads_it() {
    let folder = Folder::new();
    closed(folder.open(None));
    let path = folder.path();
    let connect = || rusqlite::Connection::open(&path).expect("there");
    let filling = connect();
    for id in 0..700 {
        filling.execute("INSERT INTO chunks VALUES (?1, zeroblob(100000))", [id]).expect("room");
    }
    // What is left stands behind the free pages, and each step moves some of it into them.
    filling.execute("DELETE FROM chunks WHERE id < 400", ()).expect("room");
    filling.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(())).expect("room");
    let reader = connect();
    reader.execute_batch("BEGIN; SELECT count(*) FROM chunks").expect("readable");
    let (standing, log_end) = (Standing::of(&path).expect("there"), LogEnd::of(&path).expect("there"));
    let mark = Mark::lock(&path).expect("no other lock");
    let mut batches = Batches::new(connect(), standing, log_end, mark, FileTime::resume(&Seen::now())).expect("well");
    let why = (0..1000).find_map(|_| batches.tidy().err()).expect("the log is long enough");
    assert!(why.0.contains("reads its log"), "{why}");
    let log = std::fs::metadata(beside(&path, "-wal")).expect("there").len();
    assert!(log < 24 << 20, "{log} bytes");
    let rest = batches.chore_after().as_secs();
    assert!((2..=10).contains(&rest), "it tries again after {rest} s");
    assert_eq!(batches.write(Taken::default()).result, Ok(()));
}
