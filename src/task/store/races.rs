//! The store in memory under threads that meet in it, which interleavings at its edges cannot show.

use std::{
    collections::BTreeMap,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::{MaxKept, MaxWaiters, MemoryStore, Store as _};
use crate::{
    identity::Owner,
    task::{
        Change, Outcome, Task, TaskId,
        state::tests::{at as moment, task},
    },
};

/// How often the threads meet.
const ROUNDS: usize = 300;

fn owner() -> Owner {
    Owner::Principal { upstream: "/mcp".into(), name: "ann".into() }
}

/// The answer of the store in memory, which never waits.
fn now<T>(answer: super::Answer<'_, T>) -> T {
    answer.now_or_never().expect("an answer at once")
}

#[test]
fn a_task_that_expires_while_its_owner_goes_is_removed_once() {
    for _ in 0..ROUNDS {
        let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), Arc::default());
        let tasks: Vec<Task> = (0..20).map(|_| task(&owner())).collect();
        for task in &tasks {
            now(store.insert(task.clone())).expect("room");
        }
        let meet = Barrier::new(3);
        let removed: Vec<TaskId> = thread::scope(|threads| {
            let expire = || (meet.wait(), now(store.expire(Instant::now() + Duration::from_hours(1)))).1;
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
fn of_all_who_end_a_task_at_once_one_wins_and_whoever_waits_is_woken() {
    for round in 0..ROUNDS {
        let store = MemoryStore::new(MaxKept::of_tasks(1, 1), Arc::default());
        let first = task(&owner());
        now(store.insert(first.clone())).expect("room");
        let mut watch = store.watch(&first.owner, first.id, MaxWaiters { task: 1, owner: 1, all: 1 }).expect("room");
        let meet = Barrier::new(4);
        let end = |at: usize| {
            meet.wait();
            loop {
                let current = now(store.get(&owner(), first.id)).expect("kept");
                let outcome = Outcome::Result(at.to_string().into());
                let change = if at == 0 { Change::Cancel } else { Change::Complete(outcome) };
                let Ok(next) = current.after(change, moment(2000)) else { return 0 };
                if now(store.replace(next)) {
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
                let Ok(next) = current.after(Change::Message("text".into()), moment(2000)) else { return 0 };
                now(store.replace(next));
            }
        };
        let winners: usize = thread::scope(|threads| {
            let end = &end;
            let ending: Vec<_> = (0..3).map(|at| threads.spawn(move || end(at))).collect();
            let talking = threads.spawn(talk);
            ending.into_iter().chain([talking]).map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(winners, 1, "in round {round}");
        assert!(watch.changed().now_or_never().is_some());
        assert!(now(store.get(&owner(), first.id)).is_some_and(|task| task.state.is_terminal()));
    }
}

#[test]
fn a_task_that_is_removed_while_it_changes_does_not_come_back() {
    let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), Arc::default());
    for round in 0..3000 {
        let first = task(&owner());
        now(store.insert(first.clone())).expect("room");
        let meet = Barrier::new(2);
        let remove = || {
            meet.wait();
            match round % 2 {
                0 => now(store.expire(Instant::now() + Duration::from_hours(1))),
                _ => now(store.remove_all(&owner())),
            }
        };
        let talk = || {
            meet.wait();
            while let Some(current) = now(store.get(&owner(), first.id)) {
                let last = current.version == 20;
                let change =
                    if last { Change::Complete(Outcome::Result("{}".into())) } else { Change::Message("text".into()) };
                if !now(store.replace(current.after(change, moment(2000)).expect("legal"))) || last {
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
        let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), Arc::default());
        let first = Task { keep: Duration::from_hours(2), ..task(&owner()) };
        now(store.insert(first.clone())).expect("room");
        let meet = Barrier::new(2);
        let (removed, ended) = thread::scope(|threads| {
            let expire = || (meet.wait(), now(store.expire(first.expires))).1;
            let end = || {
                meet.wait();
                now(store.replace(first.after(Change::Cancel, moment(2000)).expect("legal")))
            };
            let (expiring, ending) = (threads.spawn(expire), threads.spawn(end));
            (expiring.join().expect("no panic"), ending.join().expect("no panic"))
        });
        assert_eq!(removed.is_empty(), ended, "in round {round}");
        assert_eq!(now(store.get(&owner(), first.id)).is_some(), ended, "in round {round}");
        let later = first.expires + Duration::from_hours(3);
        assert_eq!(now(store.expire(later)).len(), usize::from(ended), "in round {round}");
    }
}

#[test]
fn pages_neither_lose_nor_repeat_a_task_that_lives_all_the_while() {
    const TASKS: u32 = 300;
    for round in 0..ROUNDS / 10 {
        let store = MemoryStore::new(MaxKept::of_tasks(usize::MAX, usize::MAX), Arc::default());
        let beginning = Instant::now();
        // Of three tasks one stays, and the others expire one after the other.
        let expires =
            |at: u32| beginning + Duration::from_secs(if at.is_multiple_of(3) { 9 * 3600 } else { at.into() });
        let tasks: Vec<Task> = (0..TASKS).map(|at| Task { expires: expires(at), ..task(&owner()) }).collect();
        for task in &tasks {
            now(store.insert(task.clone())).expect("room");
        }
        let meet = Barrier::new(2);
        let change = || {
            meet.wait();
            for at in 0..TASKS {
                now(store.expire(beginning + Duration::from_secs(at.into())));
                if at.is_multiple_of(10) {
                    now(store.insert(task(&owner()))).expect("room");
                }
            }
        };
        let list = || {
            let (mut after, mut found) = (None, BTreeMap::new());
            loop {
                let page = now(store.list(&owner(), after, 5));
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
