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
    task::{Change, Outcome, Task, TaskId, state::tests::task},
};

/// How often the threads meet.
const ROUNDS: usize = 300;

fn owner() -> Owner {
    Owner::Principal { upstream: 0, name: "ann".into() }
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
                let Ok(next) = current.after(change, 2000) else { return 0 };
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
                let Ok(next) = current.after(Change::Message("text".into()), 2000) else { return 0 };
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
