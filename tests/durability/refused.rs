//! A sync fails after its frames were written. What was refused then is no task after a kill, and the next start takes
//! the log.

use taskgate::{
    disk::rusqlite::{Connection, OpenFlags},
    task::store::file::{self, Read},
};

use crate::{
    book::Told,
    house::{House, Serving},
    kit::shim::{Fault, SYNC, Shim},
    people::{Failure, Form, Person},
    workshop::Job,
};

/// The bytes of a key that takes many frames.
const LARGE: usize = 400_000;

fn job(key: &str) -> Job {
    Job { key: key.to_owned(), millis: 5, bytes: 100 }
}

async fn is_refused(person: &Person, serving: &Serving, job: Job) {
    let refused = Told::create(person, &serving.base, job).await.map(|told| told.id);
    assert!(matches!(refused, Err(Failure::Unavailable(_))), "{refused:?}");
}

async fn keep(person: &Person, serving: &Serving, key: &str) -> Told {
    let mut told = Told::create(person, &serving.base, job(key)).await.unwrap();
    told.finish(&serving.base).await.unwrap();
    told
}

/// Returns how many tasks a start would find, in a file in which all is well.
fn kept(house: &House) -> usize {
    let Read { tasks, damages, .. } = file::check(house.store(), &[], |what| eprintln!("{what}")).unwrap();
    assert_eq!(damages, 0);
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_was_refused_as_its_sync_failed_is_no_task_after_a_kill() {
    for count in [1, u64::MAX] {
        let shim = Shim::new();
        let house = House::watched(&shim, false).await;
        let serving = house.serve().await;
        let person = Person::new(Form::Legacy, "user", "json");
        keep(&person, &serving, "before").await;
        shim.fail(SYNC, 1, count, Fault::Broken);
        is_refused(&person, &serving, job("refused")).await;
        serving.kill().await;
        shim.heal();
        assert_eq!(kept(&house), 1, "a call was refused and is a task, after {count} failures");
        let serving = house.serve().await;
        keep(&person.elsewhere(), &serving, "after").await;
        assert_eq!(house.workshop.runs("refused"), 0);
        serving.kill().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_fail_one_after_the_other_while_a_backup_reads_leave_a_log_that_a_start_takes() {
    let shim = Shim::new();
    let house = House::watched(&shim, false).await;
    let serving = house.serve().await;
    let person = Person::new(Form::Legacy, "user", "json");
    keep(&person, &serving, "before").await;
    let backup = Connection::open_with_flags(house.store(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    backup.execute_batch("BEGIN; SELECT * FROM state").unwrap();
    // The log cannot begin anew while that reads.
    keep(&person, &serving, "between").await;
    for parts in [3, 2, 1, 0] {
        shim.fail(SYNC, 1, 1, Fault::Broken);
        is_refused(&person, &serving, job(&"x".repeat(1 + parts * LARGE))).await;
        shim.heal();
        if parts == 3 {
            keep(&person, &serving, "after the first").await;
        }
    }
    serving.kill().await;
    drop(backup);
    assert_eq!(kept(&house), 3);
    house.serve().await.kill().await;
}
