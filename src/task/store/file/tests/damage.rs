//! Tests of numbers and rows that no store has written: each gets a named error, and never a panic or a start without
//! end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use crate::{
    disk::{Disk, rusqlite},
    identity::Owner,
    task::{
        Change, Clock, Task,
        state::tests::{at, owner, result, task},
        store::{
            CallChange, MaxKept, NoEnd, PageOrder, Store as _,
            file::{
                FileStore, Read, check, export,
                testing::{folder, opened, options},
            },
        },
    },
};

/// Of a page, in bytes.
const PAGE: usize = 4096;
/// What a page of rows begins with.
const ROWS: u8 = 13;
const ROOM: MaxKept = MaxKept::of_tasks(usize::MAX, usize::MAX);

async fn store(folder: &TempDir) -> FileStore {
    opened(folder, ROOM, None, Some(Clock::starting_at(1000))).await
}

async fn add_ended(store: &FileStore) -> Task {
    let task = task(&owner());
    store.insert(task.clone(), None).await.expect("available").expect("room");
    let change: Change = result("{}");
    let next = task.after(&change, at(2000)).expect("not ended");
    assert_eq!(store.replace(next.clone(), change.end().cloned(), CallChange::Keep).await, Ok(true));
    next
}

async fn write(store: &FileStore, sql: &'static str) {
    store.disk.write(move |connection| connection.execute_batch(sql)).await.expect("available");
}

/// Closes a store, and returns the path of its file.
fn closed(folder: &TempDir, store: FileStore) -> PathBuf {
    assert!(store.disk.close());
    drop(store);
    folder.path().join("store")
}

/// Closes a store and returns why a start refuses its file.
async fn refused(folder: &TempDir, store: FileStore) -> String {
    closed(folder, store);
    match Disk::open(&options(folder, None), &Arc::default()) {
        Err(error) => error.to_string(),
        Ok((disk, _)) => {
            let store = FileStore::open(disk, ROOM, 1 << 30, Clock::starting_at(1000), Arc::default()).await;
            store.expect_err("it is damaged").0.to_string()
        }
    }
}

#[tokio::test]
async fn numbers_that_no_store_has_written_are_damage() {
    for sql in [
        "INSERT INTO chunks VALUES (9223372036854775807, x'00')",
        "INSERT INTO chunks VALUES (-1, x'00')",
        "UPDATE sqlite_sequence SET seq = -1 WHERE name = 'tasks'",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807 WHERE name = 'tasks'",
    ] {
        let folder = folder();
        let store = store(&folder).await;
        add_ended(&store).await;
        write(&store, sql).await;
        let why = refused(&folder, store).await;
        assert!(why.contains("damaged"), "{sql}: {why}");
    }
}

#[tokio::test]
async fn a_small_result_that_is_gone_or_was_changed_is_damage() {
    for sql in ["UPDATE tasks SET result = NULL", "UPDATE tasks SET result = CAST(result || x'00' AS BLOB)"] {
        let folder = folder();
        let first = store(&folder).await;
        let ended = add_ended(&first).await;
        write(&first, sql).await;
        assert!(first.disk.close());
        drop(first);
        assert_eq!(store(&folder).await.end(&owner(), ended.id).await, Err(NoEnd::Damaged), "{sql}");
    }
}

#[tokio::test]
async fn a_task_goes_from_the_file_with_its_result_or_not_at_all() {
    let folder = folder();
    let first = store(&folder).await;
    let ended = add_ended(&first).await;
    write(&first, "CREATE TRIGGER keeps BEFORE DELETE ON tasks BEGIN SELECT RAISE(ABORT, 'it stays'); END").await;
    assert_eq!(first.expire(ended.expires).await, Ok(vec![ended.id]));
    assert!(!first.disk.close(), "it could not be removed");
    drop(first);
    let again = store(&folder).await;
    assert!(again.end(&owner(), ended.id).await.expect("whole").is_some());
    write(&again, "DROP TRIGGER keeps").await;
    assert_eq!(again.expire(ended.expires).await, Ok(vec![ended.id]));
    assert!(again.disk.close());
    drop(again);
    assert_eq!(store(&folder).await.page(&owner(), PageOrder::ALL, 10).await.expect("available").len(), 0);
}

#[tokio::test]
async fn a_check_and_an_export_skip_places_without_tasks() {
    let folder = folder();
    let store = store(&folder).await;
    let ended = add_ended(&store).await;
    write(&store, "UPDATE sqlite_sequence SET seq = 1 << 40 WHERE name = 'tasks'").await;
    closed(&folder, store);
    let store = self::store(&folder).await;
    add_ended(&store).await;
    let path = folder.path().join("store");
    let complain = |what: &str| panic!("{what}");
    assert_eq!(
        check(&path, &[], complain).expect("readable"),
        Read { tasks: 2, results: 2, damages: 0, refused: false }
    );
    assert!(store.get(&owner(), ended.id).await.expect("available").is_some());
}

/// Has a file say, while it is open, that its notes stand where its sessions do: whatever looks for a note meets
/// damage.
fn misplace_notes(folder: &TempDir) {
    let connection = rusqlite::Connection::open(folder.path().join("store")).expect("there");
    let misplace = "
        PRAGMA writable_schema = ON;
        UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'sessions') WHERE name = 'notes';
        PRAGMA schema_version = 99";
    connection.execute_batch(misplace).expect("room");
}

#[tokio::test]
async fn tasks_whose_rows_meet_damage_expire_and_go_with_their_owner_as_others_do() {
    let folder = folder();
    let store = store(&folder).await;
    let expires = add_ended(&store).await.expires;
    add_ended(&store).await;
    misplace_notes(&folder);
    assert_eq!(store.expire(expires).await.map(|removed| removed.len()), Ok(2));
    let third = task(&owner());
    store.insert(third.clone(), None).await.expect("the rest of the file takes it").expect("room");
    assert_eq!(store.remove_all(&owner()).await, Ok(vec![third.id]), "it is not asked for again without end");
    let fourth = task(&owner());
    store.insert(fourth, None).await.expect("the rest of the file takes it").expect("room");
    assert!(store.disk.is_available());
}

/// Makes a store of 200 tasks whose places are far from the first one, changes the page of rows that has the first of
/// them, at the place where its id stands, and reads what can be read. Returns the damages that are told, too.
async fn rescued(damage: impl Fn(&mut [u8], usize)) -> (Read, Vec<String>) {
    let folder = folder();
    let far = store(&folder).await;
    write(&far, "INSERT INTO sqlite_sequence (name, seq) VALUES ('tasks', 300000)").await;
    assert!(far.disk.close());
    drop(far);
    let store = store(&folder).await;
    let first = add_ended(&store).await;
    for _ in 1..200 {
        add_ended(&store).await;
    }
    let path = closed(&folder, store);
    let mut bytes = std::fs::read(&path).expect("there");
    let id = first.id.as_bytes();
    let found = bytes.windows(id.len()).enumerate().filter(|(_, part)| part == id).map(|(at, _)| at);
    // Pages that have no rows any more may still have its bytes.
    for at in found.collect::<Vec<_>>() {
        let page = at / PAGE * PAGE;
        if bytes[page] == ROWS {
            damage(&mut bytes[page..page + PAGE], at - page);
        }
    }
    std::fs::write(&path, bytes).expect("room");
    let (mut out, mut told) = (Vec::new(), Vec::new());
    let read = export(&path, &[], &mut out, |what| told.push(what.to_owned())).expect("readable").expect("room");
    assert_eq!(out.split_inclusive(|byte| *byte == b'\n').count(), read.tasks);
    (read, told)
}

#[tokio::test]
async fn a_damaged_page_hides_its_own_tasks_only_however_far_they_are_from_the_first_place() {
    let (read, told) = rescued(|page, _| page.fill(0)).await;
    assert!((100..200).contains(&read.tasks), "{read:?}: {told:?}");
    assert!(told.len() == 1 && told[0].starts_with("the tasks at the places 1 to 3000"), "{told:?}");
}

#[tokio::test]
async fn a_damaged_task_hides_no_other_one_and_is_told_with_its_place() {
    let (read, told) = rescued(|page, at| page[at] ^= 1).await;
    assert_eq!((read.tasks, read.damages), (199, 1), "{told:?}");
    assert!(told[0].starts_with("the task at place 300001 cannot be read"), "{told:?}");
}

#[tokio::test]
async fn what_a_file_without_its_end_still_has_can_be_exported() {
    let folder = folder();
    let store = store(&folder).await;
    for _ in 0..200 {
        add_ended(&store).await;
    }
    let path = closed(&folder, store);
    let length = std::fs::metadata(&path).expect("there").len();
    std::fs::File::options().write(true).open(&path).expect("there").set_len(length * 3 / 4).expect("room");
    let refused = Disk::open(&options(&folder, None), &Arc::default()).expect_err("it is damaged").to_string();
    assert!(refused.contains("its end is missing"), "{refused}");
    let (mut out, mut told) = (Vec::new(), Vec::new());
    let read = export(&path, &[], &mut out, |what| told.push(what.to_owned())).expect("readable").expect("room");
    assert!((50..200).contains(&read.tasks) && read.results == read.tasks, "{read:?}: {told:?}");
    assert!(told[0].starts_with("its end is missing: "), "{told:?}");
    assert_eq!(check(&path, &[], |_| ()).expect("readable").tasks, read.tasks);
    let copied = crate::disk::backup(&path, &folder.path().join("copy")).expect_err("it lacks tasks").to_string();
    assert!(copied.contains("its end is missing") && copied.contains("store export"), "{copied}");
}

#[tokio::test]
async fn a_file_whose_end_stands_neither_in_it_nor_in_its_log_is_refused_and_not_copied() {
    let folders = [folder(), folder()];
    let store = store(&folders[0]).await;
    add_ended(&store).await;
    for name in ["store", "store-wal"] {
        let bytes = std::fs::read(folders[0].path().join(name)).expect("there");
        // What the log has goes on behind the place.
        let length = if name == "store" { 2 * PAGE } else { bytes.len() };
        std::fs::write(folders[1].path().join(name), &bytes[..length]).expect("room");
    }
    let [path, copy] = ["store", "copy"].map(|name| folders[1].path().join(name));
    let (mut told, mut out) = (Vec::new(), Vec::new());
    let copied = crate::disk::backup(&path, &copy).expect_err("it lacks pages").to_string();
    assert!(copied.contains("its end is missing"), "{copied}");
    let read = export(&path, &[], &mut out, |what| told.push(what.to_owned())).expect("readable").expect("room");
    assert!(told[0].starts_with("its end is missing: ") && read.tasks == 1, "{read:?}: {told:?}");
    let refused = Disk::open(&options(&folders[1], None), &Arc::default()).expect_err("it is damaged").to_string();
    assert!(refused.contains("its end is missing"), "{refused}");
}

#[tokio::test]
async fn a_version_that_is_not_that_of_the_task_is_damage() {
    let folder = folder();
    let store = store(&folder).await;
    add_ended(&store).await;
    write(&store, "UPDATE tasks SET version = version + 16").await;
    assert!(refused(&folder, store).await.contains("damaged"));
}

#[tokio::test]
async fn tasks_are_read_although_the_row_of_the_state_is_gone() {
    let folder = folder();
    let store = store(&folder).await;
    add_ended(&store).await;
    let path = closed(&folder, store);
    rusqlite::Connection::open(&path).expect("there").execute("DELETE FROM state", ()).expect("room");
    let (mut out, mut told) = (Vec::new(), Vec::new());
    let read = export(&path, &[], &mut out, |what| told.push(what.to_owned())).expect("readable").expect("room");
    assert_eq!((read.tasks, read.results), (1, 1));
    assert!(told.iter().any(|what| what.starts_with("its last batch cannot be read")), "{told:?}");
}

#[tokio::test]
async fn damage_in_a_table_that_a_file_does_not_need_keeps_nothing_from_an_export() {
    for table in ["data_keys", "keys", "sessions", "notes", "chunks"] {
        let folder = folder();
        let store = store(&folder).await;
        add_ended(&store).await;
        let path = closed(&folder, store);
        let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        let root =
            rusqlite::Connection::open(&path).expect("there").query_row(root, [table], |row| row.get::<_, u32>(0));
        let root = root.expect("a table");
        let mut bytes = std::fs::read(&path).expect("there");
        bytes[(root as usize - 1) * PAGE] ^= 8;
        std::fs::write(&path, bytes).expect("room");
        let (mut out, mut told) = (Vec::new(), Vec::new());
        let read = export(&path, &[], &mut out, |what| told.push(what.to_owned()));
        let read = read.unwrap_or_else(|refused| panic!("{table}: {refused}")).expect("room");
        assert_eq!((read.tasks, read.results), (1, 1), "{table}");
        let checked = check(&path, &[], |_| ()).unwrap_or_else(|refused| panic!("{table}: {refused}"));
        assert!(checked.damages > 0 && checked.tasks == 1, "{table}: {checked:?}");
        let is_told = told.iter().any(|what| what.contains("it is read as a file that is not sealed"));
        assert_eq!(is_told, table == "data_keys", "{told:?}");
        let Err(refused) = check(&path, &["key".to_owned()], |_| ()) else { continue };
        let said = refused.to_string();
        assert!(table == "data_keys" && !said.contains("taskgate store"), "{said}");
    }
}

#[tokio::test]
async fn a_check_finds_each_number_for_which_no_start_takes_the_file() {
    for change in [
        "UPDATE tasks SET version = version + 1",
        "UPDATE state SET seen = seen + 1",
        "UPDATE state SET since_boot = since_boot + 1",
        "UPDATE state SET batch = -1",
        "UPDATE sqlite_sequence SET seq = -5 WHERE name = 'tasks'",
        "INSERT INTO chunks VALUES (9223372036854775807, x'00')",
    ] {
        let folder = folder();
        let store = store(&folder).await;
        add_ended(&store).await;
        let path = closed(&folder, store);
        rusqlite::Connection::open(&path).expect("there").execute_batch(change).expect("room");
        let mut told = Vec::new();
        let checked = check(&path, &[], |what| told.push(what.to_owned())).expect("readable");
        assert!(checked.damages == 1 && checked.tasks == 1, "{change}: {checked:?}, {told:?}");
        let opened = Disk::open(&options(&folder, None), &Arc::default());
        let Ok((disk, _)) = opened else { continue };
        let start = FileStore::open(disk, ROOM, 1 << 30, Clock::starting_at(0), Arc::default()).await;
        start.map(drop).expect_err(change);
    }
}

/// Adds a task of `owner` that has ended with a result of so many bytes of one kind, which is more than a page has.
async fn add_large(store: &FileStore, owner: &Owner, byte: u8) -> Task {
    let task = task(owner);
    store.insert(task.clone(), None).await.expect("available").expect("room");
    let change = result(vec![byte; 5000]);
    let next = task.after(&change, at(2000)).expect("not ended");
    assert_eq!(store.replace(next.clone(), change.end().cloned(), CallChange::Keep).await, Ok(true));
    next
}

/// Has the result of the bytes `from` go on where that of the bytes `to` does.
fn mislead(path: &Path, from: u8, to: u8) {
    let mut bytes = std::fs::read(path).expect("there");
    // A page that a row goes on in begins with the number of the next one, and here there is none.
    let rest = |of: u8| {
        let is_rest = |page: &[u8]| page.starts_with(&[0, 0, 0, 0, of, of]);
        let at = bytes.chunks(PAGE).position(is_rest).expect("it needs a second page");
        u32::try_from(at + 1).expect("small").to_be_bytes()
    };
    let (right, wrong) = ([[from].as_slice(), &rest(from)].concat(), rest(to));
    let rows = bytes.chunks_mut(PAGE).find(|page| page[0] == ROWS && page.windows(5).any(|part| part == right));
    let rows = rows.expect("a page has its row");
    let at = rows.windows(5).position(|part| part == right).expect("just found");
    rows[at + 1..at + 5].copy_from_slice(&wrong);
    std::fs::write(path, bytes).expect("room");
}

#[tokio::test]
async fn a_damaged_result_goes_without_the_rows_of_others_that_its_damage_leads_to() {
    let (folder, other) = (folder(), Owner::principal("/mcp".into(), "bob".into()));
    let first = store(&folder).await;
    let (damaged, whole) = (add_large(&first, &owner(), b'a').await, add_large(&first, &other, b'b').await);
    mislead(&closed(&folder, first), b'a', b'b');
    let again = store(&folder).await;
    assert_eq!(again.remove_all(&owner()).await, Ok(vec![damaged.id]));
    // What comes next would be written where the other result stands, if that were free.
    for byte in [b'c', b'd'] {
        add_large(&again, &other, byte).await;
    }
    // The damaged work may have been given up by now.
    let _ = again.disk.close();
    drop(again);
    let connection = rusqlite::Connection::open(folder.path().join("store")).expect("there");
    let pieces = connection.query_row("SELECT count(*) FROM chunks", (), |row| row.get::<_, u32>(0));
    assert_eq!(pieces, Ok(4), "the damaged one stays");
    drop(connection);
    let end = store(&folder).await.end(&other, whole.id).await.expect("whole").expect("there");
    assert!(end.raw().is_some_and(|raw| **raw == [b'b'; 5000]));
}
