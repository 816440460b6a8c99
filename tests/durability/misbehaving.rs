//! Disks that are full, gone or slow for a while. taskgate says so, goes on with what needs no disk, and recovers by
//! itself.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{
    book::Told,
    house::{House, Serving},
    kit::{
        Client, eventually,
        shim::{CHANGES, Fault, GROW, READ, Shim},
        within,
    },
    people::{Failure, Form, Person},
    workshop::Job,
};

/// How long it may take to notice that the disk works again.
const SOON: Duration = Duration::from_secs(15);

fn job(key: &str, millis: u64, bytes: usize) -> Job {
    Job { key: key.to_owned(), millis, bytes }
}

/// Returns the status of `/readyz`.
async fn ready(serving: &Serving) -> u16 {
    let admin = serving.binary.admin().await;
    let admin = admin.split_whitespace().next().unwrap();
    Client::new(&format!("{}/readyz", admin.trim_end_matches('/'))).send(http::Method::GET, "").await.status.as_u16()
}

/// Creates tasks until one is acknowledged.
async fn created(person: &Person, serving: &Serving, key: &str) -> Told {
    let mut turn = 0;
    within(SOON, async {
        loop {
            turn += 1;
            match Told::create(person, &serving.base, job(&format!("{key}.{turn}"), 5, 100)).await {
                Ok(told) => return told,
                Err(Failure::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(other) => panic!("{other:?}"),
            }
        }
    })
    .await
}

/// Creates tasks with results of a megabyte until the disk is full, and returns those that were acknowledged.
async fn fill(person: &Person, serving: &Serving) -> Vec<Told> {
    let mut all = Vec::new();
    for turn in 0.. {
        assert!(turn < 100, "the disk does not become full");
        match Told::create(person, &serving.base, job(&format!("fill.{turn}"), 20, 1_000_000)).await {
            Ok(told) => all.push(told),
            Err(Failure::Unavailable(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    all
}

/// Waits until each of the tasks has ended, and the same after a kill.
async fn all_end(house: &House, serving: Serving, all: &mut [Told], restart: impl AsyncFnOnce(&House) -> Serving) {
    for told in all.iter_mut() {
        within(2 * SOON, async {
            while let Err(why) = told.finish(&serving.base).await {
                assert!(matches!(why, Failure::Unavailable(_)), "{why:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    serving.kill().await;
    let serving = restart(house).await;
    for told in all {
        told.person = told.person.elsewhere();
        told.look(&serving.base).await.unwrap();
        told.check_runs(&house.workshop);
    }
    serving.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_the_system_does_not_let_grow_ends_no_process() {
    let house = House::plain().await;
    let limited = ["sh", "-c", "ulimit -f 4096; exec \"$@\"", "sh"];
    let serving = Serving::of(house.start_by(&limited, house.store(), &[])).await;
    let person = Person::new(Form::Modern, "user", "json");
    let mut all = fill(&person, &serving).await;
    assert_eq!(ready(&serving).await, 503);
    serving.kill().await;
    let serving = house.serve().await;
    for told in &mut all {
        told.person = told.person.elsewhere();
        told.look(&serving.base).await.unwrap();
    }
    serving.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_fails_for_a_while_is_named_and_running_tasks_end_when_it_works_again() {
    for (kinds, fault) in [(CHANGES, Fault::Broken), (GROW, Fault::Full), (CHANGES | READ, Fault::Broken)] {
        let shim = Shim::new();
        let house = House::watched(&shim, false).await;
        let serving = house.serve().await;
        let person = Person::new(Form::Modern, "user", "json");
        let mut all = vec![created(&person, &serving, "before").await];
        all[0].finish(&serving.base).await.unwrap();
        all.push(Told::create(&person, &serving.base, job("running", 2000, 600_000)).await.unwrap());
        assert_eq!(ready(&serving).await, 200);
        shim.fail_all(kinds, fault);
        // Overwriting does not grow a file, so a few may still fit.
        let mut turn = 0;
        let refused = within(SOON, async {
            loop {
                turn += 1;
                match Told::create(&person, &serving.base, job(&format!("full.{turn}"), 5, 100)).await {
                    Ok(told) => all.push(told),
                    Err(refused) => return refused,
                }
            }
        })
        .await;
        assert!(matches!(refused, Failure::Unavailable(_)), "{refused:?}");
        assert_eq!(ready(&serving).await, 503);
        // What is in memory is told all the same, and plain calls pass.
        let seen = all[0].look(&serving.base).await.unwrap();
        assert_eq!(seen.status, "completed");
        let plain = Person::new(Form::Legacy, "user", "json");
        plain.call(&serving.base, &job("plain", 0, 100)).await.unwrap();
        // The running call ends meanwhile; its end cannot be kept, so it must not be told.
        eventually(async || house.workshop.has_answered("running").then_some(())).await;
        // A try to tidy the store fails as well, about once a second; the end is tried much sooner.
        let failed = shim.failed();
        eventually(async || (shim.failed() > failed).then_some(())).await;
        assert_eq!(all[1].look(&serving.base).await.unwrap().status, "working");
        shim.heal();
        all.push(created(&person, &serving, "after").await);
        assert_eq!(ready(&serving).await, 200);
        assert!(shim.failed() > 0);
        all_end(&house, serving, &mut all, async |house| house.serve().await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_small_file_system_fills_up_and_works_again_without_a_restart_when_there_is_room() {
    let dir = TempDir::new().unwrap();
    let mounted = dir.path().join("small");
    std::fs::create_dir(&mounted).unwrap();
    let script = "mount -t tmpfs -o size=64m none \"$1\" && head -c 56000000 /dev/zero >\"$1/ballast\" && echo mounted && exec sleep 600";
    let mut command = tokio::process::Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).arg(&mounted);
    let mut space = command.stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true).spawn().unwrap();
    let mut said = [0; 8];
    let read = tokio::io::AsyncReadExt::read_exact(space.stdout.as_mut().unwrap(), &mut said).await;
    if read.is_err() {
        eprintln!("skipped: this system lets no user mount a file system");
        return;
    }
    let holder = space.id().unwrap().to_string();
    let runner = ["nsenter", "--target", &holder, "--user", "--mount", "--preserve-credentials", "--"];
    let (house, store) = (House::plain().await, mounted.join("tasks.db"));
    let start = async |house: &House| Serving::of(house.start_by(&runner, &store, &[])).await;
    let serving = start(&house).await;
    let person = Person::new(Form::Modern, "user", "json");
    let mut all = fill(&person, &serving).await;
    assert!(all.len() > 1, "{} tasks fit", all.len());
    assert_eq!(ready(&serving).await, 503);
    std::fs::remove_file(format!("/proc/{holder}/root{}/ballast", mounted.display())).unwrap();
    all.push(created(&person, &serving, "after").await);
    all_end(&house, serving, &mut all, start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_disk_delays_no_plain_call_no_poll_and_is_shared_by_all_that_wait() {
    let shim = Shim::new();
    let house = House::watched(&shim, false).await;
    let serving = house.serve().await;
    let person = Person::new(Form::Modern, "user", "json");
    let mut known = created(&person, &serving, "before").await;
    known.finish(&serving.base).await.unwrap();
    shim.delay(400, 0);
    let begun = Instant::now();
    let create = |turn: usize| {
        let (person, base) = (person.clone(), serving.base.clone());
        async move { Told::create(&person, &base, job(&format!("slow.{turn}"), 5, 100)).await.unwrap() }
    };
    let mut creating: tokio::task::JoinSet<_> = (0..32).map(create).collect();
    let plain = Person::new(Form::Legacy, "user", "json");
    plain.call(&serving.base, &job("warm", 0, 100)).await.unwrap();
    let mut turns = Vec::new();
    for turn in 0..20 {
        // Something is always to be written.
        creating.spawn(create(32 + turn));
        let asked = Instant::now();
        plain.call(&serving.base, &job(&format!("plain.{turn}"), 0, 100)).await.unwrap();
        known.look(&serving.base).await.unwrap();
        turns.push(asked.elapsed());
    }
    turns.sort_unstable();
    // On a busy machine one or two may take long for another reason.
    let long = turns[turns.len() - 3];
    assert!(long < Duration::from_millis(350), "a call or a poll took {long:?} on a disk whose syncs take 400 ms");
    let mut all = creating.join_all().await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "52 tasks were created in {took:?}: they do not share syncs");
    all_end(&house, serving, &mut all, async |house| house.serve().await).await;
}
