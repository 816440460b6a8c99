//! `dialect/legacy/list.rs`: a cursor is accepted only if it was given out, and only from its owner.
//!
//! In an input `{a0}` and `{a1}` stand for the first and the second cursor that ann was given, `{b0}` and `{b1}` for
//! bob's.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use taskgate::{
    dialect::legacy::{Legacy, NoResult, Reply},
    flow::Capacity,
    identity::Owner,
    limit::Totals,
    task::{
        Clock, Engine, Limits, MaxWaiters, State, Task,
        store::{MaxKept, MemoryStore, Store as _},
    },
    wire::{Message, code, object::quote},
};
use tokio::runtime::Runtime;
use uuid::Uuid;

/// So that every owner has three pages.
const TASKS: usize = 120;

thread_local! {
    static HOUSE: House = House::new();
}

/// Lists the tasks with the input as the cursor, for both owners.
pub fn check(input: &[u8]) {
    HOUSE.with(|house| house.check(&String::from_utf8_lossy(input)));
}

struct House {
    runtime: Runtime,
    legacy: Legacy,
    /// Each owner with the cursors that were given out.
    owners: Vec<(Owner, Vec<String>)>,
}

impl House {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let waiters = MaxWaiters { task: 1, owner: 1, all: 1 };
        let turns = Totals {
            running_per_owner: 1,
            running: 1,
            queued_per_owner: 1,
            queued: 1,
            queued_bytes_per_owner: 1,
            queued_bytes: 1,
        };
        let limits = Limits { waiters, turns, capacity: Capacity::new(1, 1) };
        let max = MaxKept { tasks_per_owner: TASKS, tasks: 2 * TASKS, bytes_per_owner: 1, bytes: 1 };
        let clock = Clock::start();
        let store = Arc::new(MemoryStore::new(max, clock, Arc::default()));
        let engine = runtime.block_on(async { Engine::start(Arc::clone(&store) as _, clock, limits, Arc::default()) });
        let mut house = Self { runtime, legacy: Legacy::new(engine, &[7; 32]), owners: Vec::new() };
        for name in ["ann", "bob"] {
            let owner = Owner::principal("/mcp".into(), name.into());
            for _ in 0..TASKS {
                house.runtime.block_on(store.insert(task(&owner), None)).expect("memory").expect("room");
            }
            let (mut cursors, mut seen) = (Vec::new(), 0);
            loop {
                let params = cursors.last().map_or("{}".to_owned(), |last: &String| with(last));
                let page = house.list(&owner, &params).expect("a page");
                seen += page["tasks"].as_array().map_or(0, Vec::len);
                match page["nextCursor"].as_str() {
                    Some(cursor) => cursors.push(cursor.to_owned()),
                    None => break,
                }
            }
            assert_eq!((seen, cursors.len()), (TASKS, 2), "pages leave tasks out or have them twice");
            house.owners.push((owner, cursors));
        }
        house
    }

    fn check(&self, input: &str) {
        let mut cursor = input.to_owned();
        for (letter, (_, cursors)) in ["a", "b"].into_iter().zip(&self.owners) {
            for (at, given) in cursors.iter().enumerate() {
                cursor = cursor.replace(&format!("{{{letter}{at}}}"), given);
            }
        }
        for (owner, cursors) in &self.owners {
            let page = self.list(owner, &with(&cursor));
            assert_eq!(page.is_some(), cursors.contains(&cursor), "{owner:?} with the cursor {cursor:?}");
        }
    }

    /// Returns a page; `None` where the cursor is refused.
    fn list(&self, owner: &Owner, params: &str) -> Option<Value> {
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{params}}}"#);
        let request = Message::parse(Bytes::from(request)).expect("a request");
        match self.runtime.block_on(self.legacy.list(owner, &request)) {
            Ok(Reply::Ready(answer)) => {
                let answer: Value = serde_json::from_slice(&answer.into_bytes()).expect("JSON");
                Some(answer["result"].clone())
            }
            Ok(Reply::Wait(_)) => panic!("a list that waits"),
            Err(NoResult::Error(error)) if error.code == code::INVALID_PARAMS => None,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn with(cursor: &str) -> String {
    format!(r#"{{"cursor":{}}}"#, quote(cursor))
}

fn task(owner: &Owner) -> Task {
    Task {
        id: Uuid::new_v4(),
        owner: owner.clone(),
        tool: "export".into(),
        state: State::Working,
        status_message: None,
        created_at: 0,
        last_updated_at: 0,
        ttl: 86_400_000,
        keep: 86_400_000,
        shortens: false,
        poll_interval: 1000,
        expires: u64::MAX,
        version: 0,
    }
}
