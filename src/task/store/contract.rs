//! What every store promises, as tests that each store runs.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, Ready, ready};
use parking_lot::Mutex;

use super::{
    CallChange, KeptLimit, MaxKept, MemoryStore, PageOrder, Store,
    faulty::{Fault, FaultyStore},
    file::testing::{folder, opened},
};
use crate::{
    identity::Owner,
    task::{
        Change, Clock, End, Task, TaskId,
        state::tests::{at, result, task},
    },
};

/// Makes an empty store, whose time begins with that of the tasks of tests.
type Make = fn(MaxKept) -> BoxFuture<'static, Arc<dyn Store>>;

const ROOM: MaxKept = MaxKept::of_tasks(usize::MAX, usize::MAX);

fn memory(max: MaxKept, fault: Fault) -> Ready<Arc<dyn Store>> {
    ready(FaultyStore::new(MemoryStore::new(max, Clock::starting_at(1000), Arc::default()), fault))
}

async fn file(max: MaxKept, key: Option<&'static str>, fault: Fault) -> Arc<dyn Store> {
    let folder = folder();
    let store = opened(&folder, max, key, Some(Clock::starting_at(1000))).await;
    FaultyStore::in_folder(store, Some(folder), fault)
}

macro_rules! contract {
    ($($promise:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $promise() {
                super::$promise(|max| Box::pin(super::memory(max, super::Fault::None))).await;
            })*
        }

        mod memory_that_waits {
            $(#[tokio::test(start_paused = true)]
            async fn $promise() {
                super::$promise(|max| Box::pin(super::memory(max, super::Fault::Waits))).await;
            })*
        }

        mod file {
            $(#[tokio::test(start_paused = true)]
            async fn $promise() {
                super::$promise(|max| Box::pin(super::file(max, None, super::Fault::None))).await;
            })*
        }

        mod file_that_waits_and_is_sealed {
            $(#[tokio::test(start_paused = true)]
            async fn $promise() {
                super::$promise(|max| Box::pin(super::file(max, Some("key"), super::Fault::Waits))).await;
            })*
        }
    };
}

contract! {
    a_foreign_task_is_as_unknown_as_one_that_never_was,
    of_two_changes_to_one_version_the_first_wins,
    the_end_is_there_with_the_version_that_has_it_and_not_before,
    limits_refuse_new_tasks_and_never_drop_old_ones,
    where_the_bytes_of_results_are_used_up_new_tasks_are_refused_and_what_was_admitted_is_kept,
    pages_follow_the_order_of_creation_and_are_short_only_at_the_end,
    a_task_expires_when_it_says_and_is_told_as_removed_once,
    of_an_owner_that_goes_every_task_goes_and_no_other,
    a_change_of_a_task_that_was_removed_does_not_bring_it_back,
    every_change_and_removal_is_told_to_the_listener,
    what_expires_is_waited_for_though_an_earlier_task_comes_later,
}

fn owner(name: &str) -> Owner {
    Owner::principal("/mcp".into(), name.into())
}

async fn add(store: &dyn Store, task: &Task) {
    store.insert(task.clone(), None).await.expect("available").expect("room");
}

async fn change(store: &dyn Store, task: &Task, change: Change) -> Option<Task> {
    let next = task.after(&change, at(2000)).expect("not ended");
    store.replace(next.clone(), change.end().cloned(), CallChange::Keep).await.expect("available").then_some(next)
}

async fn is_kept(store: &dyn Store, task: &Task) -> bool {
    store.get(&task.owner, task.id).await.expect("available").is_some()
}

async fn a_foreign_task_is_as_unknown_as_one_that_never_was(make: Make) {
    let (store, task) = (make(ROOM).await, task(&owner("ann")));
    add(&*store, &task).await;
    change(&*store, &task, result("{}")).await.expect("first");
    assert!(is_kept(&*store, &task).await);
    let bob = owner("bob");
    assert_eq!(store.get(&bob, task.id).await.expect("available").map(|task| task.id), None);
    assert_eq!(store.end(&bob, task.id).await, Ok(None));
    assert_eq!(store.page(&bob, PageOrder::ALL, 10).await.expect("available").len(), 0);
    assert_eq!(store.has_any(&bob).await, Ok(false));
    assert_eq!(store.remove_all(&bob).await, Ok(Vec::new()));
    assert!(is_kept(&*store, &task).await);
}

async fn of_two_changes_to_one_version_the_first_wins(make: Make) {
    let (store, task) = (make(ROOM).await, task(&owner("ann")));
    add(&*store, &task).await;
    let first = change(&*store, &task, Change::cancel()).await.expect("first");
    assert!(change(&*store, &task, result("{}")).await.is_none());
    let kept = store.get(&task.owner, task.id).await.expect("available").expect("kept");
    assert!(kept.is(&first));
    assert_eq!(store.end(&task.owner, task.id).await, Ok(Some(End::Cancelled)));
}

async fn the_end_is_there_with_the_version_that_has_it_and_not_before(make: Make) {
    let (store, task) = (make(ROOM).await, task(&owner("ann")));
    add(&*store, &task).await;
    let end = || async { store.end(&task.owner, task.id).await.expect("available") };
    assert_eq!(end().await, None);
    let next = change(&*store, &task, Change::Message("half".into())).await.expect("first");
    assert_eq!(end().await, None);
    change(&*store, &next, result("[1]")).await.expect("first");
    assert_eq!(end().await, Some(End::Result { raw: "[1]".into(), is_error: false }));
}

async fn limits_refuse_new_tasks_and_never_drop_old_ones(make: Make) {
    let store = make(MaxKept::of_tasks(2, 3)).await;
    let tasks = [task(&owner("ann")), task(&owner("ann"))];
    for task in &tasks {
        add(&*store, task).await;
    }
    let refused = |name| store.insert(task(&owner(name)), None);
    assert_eq!(refused("ann").await, Ok(Err(KeptLimit::TasksPerOwner(2))));
    add(&*store, &task(&owner("bob"))).await;
    assert_eq!(refused("cid").await, Ok(Err(KeptLimit::Tasks(3))));
    for task in &tasks {
        assert!(is_kept(&*store, task).await);
    }
    assert_eq!(store.remove_all(&owner("ann")).await.expect("available").len(), 2);
    add(&*store, &task(&owner("cid"))).await;
}

async fn where_the_bytes_of_results_are_used_up_new_tasks_are_refused_and_what_was_admitted_is_kept(make: Make) {
    let store = make(MaxKept { tasks_per_owner: 10, tasks: 10, bytes_per_owner: 5, bytes: 8 }).await;
    let [ann, bob] = ["ann", "bob"].map(owner);
    let tasks = [task(&ann), task(&ann), task(&bob)];
    for task in &tasks {
        add(&*store, task).await;
    }
    let refused = |owner: &Owner| store.insert(task(owner), None);
    let completes = async |task: &Task| change(&*store, task, result("12345")).await.expect("kept");
    completes(&tasks[0]).await;
    assert_eq!(refused(&ann).await, Ok(Err(KeptLimit::ResultBytesPerOwner(5))));
    assert_eq!(store.full(&ann), Some(KeptLimit::ResultBytesPerOwner(5)));
    add(&*store, &task(&bob)).await;
    completes(&tasks[1]).await;
    assert_eq!(refused(&bob).await, Ok(Err(KeptLimit::ResultBytes(8))));
    completes(&tasks[2]).await;
    for task in &tasks {
        let end = store.end(&task.owner, task.id).await.expect("available").expect("ended");
        assert_eq!(end.bytes(), 5);
    }
    store.remove_all(&ann).await.expect("available");
    assert_eq!(store.full(&ann), None);
    add(&*store, &task(&ann)).await;
}

async fn pages_follow_the_order_of_creation_and_are_short_only_at_the_end(make: Make) {
    let store = make(ROOM).await;
    let tasks: Vec<Task> = (0..5).map(|_| task(&owner("ann"))).collect();
    for task in &tasks {
        add(&*store, task).await;
        add(&*store, &crate::task::state::tests::task(&owner("bob"))).await;
    }
    let pages = async |from: fn(Option<u64>) -> PageOrder| {
        let (mut last, mut found) = (None, Vec::new());
        loop {
            let page = store.page(&owner("ann"), from(last), 2).await.expect("available");
            found.extend(page.iter().map(|(_, task)| task.id));
            if page.len() < 2 {
                return found;
            }
            last = page.last().map(|(place, _)| *place);
        }
    };
    let mut created: Vec<_> = tasks.iter().map(|task| task.id).collect();
    assert_eq!(pages(|after| PageOrder::OldestFirst { after }).await, created);
    created.reverse();
    assert_eq!(pages(|before| PageOrder::NewestFirst { before }).await, created);
}

async fn a_task_expires_when_it_says_and_is_told_as_removed_once(make: Make) {
    let (store, task) = (make(ROOM).await, task(&owner("ann")));
    add(&*store, &task).await;
    assert_eq!(store.expire(task.expires - 1).await, Ok(Vec::new()));
    // It ends, and is kept from then on.
    let ended = change(&*store, &task, Change::cancel()).await.expect("first");
    assert!(ended.expires > task.expires);
    assert_eq!(store.expire(ended.expires - 1).await, Ok(Vec::new()));
    assert_eq!(store.expire(ended.expires).await, Ok(vec![task.id]));
    assert_eq!(store.expire(u64::MAX).await, Ok(Vec::new()));
    assert_eq!(store.remove_all(&task.owner).await, Ok(Vec::new()));
    assert!(!is_kept(&*store, &task).await && store.has_any(&task.owner).await == Ok(false));
}

async fn of_an_owner_that_goes_every_task_goes_and_no_other(make: Make) {
    let store = make(ROOM).await;
    let tasks = ["ann", "bob", "ann"].map(|name| task(&owner(name)));
    for task in &tasks {
        add(&*store, task).await;
    }
    let removed: BTreeSet<TaskId> = store.remove_all(&owner("ann")).await.expect("available").into_iter().collect();
    assert_eq!(removed, BTreeSet::from([tasks[0].id, tasks[2].id]));
    assert_eq!(store.has_any(&owner("ann")).await, Ok(false));
    assert!(is_kept(&*store, &tasks[1]).await);
    assert_eq!(store.expire(u64::MAX).await, Ok(vec![tasks[1].id]));
}

async fn a_change_of_a_task_that_was_removed_does_not_bring_it_back(make: Make) {
    let (store, task) = (make(ROOM).await, task(&owner("ann")));
    add(&*store, &task).await;
    store.remove_all(&task.owner).await.expect("available");
    assert!(change(&*store, &task, result("{}")).await.is_none());
    assert!(!is_kept(&*store, &task).await);
    assert_eq!(store.end(&task.owner, task.id).await, Ok(None));
    assert_eq!(store.has_any(&task.owner).await, Ok(false));
}

async fn every_change_and_removal_is_told_to_the_listener(make: Make) {
    let (store, tasks) = (make(ROOM).await, ["ann", "bob"].map(|name| task(&owner(name))));
    for task in &tasks {
        add(&*store, task).await;
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let noting = Arc::clone(&told);
    store.on_change(Box::new(move |id| noting.lock().push(id)));
    let told = || std::mem::take(&mut *told.lock());
    let next = change(&*store, &tasks[0], Change::Message("half".into())).await.expect("first");
    assert_eq!(told(), [Some(tasks[0].id)]);
    assert!(change(&*store, &tasks[0], Change::cancel()).await.is_none());
    assert_eq!(told(), [], "nothing has changed");
    change(&*store, &next, result("{}")).await.expect("first");
    store.remove_all(&tasks[0].owner).await.expect("available");
    assert_eq!(told(), [Some(tasks[0].id); 2]);
    store.expire(u64::MAX).await.expect("available");
    assert_eq!(told(), [Some(tasks[1].id)]);
}

async fn what_expires_is_waited_for_though_an_earlier_task_comes_later(make: Make) {
    let store = make(ROOM).await;
    let begun = tokio::time::Instant::now();
    add(&*store, &Task { expires: 6000, ..task(&owner("ann")) }).await;
    let waiting = Arc::clone(&store);
    let waiting = tokio::spawn(async move { waiting.next_expiry().await });
    tokio::task::yield_now().await;
    add(&*store, &Task { expires: 3000, ..task(&owner("ann")) }).await;
    assert_eq!(waiting.await.expect("no panic"), Ok(()));
    assert_eq!(begun.elapsed().as_millis(), Duration::from_secs(2).as_millis());
}
