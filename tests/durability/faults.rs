//! Every write and sync fails once: in the life of a task, and in a start. Nothing acknowledged is lost, the process
//! goes on, and the next task finds a disk that works.

use std::{collections::BTreeSet, fs, time::Duration};

use tempfile::TempDir;

use crate::{
    book::Told,
    house::{House, Serving, copy_files},
    kit::shim::{CHANGES, Fault, READ, Shim},
    people::{Failure, Form, Person},
    workshop::Job,
};

/// Enough for two chunks.
const BYTES: usize = 300_000;
/// How often a client tries again before the test fails.
const TRIES: usize = 400;

/// A client that tries again while the store does not answer.
pub(crate) struct Stubborn {
    person: Person,
    turns: usize,
}

impl Stubborn {
    pub(crate) fn new(form: Form) -> Self {
        Self { person: Person::new(form, "user", "json"), turns: 0 }
    }

    /// Lets a task live from its creation to its end, and returns what was told of it.
    pub(crate) async fn live(&mut self, serving: &Serving) -> Told {
        let mut told = self.create(serving).await;
        for _ in 0..TRIES {
            match told.finish(&serving.base).await {
                Ok(_) => return told,
                Err(why) => Self::pause(why).await,
            }
        }
        panic!("{} cannot be read", told.job.key)
    }

    async fn create(&mut self, serving: &Serving) -> Told {
        for _ in 0..TRIES {
            self.turns += 1;
            let job = Job { key: self.turns.to_string(), millis: 5, bytes: BYTES };
            match Told::create(&self.person, &serving.base, job).await {
                Ok(told) => return told,
                Err(why) => Self::pause(why).await,
            }
        }
        panic!("no task can be created any more")
    }

    async fn pause(why: Failure) {
        assert!(matches!(why, Failure::Unavailable(_)), "a disk that fails is named: {why:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns some numbers up to `most`, or all of them if that is asked for.
fn share(most: u64, step: usize) -> BTreeSet<u64> {
    let all = std::env::var_os("TASKGATE_EVERY_CALL").is_some();
    (1..=most).step_by(if all { 1 } else { step }).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_in_the_life_of_a_task_fails_once_and_nothing_acknowledged_is_lost() {
    for form in [Form::Legacy, Form::Modern] {
        let shim = Shim::new();
        let house = House::watched(&shim, false).await;
        let (mut client, serving) = (Stubborn::new(form), house.serve().await);
        shim.count(CHANGES);
        let mut all = vec![client.live(&serving).await];
        let calls = shim.counted();
        assert!(calls > 4, "a task takes only {calls} calls");
        for number in share(calls, 24) {
            for fault in [Fault::Broken, Fault::Full, Fault::Short] {
                shim.fail(CHANGES, number, 1, fault);
                all.push(client.live(&serving).await);
                shim.heal();
            }
        }
        let failed = all.len();
        serving.kill().await;
        let serving = house.serve().await;
        for told in &mut all {
            told.person = client.person.elsewhere();
            told.look(&serving.base).await.unwrap();
            told.check_runs(&house.workshop);
        }
        eprintln!("{failed} lives, {calls} calls each");
        serving.kill().await;
    }
}

/// What a start finds: files, and the tasks in them.
struct Found {
    files: TempDir,
    tasks: Vec<Told>,
}

impl Found {
    /// Fails one call of a start, and checks that the next start finds everything. Returns whether there was such a
    /// call.
    async fn fail(&self, kinds: u64, number: u64, shim: &Shim, house: &House) -> bool {
        let folder = house.store().parent().unwrap();
        fs::remove_dir_all(folder).unwrap();
        fs::create_dir(folder).unwrap();
        copy_files(self.files.path(), folder);
        let (mut client, mut tasks) = (Stubborn::new(Form::Modern), self.tasks.clone());
        shim.fail(kinds, number, 1, Fault::Broken);
        let started = house.start().listens_or_ends().await;
        let reached = shim.failed() > 0;
        shim.heal();
        match started {
            Ok((binary, url)) => {
                let serving = Serving::at(binary, &url);
                tasks.push(client.live(&serving).await);
                serving.kill().await;
            }
            Err(ended) => {
                assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
                assert!(ended.stderr.contains("tasks.db") && !ended.stderr.contains("panicked"), "{}", ended.stderr);
            }
        }
        let serving = house.serve().await;
        for told in &mut tasks {
            told.look(&serving.base).await.unwrap();
        }
        client.live(&serving).await;
        serving.kill().await;
        reached
    }
}

/// Fails each call of these kinds in a start once: of one that finds nothing, and of one that finds what a kill has
/// left. It always finds the same, and so makes the same calls.
async fn fail_each_call_of_a_start(kinds: u64) {
    let shim = Shim::new();
    let house = House::watched(&shim, false).await;
    let nothing = Found { files: TempDir::new().unwrap(), tasks: Vec::new() };
    let (mut client, mut tasks) = (Stubborn::new(Form::Modern), Vec::new());
    for _ in 0..2 {
        let serving = house.serve().await;
        tasks.push(client.live(&serving).await);
        serving.kill().await;
    }
    let killed = Found { files: TempDir::new().unwrap(), tasks };
    copy_files(house.store().parent().unwrap(), killed.files.path());
    for found in [nothing, killed] {
        let mut number = 1;
        while found.fail(kinds, number, &shim, &house).await {
            let all = std::env::var_os("TASKGATE_EVERY_CALL").is_some();
            number += match found.tasks.len() {
                _ if all => 1,
                // The last of them make the file one that a start takes.
                0 => 3,
                _ => 1 + number / 4,
            };
        }
        eprintln!("the fault moved through {number} calls of a start that finds {} tasks", found.tasks.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_write_and_sync_of_a_start_fails_once_and_the_next_start_finds_everything() {
    fail_each_call_of_a_start(CHANGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_read_of_a_start_fails_once_and_the_next_start_finds_everything() {
    fail_each_call_of_a_start(READ).await;
}
