//! The space of what has expired is used again, and no expired task comes back with a start.

use std::{fs, time::Duration};

use futures_util::future::try_join_all;

use crate::{
    book::Told,
    house::{House, Serving},
    kit::within,
    people::{Failure, Form, Person},
    workshop::Job,
};

/// How long tasks live here: long enough that all of a round are there at once on a busy machine too.
const TTL: &str = "8s";
/// Tasks of one round, and the bytes of each result.
const TASKS: usize = 8;
const BYTES: usize = 1_000_000;

/// Lets tasks live until they have expired, and returns how large the store's files became meanwhile.
async fn round(house: &House, serving: &Serving, number: usize) -> u64 {
    let person = Person::new(Form::Modern, "user", "json");
    let jobs = (0..TASKS).map(|turn| Job { key: format!("{number}.{turn}"), millis: 1, bytes: BYTES });
    let creating = try_join_all(jobs.map(|job| Told::create(&person, &serving.base, job)));
    let mut all = creating.await.unwrap();
    try_join_all(all.iter_mut().map(|told| told.finish(&serving.base))).await.unwrap();
    let files = fs::read_dir(house.store().parent().unwrap()).unwrap();
    let bytes = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    for told in &all {
        within(Duration::from_secs(20), async {
            while told.person.look(&serving.base, &told.id).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let gone = told.person.look(&serving.base, &told.id).await;
        assert!(matches!(gone, Err(Failure::Refused(_))), "{gone:?}");
    }
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_space_of_expired_tasks_is_used_again_and_they_stay_gone() {
    let house = House::with_ttl(TTL, "6s").await;
    let serving = house.serve().await;
    let mut sizes = Vec::new();
    for number in 0..3 {
        sizes.push(round(&house, &serving, number).await);
    }
    eprintln!("{sizes:?} bytes");
    // The first round stands in the log alone. Later the file has a round, and the log up to another half of one.
    assert!(sizes[2] < 2 * sizes[0], "the files grow: {sizes:?}");
    let person = Person::new(Form::Modern, "user", "json");
    let job = Job { key: "last".to_owned(), millis: 1, bytes: 100 };
    let mut last = Told::create(&person, &serving.base, job).await.unwrap();
    last.finish(&serving.base).await.unwrap();
    serving.kill().await;
    // It expires while no process runs.
    tokio::time::sleep(Duration::from_secs(9)).await;
    let serving = house.serve().await;
    let gone = person.look(&serving.base, &last.id).await;
    assert!(matches!(gone, Err(Failure::Refused(_))), "{gone:?}");
    serving.kill().await;
}
