//! Whose a message is: callers of several owners, of both revisions, make calls that end in every way, in front of a
//! server that ends them in every way. What happens to a call follows from a seed. `TASKGATE_SEED` chooses another one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../kit/mod.rs"]
mod kit;

mod book;
#[path = "../modern/client.rs"]
#[allow(dead_code, reason = "these tests use a part of it")]
mod client;
mod ear;
mod legacy;
mod modern;
mod over_http;
mod over_modern;
mod over_stdio;
mod plan;
mod restarts;
mod resumable;
mod run;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use book::Book;
use ear::Ear;
use http::Method;
use kit::{Client, Gate};
use legacy::Legacy;
use modern::Sessionless;
use over_http::OverHttp;
use plan::{Chance, Plan};
use serde_json::json;
use tokio::{
    sync::RwLock,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// What is in front of the server, and how it says what is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Over HTTP, on the stream that answers the call.
    Stream,
    /// Over HTTP, on the stream that answers the call, which can be resumed.
    Resumable,
    /// Over HTTP, on the GET stream of the session.
    Listener,
    /// Over HTTP+SSE, on the one stream of the session.
    Sse,
    /// Over HTTP, in front of a server of revision 2026-07-28.
    Modern,
    /// Over stdio, with a process for each session.
    Processes,
    /// Over stdio, with one process for all sessions.
    Shared,
}

impl Form {
    pub(crate) fn is_stdio(self) -> bool {
        matches!(self, Self::Processes | Self::Shared)
    }

    /// Returns how many calls a client makes one after the other.
    fn calls(self) -> usize {
        match self {
            // These take longer.
            Self::Resumable => 3,
            Self::Shared => 5,
            _ => 7,
        }
    }

    pub(crate) fn is_shared(self) -> bool {
        self == Self::Shared
    }
}

/// How many owners there are. Each has a client with a session, and two without.
const OWNERS: usize = 4;
/// How many calls a client makes at once, at most.
const AT_ONCE: usize = 2;
/// How long anything may take on a machine with other work: a call, the end of a task, the end of what is left.
const BOUND: Duration = Duration::from_secs(20);

const CONFIG: &str = r#"
[server]
admin = "127.0.0.1:0"
session_idle = "1500ms"
[auth]
mode = "header"
header = "x-user"
trusted_peers = ["127.0.0.1"]
[tasks]
task_after = "80ms"
poll_interval = "50ms"
timeout = "3s"
input_timeout = "1s"
[[upstream]]
"#;

#[derive(Clone)]
enum Caller {
    Legacy(Arc<Legacy>),
    Sessionless(Arc<Sessionless>),
}

impl Caller {
    fn name(&self) -> &str {
        match self {
            Self::Legacy(caller) => &caller.ear.name,
            Self::Sessionless(caller) => &caller.ear.name,
        }
    }

    async fn call(&self, plan: &Plan) {
        match self {
            Self::Legacy(caller) => caller.call(plan).await,
            Self::Sessionless(caller) => caller.call(plan).await,
        }
    }

    async fn ends(&self) {
        match self {
            Self::Legacy(caller) => Arc::clone(caller).ends().await,
            Self::Sessionless(caller) => caller.ends().await,
        }
    }
}

async fn callers(url: &str, form: Form, book: &Arc<Book>) -> Vec<Caller> {
    let mut callers = Vec::new();
    for owner in 0..OWNERS {
        let http = || Client::new(url).with("x-user", &format!("owner-{owner}"));
        let ear = |kind: &str| Ear { book: Arc::clone(book), form, name: format!("{owner}{kind}") };
        let able = json!({ "elicitation": {}, "sampling": {} });
        let of_session = if owner == 0 { json!({}) } else { able.clone() };
        if form == Form::Modern {
            // It has no sessions.
            callers.push(Caller::Sessionless(Arc::new(Sessionless::new(ear("B"), http(), able.clone()))));
        } else {
            callers.push(Caller::Legacy(Legacy::connect(ear("L"), http(), of_session).await));
        }
        callers.push(Caller::Sessionless(Arc::new(Sessionless::new(ear("A"), http(), able))));
        callers.push(Caller::Sessionless(Arc::new(Sessionless::new(ear("U"), http(), json!({})))));
    }
    callers
}

/// Makes all calls of all callers, or those that have begun when taskgate is about to be killed. Returns what failed.
async fn all_call(
    callers: &[Caller],
    form: Form,
    book: &Arc<Book>,
    seed: u64,
    killed: &CancellationToken,
) -> Vec<String> {
    let turns = Arc::new(RwLock::new(()));
    let lanes = callers.iter().flat_map(|caller| (0..AT_ONCE).map(move |lane| (caller.clone(), lane)));
    let calling = lanes.map(|(caller, lane)| {
        let (turns, book, killed) = (Arc::clone(&turns), Arc::clone(book), killed.clone());
        let calls = async move {
            let mut chance = Chance::of(seed, &format!("{}/{lane}", caller.name()));
            for _ in 0..form.calls() {
                let plan = Plan::next(&mut chance, caller.name(), form);
                sleep(plan.pause).await;
                let (_together, _alone);
                if plan.alone {
                    _alone = turns.write().await;
                    // Of the calls that were given up, some still run.
                    let _ = timeout(plan.pause * 5, book.rests()).await;
                } else {
                    _together = turns.read().await;
                }
                if timeout(BOUND, caller.call(&plan)).await.is_err() {
                    book.fault(format!("this call has not ended: {plan:?}"));
                }
            }
        };
        tokio::spawn(async move { killed.run_until_cancelled(calls).await })
    });
    let calling: Vec<_> = calling.collect();
    let mut failures = Vec::new();
    for call in calling {
        failures.extend(call.await.err().map(|error| error.to_string()));
    }
    failures
}

/// Waits until every task has ended, and ends the sessions. Returns what has not ended in time.
async fn all_end(callers: &[Caller]) -> Vec<String> {
    let mut failures = Vec::new();
    for caller in callers {
        if timeout(BOUND, caller.ends()).await.is_err() {
            failures.push(format!("a task of {} has not ended", caller.name()));
        }
    }
    failures
}

/// Returns the gauges that are not yet those of a taskgate with nothing to do.
async fn busy(admin: &str, form: Form) -> BTreeMap<String, String> {
    let admin = Client::new(&format!("{admin}/metrics"));
    let text = admin.send(Method::GET, "").await.text().to_owned();
    let idle = ["sessions", "pooled_sessions", "sessionless_requests", "parked_calls", "tasks_live", "question_bytes"];
    // A shared process is kept for a while.
    let children = (form == Form::Processes).then_some("children");
    let gauges = idle.into_iter().chain(children).map(|name| format!("taskgate_{name}"));
    let values = gauges.filter_map(|name| {
        let value = text.lines().find_map(|line| line.strip_prefix(&*name)?.strip_prefix(' '))?;
        (value != "0").then(|| (name.clone(), value.to_owned()))
    });
    values.collect()
}

/// Returns it as a failure if taskgate does not come to rest in time.
async fn rests(admin: &str, form: Form) -> Option<String> {
    let until = Instant::now() + BOUND;
    let mut left = busy(admin, form).await;
    while !left.is_empty() && Instant::now() < until {
        sleep(Duration::from_millis(20)).await;
        left = busy(admin, form).await;
    }
    (!left.is_empty()).then(|| format!("taskgate is still busy: {left:?}"))
}

/// Starts a server, and returns the configuration of taskgate in front of it.
async fn configuration(form: Form, book: &Arc<Book>) -> String {
    let server = match form {
        Form::Stream | Form::Resumable | Form::Listener | Form::Modern => {
            format!("url = {:?}", OverHttp::start(form, book).await)
        }
        Form::Sse => {
            // Half of the seeds have taskgate find it out.
            let transport = ["auto", "sse"][usize::from(plan::seed() % 2 == 1)];
            format!("url = {:?}\ntransport = {transport:?}", OverHttp::start(form, book).await)
        }
        Form::Processes | Form::Shared => {
            let command = json!(over_stdio::start(book).await);
            format!("command = {command}\nshared = {}", form.is_shared())
        }
    };
    format!("{CONFIG}{server}\n")
}

/// Fails the test where something failed, or something never happened.
fn judge(form: Form, book: &Book, mut failures: Vec<String>, happens: &[&str]) {
    let (seed, happened) = (plan::seed(), book.counts());
    failures.extend(book.faults());
    eprintln!("{form:?}: {happened:?}");
    assert!(failures.is_empty(), "with TASKGATE_SEED={seed}:\n{}", failures.join("\n"));
    for what in happens {
        assert!(happened.contains_key(what), "with TASKGATE_SEED={seed} no call was one of {what:?}: {happened:?}");
    }
}

async fn every_message_is_for_its_caller(form: Form) {
    let (seed, book) = (plan::seed(), Arc::<Book>::default());
    eprintln!("TASKGATE_SEED={seed}");
    let gate = Gate::configured(&configuration(form, &book).await).await;
    let callers = callers(&gate.url, form, &book).await;
    let mut failures = all_call(&callers, form, &book, seed, &CancellationToken::new()).await;
    failures.extend(all_end(&callers).await);
    failures.extend(rests(gate.admin.as_ref().unwrap(), form).await);
    let happens = ["asked", "results", "tasks", "cancelled", "answered"];
    // A shared process may have every question refused.
    judge(form, &book, failures, &happens[..happens.len() - usize::from(form.is_shared())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_on_the_stream_of_a_call_reaches_the_caller_of_that_call_alone() {
    every_message_is_for_its_caller(Form::Stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_on_a_stream_that_was_resumed_reaches_the_caller_of_that_call_alone() {
    every_message_is_for_its_caller(Form::Resumable).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_on_a_get_stream_reaches_the_caller_alone_in_whose_call_it_is_asked() {
    every_message_is_for_its_caller(Form::Listener).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_on_the_one_stream_of_a_session_reaches_the_caller_alone_whose_call_it_is_about() {
    every_message_is_for_its_caller(Form::Sse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_without_sessions_says_and_asks_reaches_the_caller_of_that_call_alone() {
    every_message_is_for_its_caller(Form::Modern).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_process_of_a_session_says_reaches_the_caller_alone_whose_call_it_works_on() {
    every_message_is_for_its_caller(Form::Processes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_shared_process_says_reaches_no_caller_if_it_may_be_for_one_without_a_session() {
    every_message_is_for_its_caller(Form::Shared).await;
}
