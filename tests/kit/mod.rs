//! What the tests are made of: taskgate itself, a raw MCP client, and scriptable MCP servers behind it.
#![allow(dead_code, reason = "each test file uses a part of the kit")]
#![allow(unused_imports, reason = "the same")]

mod authority;
pub(crate) mod bad;
mod child;
mod client;
mod gate;
mod held;
mod modern;
mod port;
mod process;
mod seen;
mod serving;
pub(crate) mod shim;
mod sse;
mod sse_upstream;
mod stalled;
mod steps;
mod upstream;
mod witnessed;
mod wrapped;

use std::{future::Future, time::Duration};

pub(crate) use authority::{Authority, authority};
pub(crate) use bad::BadUpstream;
pub(crate) use child::{Children, Process, Script, text_in, text_of};
pub(crate) use client::{Answer, Client, status_of};
pub(crate) use gate::Gate;
pub(crate) use held::{Held, Sse};
pub(crate) use port::Port;
pub(crate) use process::{Binary, Finished};
pub(crate) use seen::Seen;
pub(crate) use serving::serve;
pub(crate) use sse::{Event, Stream, events};
pub(crate) use sse_upstream::{Gets, Posts, SseOptions, SseUpstream};
pub(crate) use stalled::{SMALL, Stalled, TINY};
pub(crate) use upstream::{Answers, Options, Upstream};
pub(crate) use witnessed::Witnessed;
pub(crate) use wrapped::Wrapped;

/// How long a wait may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Starts a server, taskgate with its defaults in front of it, and a client in a session.
pub(crate) async fn house(upstream: impl Future<Output = Upstream>) -> (Upstream, Gate, Client) {
    let upstream = upstream.await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    (upstream, gate, client)
}

/// Waits for a future, and fails the test if it takes too long.
#[track_caller]
pub(crate) fn soon<T>(happens: impl Future<Output = T>) -> impl Future<Output = T> {
    within(PATIENCE, happens)
}

/// Waits for a future, and fails the test if it takes longer than `limit`.
#[track_caller]
pub(crate) fn within<T>(limit: Duration, happens: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        tokio::time::timeout(limit, happens)
            .await
            .unwrap_or_else(|_| panic!("{caller}: it did not happen in {limit:?}"))
    }
}

/// Asks again and again until there is an answer.
#[track_caller]
pub(crate) fn eventually<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> impl Future<Output = T> {
    soon(async move {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}
