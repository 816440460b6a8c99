//! What of the store in a file outlives the process, and what happens where the disk takes nothing.

mod damage;
mod same_batch;

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tempfile::TempDir;

use super::{
    FileStore, Read,
    rows::{CHUNK, SMALL},
    testing::{opened, options},
};
use crate::{
    disk::{Disk, Opened},
    identity::Owner,
    task::{
        Change, Clock, End, State, Task, TaskId,
        state::tests::{at, error, owner, result, task},
        store::{CallChange, KeptLimit, MaxKept, NoEnd, PageOrder, SavedCall, Store as _},
    },
};

const ROOM: MaxKept = MaxKept::of_tasks(usize::MAX, usize::MAX);

struct Setup {
    folder: TempDir,
    store: FileStore,
    key: Option<&'static str>,
}

impl Setup {
    async fn new(key: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = opened(&folder, ROOM, key, Some(Clock::starting_at(1000))).await;
        Self { folder, store, key }
    }

    /// Ends the process, as far as the store is concerned, and starts it again.
    async fn again(self) -> Self {
        let Self { folder, store, key } = self;
        assert!(store.disk.close(), "the disk takes everything");
        drop(store);
        let store = opened(&folder, ROOM, key, Some(Clock::starting_at(1000))).await;
        Self { folder, store, key }
    }

    async fn add(&self, task: &Task, call: Option<&str>) {
        let call = call.map(|call| SavedCall(call.to_owned().into()));
        self.store.insert(task.clone(), call).await.expect("available").expect("room");
    }

    async fn change(&self, task: &Task, change: Change, call: CallChange) -> Task {
        let next = task.after(&change, at(2000)).expect("not ended");
        let replaced = self.store.replace(next.clone(), change.end().cloned(), call).await;
        assert_eq!(replaced, Ok(true));
        next
    }

    async fn get(&self, id: TaskId) -> Option<Arc<Task>> {
        self.store.get(&owner(), id).await.expect("available")
    }

    async fn end(&self, id: TaskId) -> Option<End> {
        self.store.end(&owner(), id).await.expect("available")
    }

    /// Returns how many rows a table has, once what can wait is written.
    async fn rows(&self, table: &'static str, expected: i64) {
        for _ in 0..400 {
            let count = self.store.disk.read(move |connection| {
                connection.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get::<_, i64>(0))
            });
            if count.await.expect("available") == expected {
                return;
            }
            // The file is what is waited for, and nothing tells of it.
            tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(10))).await.expect("no panic");
        }
        panic!("{table} does not come to have {expected} rows");
    }
}

fn raw(length: usize) -> Bytes {
    (0..length).map(|at| u8::try_from(at * 7 % 251).expect("small")).collect()
}

#[tokio::test]
async fn tasks_and_their_ends_are_the_same_after_a_restart_and_pages_go_on() {
    for key in [None, Some("key")] {
        let setup = Setup::new(key).await;
        let tasks: Vec<Task> = (0..8).map(|_| task(&owner())).collect();
        for task in &tasks {
            setup.add(task, None).await;
        }
        let sizes = [0, 2, SMALL, SMALL + 1, CHUNK, CHUNK + 1, 9 * CHUNK + 5];
        for (task, size) in tasks.iter().zip(sizes) {
            setup.change(task, result(raw(size)), CallChange::Keep).await;
        }
        let asks = setup.change(&tasks[7], Change::Ask("what".into()), CallChange::Keep).await;
        let told = setup.change(&asks, Change::Message("half".into()), CallChange::Keep).await;
        let first = setup.store.page(&owner(), PageOrder::ALL, 2).await.expect("available");
        let setup = setup.again().await;
        let rest = setup
            .store
            .page(&owner(), PageOrder::OldestFirst { after: Some(first[1].0) }, 10)
            .await
            .expect("available");
        let listed: Vec<_> = first.iter().chain(&rest).map(|(_, task)| task.id).collect();
        assert_eq!(listed, tasks.iter().map(|task| task.id).collect::<Vec<_>>());
        for (task, size) in tasks.iter().zip(sizes) {
            let end = End::Result { raw: raw(size), is_error: false };
            // The second time from memory.
            assert_eq!([setup.end(task.id).await, setup.end(task.id).await], [Some(end.clone()), Some(end)], "{size}");
        }
        let kept = setup.get(told.id).await.expect("kept");
        assert!(kept.is(&told) && kept.expires == told.expires && kept.state == State::InputRequired);
        // A place is never used again, so that no cursor comes to mean another one.
        let last = rest.last().expect("some").0;
        setup.store.remove_all(&owner()).await.expect("available");
        let setup = setup.again().await;
        setup.add(&tasks[0], None).await;
        assert!(
            setup
                .store
                .page(&owner(), PageOrder::OldestFirst { after: Some(last) }, 10)
                .await
                .expect("available")
                .len()
                == 1
        );
    }
}

#[tokio::test]
async fn what_is_saved_of_a_call_stays_until_the_task_ends() {
    let setup = Setup::new(Some("key")).await;
    let [first, second, third] = [(), (), ()].map(|()| task(&owner()));
    setup.add(&first, Some("queued")).await;
    setup.add(&second, None).await;
    setup.add(&third, Some("queued too")).await;
    let set = CallChange::Set(SavedCall("left".into()));
    let left = setup.change(&first, Change::Message("left".into()), set).await;
    for note in ["event 1", "event 2"] {
        setup.store.note(first.id, note.into(), Arc::new(|| ()));
    }
    setup.store.note(third.id, "event 3".into(), Arc::new(|| ()));
    setup.change(&third, Change::cancel(), CallChange::Keep).await;
    let setup = setup.again().await;
    let found = setup.store.unfinished().await.expect("available");
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("text");
    let found: Vec<_> = found
        .into_iter()
        .map(|found| (found.task.id, found.call.map(|SavedCall(call)| text(call)), found.note.map(text)))
        .collect();
    let expected = [(first.id, Some("left".to_owned()), Some("event 2".to_owned())), (second.id, None, None)];
    assert_eq!(found, expected);
    setup.change(&left, error("{}"), CallChange::Keep).await;
    setup.rows("tasks WHERE call IS NOT NULL", 0).await;
    setup.rows("notes", 0).await;
}

#[tokio::test]
async fn what_has_expired_leaves_nothing_in_the_file() {
    let setup = Setup::new(None).await;
    let tasks = [task(&owner()), Task { expires: u64::MAX, ..task(&owner()) }];
    for task in &tasks {
        setup.add(task, Some("call")).await;
        setup.change(task, result(raw(3 * CHUNK)), CallChange::Keep).await;
    }
    setup.rows("chunks", 6).await;
    assert_eq!(setup.store.expire(1_000_000).await, Ok(vec![tasks[0].id]));
    assert!(setup.get(tasks[0].id).await.is_none() && setup.end(tasks[0].id).await.is_none());
    setup.rows("tasks", 1).await;
    setup.rows("chunks", 3).await;
    let setup = setup.again().await;
    assert!(setup.get(tasks[0].id).await.is_none());
    assert_eq!(setup.store.remove_all(&owner()).await, Ok(vec![tasks[1].id]));
    setup.rows("tasks", 0).await;
    setup.rows("chunks", 0).await;
}

#[tokio::test]
async fn pieces_of_a_result_whose_end_was_never_written_are_removed() {
    let setup = Setup::new(None).await;
    let task = task(&owner());
    setup.add(&task, None).await;
    // Another change comes first while the pieces are written.
    let large = task.after(&result(raw(40 * CHUNK)), at(2000)).expect("legal");
    let end = End::Result { raw: raw(40 * CHUNK), is_error: false };
    let late = setup.store.replace(large, Some(end), CallChange::Keep);
    setup.change(&task, Change::cancel(), CallChange::Keep).await;
    assert_eq!(late.await, Ok(false));
    assert_eq!(setup.end(task.id).await, Some(End::Cancelled));
    setup.rows("chunks", 0).await;
    // A process that ended in between leaves some.
    let seals = Arc::clone(&setup.store.ways.seals);
    let put = move |connection: &rusqlite::Connection| super::rows::put_chunk(connection, &seals, 5, 0, b"{}");
    setup.store.disk.write(put).await.expect("available");
    let setup = setup.again().await;
    setup.rows("chunks", 0).await;
    assert_eq!(setup.end(task.id).await, Some(End::Cancelled));
}

#[tokio::test]
async fn where_the_file_may_not_grow_new_tasks_are_refused_and_ends_wait_for_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let max_bytes: u64 = 16 << 20;
    let options = crate::disk::OpenOptions { max_bytes, ..options(&folder, None) };
    let (disk, Opened { .. }) = Disk::open(&options, &Arc::default()).expect("new");
    let clock = Clock::starting_at(1000);
    let store = FileStore::open(disk, ROOM, max_bytes, clock, Arc::default()).await.expect("new");
    let tasks: Vec<Task> = (0..20).map(|_| task(&owner())).collect();
    for task in &tasks {
        store.insert(task.clone(), None).await.expect("available").expect("room");
    }
    let ended = async |task: &Task| {
        let next = task.after(&result(raw(1 << 20)), at(2000)).expect("legal");
        let end = End::Result { raw: raw(1 << 20), is_error: false };
        store.replace(next, Some(end), CallChange::Keep).await
    };
    let mut kept = 0;
    let why = loop {
        match ended(&tasks[kept]).await {
            Ok(made) => assert!(made),
            Err(why) => break why,
        }
        kept += 1;
    };
    assert!(why.0.contains("full") && (10..17).contains(&kept), "{kept}: {why}");
    let limit = KeptLimit::StoreBytes(16 << 20);
    assert_eq!(store.insert(task(&owner()), None).await, Ok(Err(limit)));
    assert_eq!(store.full(&owner()), Some(limit));
    assert!(limit.to_string().starts_with("store.max_store_bytes = 16777216 "), "{limit}");
    // What is there can be read, and what runs goes on.
    assert!(store.end(&owner(), tasks[0].id).await.expect("available").is_some());
    assert_eq!(store.get(&owner(), tasks[kept].id).await.expect("available").expect("kept").state, State::Working);
    // As soon as something has expired there is room again, without a restart.
    store.remove_all(&Owner::session(TaskId::nil())).await.expect("nothing to do");
    let expired = store.expire(u64::MAX).await.expect("memory");
    assert_eq!(expired.len(), tasks.len());
    let again = task(&owner());
    loop {
        match store.insert(again.clone(), None).await {
            Ok(Ok(())) => break,
            Ok(Err(limit)) => assert_eq!(limit, KeptLimit::StoreBytes(16 << 20)),
            Err(why) => assert!(why.0.contains("full"), "{why}"),
        }
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(10))).await.expect("no panic");
    }
    assert_eq!(ended(&again).await, Ok(true));
}

#[tokio::test]
async fn a_task_that_expires_while_its_end_is_written_does_not_come_back() {
    let setup = Setup::new(None).await;
    for round in 0..30 {
        let task = task(&owner());
        setup.add(&task, None).await;
        let next = task.after(&result("{}"), at(2000)).expect("legal");
        let end = End::Result { raw: "{}".into(), is_error: false };
        let ending = setup.store.replace(next, Some(end), CallChange::Keep);
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        let expired = setup.store.expire(61_000).await.expect("memory");
        let made = ending.await.expect("available");
        assert_eq!(made, expired.is_empty(), "in round {round}");
        assert_eq!(setup.get(task.id).await.is_some(), made, "in round {round}");
        setup.store.expire(u64::MAX).await.expect("memory");
    }
    setup.rows("tasks", 0).await;
    setup.rows("chunks", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_who_change_a_task_at_once_one_wins_and_every_change_is_told() {
    let setup = Arc::new(Setup::new(None).await);
    for round in 0..30 {
        let first = task(&owner());
        setup.add(&first, None).await;
        let told = Arc::new(AtomicUsize::default());
        let counting = Arc::clone(&told);
        setup.store.on_change(Box::new(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
        }));
        let changes =
            [result("{}"), error("{}"), Change::cancel(), Change::Ask("what".into()), Change::Message("text".into())];
        let actors = changes.into_iter().cycle().take(20).map(|change| {
            let (setup, id) = (Arc::clone(&setup), first.id);
            tokio::spawn(async move {
                let mut made = 0;
                while let Some(next) = setup.get(id).await.and_then(|task| task.after(&change, at(2000)).ok()) {
                    let replaced = setup.store.replace(next, change.end().cloned(), CallChange::Keep).await;
                    made += usize::from(replaced.expect("available"));
                    if change.end().is_none() && made > 0 {
                        break;
                    }
                }
                (made, change.end().is_some())
            })
        });
        let made = futures_util::future::join_all(actors).await;
        let made: Vec<_> = made.into_iter().map(|made| made.expect("no panic")).collect();
        let ends: usize = made.iter().filter(|(_, ends)| *ends).map(|(made, _)| made).sum();
        assert_eq!(ends, 1, "in round {round}");
        let last = setup.get(first.id).await.expect("kept");
        assert!(last.state.is_terminal() && setup.end(first.id).await.is_some());
        let changes: usize = made.iter().map(|(made, _)| made).sum();
        assert_eq!((changes, told.load(Ordering::Relaxed)), (last.version as usize, changes), "in round {round}");
    }
}

#[tokio::test]
async fn a_damaged_result_is_named_by_the_id_of_its_task_and_the_rest_can_be_saved() {
    let setup = Setup::new(Some("key")).await;
    let tasks = [(), (), ()].map(|()| task(&owner()));
    for (at, task) in tasks.iter().enumerate() {
        setup.add(task, None).await;
        // The second one does not stand in the row of its task.
        let spaces = if at == 1 { SMALL } else { 0 };
        setup.change(task, result(format!("[{at}{}]", " ".repeat(spaces))), CallChange::Keep).await;
    }
    let path = setup.folder.path().join("store");
    let keys = ["other".to_owned(), "key".to_owned()];
    let whole = super::check(&path, &keys, |what: &str| panic!("{what}")).expect("readable");
    assert_eq!(whole, Read { tasks: 3, results: 3, damages: 0, refused: false });
    assert!(super::check(&path, &[], |_| ()).is_err(), "it is sealed");
    let flip = |connection: &rusqlite::Connection| {
        connection.execute("UPDATE chunks SET data = CAST(data || x'00' AS BLOB) WHERE id >> 16 = 1", ())
    };
    assert_eq!(setup.store.disk.write(flip).await, Ok(1));
    let setup = setup.again().await;
    assert_eq!(setup.store.end(&owner(), tasks[1].id).await, Err(NoEnd::Damaged));
    assert!(setup.end(tasks[2].id).await.is_some());
    let (mut lines, mut damages) = (Vec::new(), Vec::new());
    let read = super::export(&path, &keys, &mut lines, |what| damages.push(what.to_owned()));
    assert_eq!(read.expect("readable").expect("memory"), Read { tasks: 3, results: 2, damages: 1, refused: false });
    let lines = String::from_utf8(lines).expect("text");
    let results: Vec<_> = lines.lines().map(|line| line.contains("\"result\":[")).collect();
    assert_eq!(results, [true, false, true], "{lines}");
    let named = format!("the result of the task {} at place 2 cannot be read: {}", tasks[1].id, crate::disk::Damaged);
    assert_eq!(damages, [named]);
    // Nor is one that the counter of tasks does not know of, or a call that cannot go on.
    let flip = |connection: &rusqlite::Connection| {
        connection.execute("UPDATE tasks SET call = x'00' WHERE place = 3", ())?;
        connection.execute("UPDATE sqlite_sequence SET seq = 1", ())
    };
    assert_eq!(setup.store.disk.write(flip).await, Ok(1));
    let mut damages = Vec::new();
    let read = super::check(&path, &keys, |what| damages.push(what.to_owned())).expect("readable");
    assert_eq!((read, damages.len()), (Read { tasks: 3, results: 2, damages: 2, refused: false }, 2), "{damages:?}");
    let named = format!("how the task {} at place 3 goes on cannot be read: a value", tasks[2].id);
    assert!(damages[1].starts_with(&named), "{damages:?}");
    // A damaged task is not left out without a word.
    let flip = |connection: &rusqlite::Connection| connection.execute("UPDATE tasks SET record = x'00'", ());
    assert_eq!(setup.store.disk.write(flip).await, Ok(3));
    let Setup { folder, store, key } = setup;
    assert!(store.disk.close());
    drop(store);
    let (disk, _) = Disk::open(&options(&folder, key), &Arc::default()).expect("whole as a file");
    let refused = FileStore::open(disk, ROOM, 1 << 30, Clock::starting_at(0), Arc::default()).await;
    assert!(refused.expect_err("it is damaged").0.contains("damaged"));
}

#[tokio::test]
async fn the_time_of_the_file_goes_on_whatever_the_clock_of_the_system_says() {
    let setup = Setup::new(None).await;
    let day = 86_400_000_i64;
    for jump in [day, -day] {
        let now = || async {
            let seen = setup
                .store
                .disk
                .read(|connection| connection.query_row("SELECT seen FROM state", (), |row| row.get::<_, i64>(0)));
            seen.await.expect("available")
        };
        // As if an earlier process had seen another time, and a start of the machine lay between.
        let set = move |connection: &rusqlite::Connection| {
            connection.execute("UPDATE state SET seen = seen + ?1, boot = 'x'", [jump])
        };
        let before = now().await;
        let folder = tempfile::tempdir().expect("a folder");
        crate::disk::backup(setup.store.disk.path(), &folder.path().join("store")).expect("room");
        let copy = rusqlite::Connection::open(folder.path().join("store")).expect("a copy");
        set(&copy).expect("room");
        drop(copy);
        let (_, Opened { now, .. }) = Disk::open(&options(&folder, None), &Arc::default()).expect("whole");
        let passed = now.cast_signed() - (before + jump);
        assert!((0..60_000).contains(&passed), "{passed} ms");
    }
}
