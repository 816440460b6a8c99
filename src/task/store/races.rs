//! The store in memory under threads that meet in it, which interleavings at its edges cannot show.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use futures_util::FutureExt as _;

use super::{CallChange, MaxKept, MemoryStore, PageOrder, Store as _};
use crate::{
    identity::Owner,
    task::{
        Change, Clock, Task, TaskId,
        state::tests::{at as moment, result, task},
    },
};

/// How often the threads meet.
const ROUNDS: usize = 300;

fn owner() -> Owner {
    Owner::principal("/mcp".into(), "ann".into())
}

/// Returns the answer of the store in memory, which never waits.
fn now<T, E: std::fmt::Debug>(answer: super::StoreFuture<'_, T, E>) -> T {
    answer.now_or_never().expect("an answer at once").expect("memory is available")
}

fn store(max: usize) -> MemoryStore {
    MemoryStore::new(MaxKept::of_tasks(max, max), Clock::starting_at(1000), Arc::default())
}

/// Changes a task. Returns whether the change was the first to that version.
fn change(store: &MemoryStore, task: &Task, change: &Change) -> bool {
    let next = task.after(change, moment(2000)).expect("not ended");
    now(store.replace(next, change.end().cloned(), CallChange::Keep))
}

#[test]
fn a_task_that_expires_while_its_owner_goes_is_removed_once() {
    for _ in 0..ROUNDS {
        let store = store(usize::MAX);
        let tasks: Vec<Task> = (0..20).map(|_| task(&owner())).collect();
        for task in &tasks {
            now(store.insert(task.clone(), None)).expect("room");
        }
        let meet = Barrier::new(3);
        let removed: Vec<TaskId> = thread::scope(|threads| {
            let expire = || (meet.wait(), now(store.expire(u64::MAX))).1;
            let leave = || (meet.wait(), now(store.remove_all(&owner()))).1;
            let removers = [threads.spawn(expire), threads.spawn(leave), threads.spawn(leave)];
            removers.into_iter().flat_map(|remover| remover.join().expect("no panic")).collect()
        });
        let mut times = BTreeMap::new();
        for id in removed {
            *times.entry(id).or_insert(0) += 1;
        }
        assert_eq!(times, tasks.iter().map(|task| (task.id, 1)).collect());
        assert!(!now(store.has_any(&owner())));
    }
}

#[test]
fn of_all_who_end_a_task_at_once_one_wins_and_every_change_is_told() {
    for round in 0..ROUNDS {
        let store = store(1);
        let first = task(&owner());
        now(store.insert(first.clone(), None)).expect("room");
        let told = Arc::new(AtomicUsize::default());
        let counting = Arc::clone(&told);
        store.on_change(Box::new(move |_| {
            counting.fetch_add(1, Ordering::Relaxed);
        }));
        let meet = Barrier::new(4);
        let end = |at: usize| {
            meet.wait();
            loop {
                let current = now(store.get(&owner(), first.id)).expect("kept");
                if current.state.is_terminal() {
                    return 0;
                }
                let end = if at == 0 { Change::cancel() } else { result(at.to_string()) };
                if change(&store, &current, &end) {
                    return 1;
                }
            }
        };
        let talk = || {
            meet.wait();
            let mut version = 0;
            loop {
                let current = now(store.get(&owner(), first.id)).expect("kept");
                assert!(current.version >= version, "versions go back");
                version = current.version;
                if current.state.is_terminal() {
                    return 0;
                }
                change(&store, &current, &Change::Message("text".into()));
            }
        };
        let winners: usize = thread::scope(|threads| {
            let end = &end;
            let ending: Vec<_> = (0..3).map(|at| threads.spawn(move || end(at))).collect();
            let talking = threads.spawn(talk);
            ending.into_iter().chain([talking]).map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(winners, 1, "in round {round}");
        let last = now(store.get(&owner(), first.id)).expect("kept");
        assert!(last.state.is_terminal() && now(store.end(&owner(), first.id)).is_some());
        assert_eq!(told.load(Ordering::Relaxed), last.version as usize, "each change is told");
    }
}

#[test]
fn a_task_that_is_removed_while_it_changes_does_not_come_back() {
    let store = store(usize::MAX);
    for round in 0..3000 {
        let first = task(&owner());
        now(store.insert(first.clone(), None)).expect("room");
        let meet = Barrier::new(2);
        let remove = || {
            meet.wait();
            match round % 2 {
                0 => now(store.expire(u64::MAX)),
                _ => now(store.remove_all(&owner())),
            }
        };
        let talk = || {
            meet.wait();
            while let Some(current) = now(store.get(&owner(), first.id)) {
                let last = current.version == 20;
                let next = if last { result("{}") } else { Change::Message("text".into()) };
                if !change(&store, &current, &next) || last {
                    return;
                }
            }
        };
        let removed = thread::scope(|threads| {
            let (removing, talking) = (threads.spawn(remove), threads.spawn(talk));
            talking.join().expect("no panic");
            removing.join().expect("no panic")
        });
        assert_eq!(removed, [first.id], "in round {round}");
        assert!(now(store.get(&owner(), first.id)).is_none(), "it came back in round {round}");
        assert!(!now(store.has_any(&owner())) && store.holds_nothing(), "something is left in round {round}");
    }
}

#[test]
fn a_task_that_ends_as_its_ttl_is_over_is_removed_or_kept_for_as_long_as_it_says() {
    for round in 0..ROUNDS {
        let store = store(usize::MAX);
        let first = Task { keep: 7_200_000, ..task(&owner()) };
        now(store.insert(first.clone(), None)).expect("room");
        let meet = Barrier::new(2);
        let (removed, ended) = thread::scope(|threads| {
            let expire = || (meet.wait(), now(store.expire(first.expires))).1;
            let end = || {
                meet.wait();
                change(&store, &first, &Change::cancel())
            };
            let (expiring, ending) = (threads.spawn(expire), threads.spawn(end));
            (expiring.join().expect("no panic"), ending.join().expect("no panic"))
        });
        assert_eq!(removed.is_empty(), ended, "in round {round}");
        assert_eq!(now(store.get(&owner(), first.id)).is_some(), ended, "in round {round}");
        assert_eq!(now(store.expire(u64::MAX)).len(), usize::from(ended), "in round {round}");
    }
}

#[test]
fn pages_neither_lose_nor_repeat_a_task_that_lives_all_the_while() {
    const TASKS: u32 = 300;
    for round in 0..ROUNDS / 10 {
        let store = store(usize::MAX);
        // Of three tasks one stays, and the others expire one after the other.
        let expires = |at: u32| if at.is_multiple_of(3) { u64::MAX } else { at.into() };
        let tasks: Vec<Task> = (0..TASKS).map(|at| Task { expires: expires(at), ..task(&owner()) }).collect();
        for task in &tasks {
            now(store.insert(task.clone(), None)).expect("room");
        }
        let meet = Barrier::new(2);
        let change = || {
            meet.wait();
            for at in 0..TASKS {
                now(store.expire(at.into()));
                if at.is_multiple_of(10) {
                    now(store.insert(task(&owner()), None)).expect("room");
                }
            }
        };
        let list = || {
            let (mut after, mut found) = (None, BTreeMap::new());
            loop {
                let page = now(store.page(&owner(), PageOrder::OldestFirst { after }, 5));
                for (_, task) in page.iter().take(4) {
                    *found.entry(task.id).or_insert(0) += 1;
                }
                if page.len() <= 4 {
                    return found;
                }
                after = Some(page[3].0);
            }
        };
        thread::scope(|threads| {
            let changing = threads.spawn(change);
            meet.wait();
            while !changing.is_finished() {
                let found = list();
                assert!(found.values().all(|times| *times == 1), "listed twice in round {round}");
                let left_out = tasks.iter().step_by(3).find(|task| !found.contains_key(&task.id));
                assert!(left_out.is_none(), "left out in round {round}");
            }
        });
    }
}
