//! Files that earlier versions wrote, as they lie in `tests/fixtures`: this version reads them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use super::{
    FileStore,
    testing::{opened, options},
};
use crate::{
    disk::{
        Disk, SavedSession, SessionWrites,
        rusqlite::{Connection, OpenFlags},
    },
    identity::Owner,
    task::{
        Change, Clock, End, State, Task, TaskId,
        state::tests::{at, result, task},
        store::{CallChange, MaxKept, PageOrder, SavedCall, Store as _},
    },
};

const ROOM: MaxKept = MaxKept::of_tasks(usize::MAX, usize::MAX);
const KEY: &str = "a key of tests, which everyone may know";
const FIXTURES: [(&str, Option<&str>); 8] = [
    ("store-format-1.db", None),
    ("store-format-1-sealed.db", Some(KEY)),
    ("store-format-2.db", None),
    ("store-format-2-sealed.db", Some(KEY)),
    ("store-format-3.db", None),
    ("store-format-3-sealed.db", Some(KEY)),
    ("store-format-4.db", None),
    ("store-format-4-sealed.db", Some(KEY)),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn id(number: u128) -> TaskId {
    Uuid::from_u128(number)
}

fn owner() -> Owner {
    Owner::principal("/mcp".into(), "ann".into())
}

fn session() -> SavedSession {
    SavedSession { id: id(9), used_at: 5, value: "a session".into() }
}

/// Writes a file as the fixtures were written. They are never written again: a new format gets new ones.
async fn write(file: &Path, key: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = opened(&folder, ROOM, key, Some(Clock::starting_at(1000))).await;
    let made = |number| Task { id: id(number), ..task(&owner()) };
    let change = async |task: &Task, change: Change| {
        let next = task.after(&change, at(2000)).expect("legal");
        store.replace(next, change.end().cloned(), CallChange::Keep).await.expect("available");
    };
    let call = |text: &'static str| Some(SavedCall(text.into()));
    for (number, call) in [(1, None), (2, None), (3, None), (4, call("a call")), (5, call("another call"))] {
        store.insert(made(number), call).await.expect("available").expect("room");
    }
    change(&made(1), result("{\"content\":[]}")).await;
    change(&made(2), result(format!("[{}]", " ".repeat(270_000)))).await;
    change(&made(3), Change::cancel()).await;
    change(&made(4), Change::Ask("what".into())).await;
    store.note(id(5), "a note".into(), Arc::new(|| ()));
    store.disk.put_session(session(), SessionWrites::default()).await.expect("available");
    store.disk.key("cursors").await.expect("available");
    assert!(store.disk.close());
    crate::disk::backup(&folder.path().join("store"), file).expect("room");
}

/// Fails where a file has anything else than [`write`] has written, at the first start and at the next one.
async fn read(file: &Path, key: Option<&str>) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(file, folder.path().join("store")).expect("the file");
    for _ in 0..2 {
        let store = opened(&folder, ROOM, key, Some(Clock::starting_at(1000))).await;
        has_all(&store, file, key).await;
        let format = |connection: &Connection| connection.pragma_query_value(None, "user_version", |row| row.get(0));
        let format: i32 = store.disk.read(format).await.expect("available");
        assert_eq!(format, 4, "older versions refuse the file by its format");
        assert!(store.disk.close());
    }
}

async fn has_all(store: &FileStore, file: &Path, key: Option<&str>) {
    let ann = owner();
    let page = store.page(&ann, PageOrder::ALL, 10).await.expect("available");
    let states: Vec<_> = page.iter().map(|(_, task)| (task.id, task.state.is_terminal())).collect();
    assert_eq!(states, [(id(1), true), (id(2), true), (id(3), true), (id(4), false), (id(5), false)], "{file:?}");
    let end = async |number| store.end(&ann, id(number)).await.expect("available");
    assert_eq!(end(1).await, Some(End::Result { raw: "{\"content\":[]}".into(), is_error: false }));
    assert_eq!(end(2).await.map(|end| end.bytes()), Some(270_002));
    assert_eq!(end(3).await, Some(End::Cancelled));
    let unfinished = store.unfinished().await.expect("available");
    let [asks, queued] = &unfinished[..] else { panic!("{unfinished:?}") };
    assert_eq!((asks.task.state, asks.task.status_message.as_deref()), (State::InputRequired, Some("what")));
    assert_eq!((&asks.call, &asks.note), (&Some(SavedCall("a call".into())), &None));
    assert_eq!((&queued.call, &queued.note), (&Some(SavedCall("another call".into())), &Some("a note".into())));
    assert_eq!(store.disk.load_sessions().await.expect("available"), [session()]);
    assert_eq!(store.seals(), key.is_some());
    let rows = |file: &Connection| file.query_row("SELECT length(id) FROM sessions", (), |row| row.get::<_, u32>(0));
    let length = store.disk.read(rows).await.expect("available");
    assert_eq!(length, if key.is_some() { 32 } else { 16 }, "a sealed file does not tell the ids of sessions");
}

#[tokio::test]
async fn a_file_of_every_format_that_was_released_is_read() {
    for (name, key) in FIXTURES {
        read(&path(name), key).await;
    }
}

#[tokio::test]
async fn a_file_of_this_version_has_what_the_fixtures_have() {
    for key in [None, Some(KEY)] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("written");
        write(&file, key).await;
        read(&file, key).await;
    }
}

#[test]
fn a_file_of_format_1_whose_saved_calls_are_damaged_is_refused_and_keeps_its_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = fs::read(path(FIXTURES[0].0)).expect("the fixture");
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'calls'";
    let root: u32 = Connection::open_with_flags(
        format!("file:{}?immutable=1", path(FIXTURES[0].0).display()),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
    )
    .and_then(|file| file.query_row(root, (), |row| row.get(0)))
    .expect("a table");
    let page = (root as usize - 1) * 4096;
    // It says that it has no rows.
    bytes[page + 3..page + 5].fill(0);
    fs::write(folder.path().join("store"), &bytes).expect("room");
    let refused = Disk::open(&options(&folder, None), &Arc::default()).expect_err("it is damaged");
    assert!(refused.to_string().contains("damaged"), "{refused}");
    assert!(fs::read(folder.path().join("store")).expect("there") == bytes, "nothing is written");
}

#[test]
fn a_sealed_fixture_is_refused_without_its_key_and_keeps_its_format() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = path(FIXTURES[1].0);
    fs::copy(&fixture, folder.path().join("store")).expect("the fixture");
    assert!(Disk::open(&options(&folder, None), &Arc::default()).is_err());
    assert!(fs::read(folder.path().join("store")).expect("there") == fs::read(fixture).expect("there"));
    let log = fs::metadata(folder.path().join("store-wal")).map_or(0, |log| log.len());
    assert_eq!(log, 0, "nothing is written");
}
