//! Tests of what meets in one batch: the disk has the first change of a task when memory does not yet, and not what was
//! given up.

use std::sync::{Arc, mpsc};

use crate::{
    disk::{Operation, rusqlite::Connection},
    task::{
        Change, Clock,
        state::tests::{at, error, owner, result, task},
        store::{
            CallChange, MaxKept, PageOrder, SavedCall, Store as _,
            file::testing::{folder, opened},
        },
    },
};

#[tokio::test]
async fn of_two_ends_in_one_batch_the_first_is_made_though_another_change_is_refused_between_them() {
    let folder = folder();
    let open = || opened(&folder, MaxKept::of_tasks(usize::MAX, usize::MAX), None, Some(Clock::starting_at(1000)));
    let store = Arc::new(open().await);
    let task = task(&owner());
    store.insert(task.clone(), None).await.expect("available").expect("room");
    let next = |change: &Change| task.after(change, at(2000)).expect("not ended");
    let replace = |change: &Change| store.replace(next(change), change.end().cloned(), CallChange::Keep);
    // Nothing is written until all of this waits.
    let (go, wait) = mpsc::channel();
    store.disk.submit(Operation::new(move |_| Ok(wait.recv()), drop)).expect("room");
    let (made, cancelled) = (result("{}"), next(&Change::cancel()));
    let first = replace(&made);
    let refusing = Arc::clone(&store);
    let refuse = move |_: &Connection| {
        while refusing.disk.submit(Operation::new(|_| Ok(()), drop)).is_ok() {}
        // The queue has no room for it.
        drop(refusing.replace(cancelled.clone(), Change::cancel().end().cloned(), CallChange::Keep));
        Ok(())
    };
    store.disk.submit(Operation::new(refuse, drop)).expect("room");
    let second = replace(&error("{}"));
    go.send(()).expect("it waits");
    assert_eq!((first.await, second.await), (Ok(true), Ok(false)));
    assert_eq!(store.end(&owner(), task.id).await.expect("available").as_ref(), made.end());
    assert!(store.disk.close());
    drop(store);
    let again = open().await;
    assert_eq!(again.end(&owner(), task.id).await.expect("available").as_ref(), made.end());
}

#[tokio::test]
async fn a_note_that_meets_the_end_of_its_task_in_one_batch_does_not_stay() {
    for comes_first in [true, false] {
        let folder = folder();
        let room = MaxKept::of_tasks(usize::MAX, usize::MAX);
        let store = opened(&folder, room, None, Some(Clock::starting_at(1000))).await;
        let task = task(&owner());
        store.insert(task.clone(), Some(SavedCall("call".into()))).await.expect("available").expect("room");
        // Nothing is written until all of this waits.
        let (go, wait) = mpsc::channel();
        store.disk.submit(Operation::new(move |_| Ok(wait.recv()), drop)).expect("room");
        let note = || (1..=2).for_each(|_| store.note(task.id, "a note".into(), Arc::new(|| ())));
        let end: Change = result("{}");
        let replace =
            || store.replace(task.after(&end, at(2000)).expect("not ended"), end.end().cloned(), CallChange::Keep);
        let ending = if comes_first {
            note();
            replace()
        } else {
            let ending = replace();
            note();
            ending
        };
        go.send(()).expect("it waits");
        assert_eq!(ending.await, Ok(true));
        store.disk.write(|_| Ok(())).await.expect("available");
        let count = |rows: &Connection| rows.query_row("SELECT count(*) FROM notes", (), |row| row.get::<_, u32>(0));
        assert_eq!(store.disk.read(count).await, Ok(0), "{comes_first}");
    }
}

#[tokio::test]
async fn a_task_whose_caller_has_given_up_while_the_disk_hung_is_left_out_of_the_next_batch() {
    let folder = folder();
    let room = MaxKept::of_tasks(usize::MAX, usize::MAX);
    let store = opened(&folder, room, None, Some(Clock::starting_at(1000))).await;
    // Nothing else is written until this has waited.
    let (go, wait) = mpsc::channel();
    store.disk.submit(Operation::new(move |_| Ok(wait.recv()), drop)).expect("room");
    let kept = task(&owner());
    drop(store.insert(task(&owner()), None));
    let inserting = store.insert(kept.clone(), None);
    go.send(()).expect("it waits");
    inserting.await.expect("available").expect("room");
    let count = |rows: &Connection| rows.query_row("SELECT count(*) FROM tasks", (), |row| row.get::<_, u32>(0));
    assert_eq!(store.disk.read(count).await, Ok(1));
    let found = store.page(&owner(), PageOrder::ALL, 10).await.expect("available");
    assert_eq!(found.iter().map(|(_, task)| task.id).collect::<Vec<_>>(), [kept.id]);
    assert_eq!(store.tasks().index.lock().all().count(), 1);
}
