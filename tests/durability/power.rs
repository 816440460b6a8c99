//! Power loss: the files as a disk may hold them when the power goes at any call, with unsynced writes dropped, kept or
//! torn. Whatever a client knew at that moment must hold afterwards.

use std::{collections::BTreeSet, fs, path::Path};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    book::Told,
    faults::Stubborn,
    house::{House, kill},
    kit::shim::{Fault, SYNC, SYNC_TIMES, Shim},
    loss::{Dice, Record, Unsynced},
    people::{Form, Person},
    workshop::Job,
};

/// How many moments the suite looks at.
const SHARE: usize = 14;
const WAYS: [Unsynced; 3] = [Unsynced::Dropped, Unsynced::Torn, Unsynced::Kept];

/// Lets clients work on a recorded store, and returns what they were told, with the moments at which they knew.
async fn work(house: &House, shim: &Shim) -> Vec<Told> {
    let serving = house.serve().await;
    let mut clients = JoinSet::new();
    for (number, bytes) in [100, 100, 700_000, 300_000].into_iter().enumerate() {
        let form = [Form::Legacy, Form::Modern][number % 2];
        let person = Person::new(form, &format!("user-{number}"), "json");
        let (base, calls) = (serving.base.clone(), shim.counter());
        clients.spawn(async move {
            let mut all = Vec::new();
            for turn in 0..6 {
                let job = Job { key: format!("{number}.{turn}"), millis: 10, bytes };
                let mut told = Told::create(&person, &base, job).await.unwrap();
                told.known[0] = calls.get();
                // Some are left to run while the next ones are created.
                if turn % 3 < 2 {
                    told.finish(&base).await.unwrap();
                    told.known[1] = calls.get();
                }
                all.push(told);
            }
            all
        });
    }
    let all = clients.join_all().await.concat();
    serving.kill().await;
    all
}

/// Returns `count` of the places at which something was synced, or all of them if that is asked for.
fn chosen(record: &Record, count: usize, dice: &mut Dice) -> BTreeSet<usize> {
    let syncs: Vec<_> = record.syncs().into_iter().collect();
    if std::env::var_os("TASKGATE_EVERY_SYNC").is_some() {
        return syncs.into_iter().collect();
    }
    // The last one always: all that clients know is there.
    let any = (0..count).map(|_| syncs[dice.below(syncs.len())]);
    any.chain([record.len()]).collect()
}

/// Starts taskgate with the files that a power loss has left, and checks what was known before it.
async fn check(house: &House, folder: &Path, place: usize, told: &[Told]) {
    let known = |moment: u64| moment != 0 && moment <= u64::try_from(place).unwrap();
    let serving = match house.try_on(&folder.join("tasks.db")).await {
        Ok(serving) => serving,
        Err(ended) => panic!("after a power loss at call {place}: {}", ended.stderr),
    };
    for told in told.iter().filter(|told| known(told.known[0])) {
        let mut told = told.clone();
        told.ended = told.ended.filter(|_| known(told.known[1]));
        // Sessions are new after each start, and so belong to no earlier one.
        told.person = told.person.elsewhere();
        told.look(&serving.base).await.unwrap_or_else(|error| panic!("at call {place}, {}: {error:?}", told.job.key));
    }
    serving.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_knew_when_the_power_went_holds_afterwards() {
    let shim = Shim::new();
    let house = House::watched(&shim, true).await;
    let told = work(&house, &shim).await;
    let record = Record::read(&shim.record());
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (images, mut number) = (TempDir::new().unwrap(), 0);
    let mut all = Vec::new();
    for place in chosen(&record, SHARE, &mut dice) {
        let ways = if place == record.len() { &WAYS[..] } else { &WAYS[dice.below(3)..][..1] };
        all.extend(ways.iter().map(|way| (place, *way)));
    }
    for (place, way) in all {
        number += 1;
        let folder = images.path().join("image");
        record.replay(&BTreeSet::from([place]), |_, disk| disk.write_image(&folder, way, &mut Dice::new(number)));
        check(&house, &folder, place, &told).await;
    }
    eprintln!("{number} power losses in {} calls", record.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_synced_without_the_times_of_its_files() {
    let shim = Shim::new();
    let house = House::watched(&shim, false).await;
    let (serving, mut client) = (house.serve().await, Stubborn::new(Form::Modern));
    let mut counted = Vec::new();
    for kinds in [SYNC, SYNC_TIMES] {
        shim.count(kinds);
        client.live(&serving).await;
        counted.push(shim.counted());
    }
    serving.kill().await;
    assert!(counted[0] >= 2 && counted[1] == 0, "syncs of a task, and those with times: {counted:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_power_may_go_again_while_a_start_recovers() {
    let shim = Shim::new();
    let house = House::watched(&shim, true).await;
    let told = work(&house, &shim).await;
    let (record, mut dice) = (Record::read(&shim.record()), Dice::new(u64::from(std::process::id())));
    let (place, store) = (record.len(), shim.store());
    record.replay(&BTreeSet::from([place]), |_, disk| {
        disk.write_image(store.parent().unwrap(), Unsynced::Torn, &mut dice);
    });
    fs::remove_file(shim.record()).unwrap();
    let second = Record::beginning_with(store.parent().unwrap());
    let serving = house.serve().await;
    Stubborn::new(Form::Modern).live(&serving).await;
    kill(serving.binary).await;
    let second = second(&shim.record());
    let images = TempDir::new().unwrap();
    for moment in chosen(&second, SHARE / 2, &mut dice) {
        let folder = images.path().join("image");
        let way = WAYS[dice.below(3)];
        second.replay(&BTreeSet::from([moment]), |_, disk| disk.write_image(&folder, way, &mut dice));
        check(&house, &folder, place, &told).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failed_sync_has_left_in_memory_only_is_not_relied_on() {
    let shim = Shim::new();
    let house = House::watched(&shim, true).await;
    let (serving, mut client, mut told) = (house.serve().await, Stubborn::new(Form::Modern), Vec::new());
    for number in 1..8 {
        shim.fail(SYNC, number, 1, Fault::Broken);
        let mut known = client.live(&serving).await;
        known.known = [shim.calls(); 2];
        told.push(known);
    }
    shim.heal();
    serving.kill().await;
    let (record, mut dice) = (Record::read(&shim.record()), Dice::new(u64::from(std::process::id())));
    let images = TempDir::new().unwrap();
    for place in chosen(&record, SHARE, &mut dice) {
        let folder = images.path().join("image");
        let way = WAYS[dice.below(2)];
        record.replay(&BTreeSet::from([place]), |_, disk| disk.write_image(&folder, way, &mut dice));
        check(&house, &folder, place, &told).await;
    }
}
