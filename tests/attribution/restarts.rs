//! Kills in the middle of the calls: taskgate keeps its tasks in a file, and afterwards each is there for its owner alone.

use std::{collections::HashMap, fs, sync::Arc, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    BOUND, Caller, Form, all_call, all_end,
    book::{Book, tags},
    callers, configuration, judge,
    kit::{Binary, Port},
    plan::{self, Chance},
    rests,
};

/// How often taskgate is killed.
const KILLS: u64 = 3;
/// How many calls run at once: others wait for their turn when taskgate is killed.
const MAX_RUNNING: &str = "[tasks]\nmax_running = 4\n";
/// What is said of a call whose outcome is not known.
const UNKNOWN: &str = "process of taskgate ended while the call ran";

/// taskgate with its tasks in a file.
struct House {
    folder: TempDir,
    running: Binary,
    port: Port,
    /// The endpoint, the same after each start.
    url: String,
}

impl House {
    async fn configured(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.toml"), config).unwrap();
        let port = Port::free();
        let running = Self::start(&folder, &port);
        let url = running.url().await;
        Self { folder, running, port, url }
    }

    fn start(folder: &TempDir, port: &Port) -> Binary {
        let [config, store] = ["config.toml", "store.db"].map(|file| folder.path().join(file));
        let (config, store) = (config.to_str().unwrap(), store.to_str().unwrap());
        Binary::start(&["serve", "--config", config, "--listen", &port.address(), "--store", store], &[])
    }

    /// Kills taskgate, and starts it again at the same address.
    async fn restart(self) -> Self {
        self.running.signal(Signal::KILL);
        self.running.end().await;
        let running = Self::start(&self.folder, &self.port);
        let url = running.url().await;
        assert_eq!(url, self.url);
        Self { running, ..self }
    }
}

impl Caller {
    fn tasks(&self) -> Vec<(String, String)> {
        match self {
            Self::Legacy(caller) => caller.tasks(),
            Self::Sessionless(caller) => caller.tasks(),
        }
    }

    async fn outcome(&self, task: &str, tag: &str) -> [Value; 3] {
        match self {
            Self::Legacy(caller) => caller.outcome(task, tag).await,
            Self::Sessionless(caller) => caller.outcome(task, tag).await,
        }
    }

    async fn asks_for(&self, task: &str) -> Value {
        match self {
            Self::Legacy(caller) => caller.asks_for(task).await,
            Self::Sessionless(caller) => caller.asks_for(task).await,
        }
    }
}

/// Checks that every task has an end, the one that it had before if it had one, and that it is its own.
async fn settle(callers: &[Caller], book: &Book, ends: &mut HashMap<String, [Value; 3]>) {
    for caller in callers {
        for (task, tag) in caller.tasks() {
            let Ok(outcome) = timeout(BOUND, caller.outcome(&task, &tag)).await else {
                book.fault(format!("the task of {tag} has not ended"));
                continue;
            };
            let [status, message, result] = &outcome;
            let is_its_own = tags(&result.to_string()).any(|told| told == tag);
            match status.as_str() {
                Some("completed") if !is_its_own => book.fault(format!("{tag} ended with {result}")),
                Some("completed") => book.count("kept"),
                Some("failed") if message.to_string().contains(UNKNOWN) => book.count("unknown"),
                _ => {}
            }
            let first = ends.entry(task).or_insert_with(|| outcome.clone());
            if *first != outcome {
                book.fault(format!("{tag} had ended with {first:?}, and now with {outcome:?}"));
            }
        }
    }
}

/// Checks that a caller of the next owner finds the newest task of each caller no more than one that never was.
async fn hide(callers: &[Caller], book: &Book) {
    for (nth, caller) in callers.iter().enumerate() {
        let Some((task, tag)) = caller.tasks().pop() else { continue };
        // As many as each owner has.
        let stranger = &callers[(nth + 3) % callers.len()];
        let answer = stranger.asks_for(&task).await;
        if answer["error"]["code"] != json!(-32602) {
            book.fault(format!("{} asked for the task of {tag} and got {answer}", stranger.name()));
        }
    }
}

async fn every_task_outlives_kills(form: Form) {
    let (seed, book) = (plan::seed(), Arc::<Book>::default());
    eprintln!("TASKGATE_SEED={seed}");
    if form == Form::Resumable {
        book.may_repeat();
    }
    let config = configuration(form, &book).await.replace("[tasks]\n", MAX_RUNNING);
    let mut house = House::configured(&config).await;
    let callers = callers(&house.url, form, &book).await;
    let (mut chance, mut failures, mut ends) = (Chance::of(seed, "kills"), Vec::new(), HashMap::new());
    for nth in 0..KILLS {
        let killed = CancellationToken::new();
        // taskgate notes within a second where an answer goes on.
        let (least, more) = if form == Form::Resumable { (800, 1200) } else { (200, 800) };
        let after = Duration::from_millis(least + chance.below(more));
        let calling = all_call(&callers, form, &book, seed ^ (nth << 32), &killed);
        let stopping = async {
            sleep(after).await;
            killed.cancel();
        };
        // The callers stop first, so that none takes the end of its connection for an answer.
        failures.extend(tokio::join!(calling, stopping).0);
        house = house.restart().await;
        for caller in &callers {
            if let Caller::Legacy(caller) = caller {
                caller.comes_back();
            }
        }
        settle(&callers, &book, &mut ends).await;
        hide(&callers, &book).await;
    }
    failures.extend(all_end(&callers).await);
    failures.extend(rests(&house.running.admin().await, form).await);
    judge(form, &book, failures, &["asked", "tasks", "kept"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_front_of_a_server_with_sessions_has_its_own_end_after_kills_and_its_owner_alone_finds_it() {
    every_task_outlives_kills(Form::Stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_front_of_a_server_without_sessions_has_its_own_end_after_kills_and_its_owner_alone_finds_it() {
    every_task_outlives_kills(Form::Modern).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_front_of_processes_has_its_own_end_after_kills_and_its_owner_alone_finds_it() {
    every_task_outlives_kills(Form::Processes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_whose_answer_is_resumed_has_its_own_end_after_kills_and_its_owner_alone_finds_it() {
    every_task_outlives_kills(Form::Resumable).await;
}
