//! `kill -9` under load, at random moments: when tasks are created, run, end, are told of, and while a start reads
//! them. `scripts/durability --kills N` does it N times; the suite, a few.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::{
    book::Told,
    house::{House, Serving, kill},
    loss::Dice,
    people::{Failure, Form, Outcome, Person},
    workshop::Job,
};

/// How often the suite kills.
const SHARE: usize = 16;
/// Clients at once.
const LANES: usize = 8;
/// Tasks of one client that have not ended, at most.
const OPEN: usize = 6;
/// Milliseconds that most calls take at most.
const LONGEST: usize = 150;
/// Milliseconds that the others take longer.
const NOTED: u64 = 2000;

/// A client, and what it was told.
struct Lane {
    person: Person,
    dice: Dice,
    number: usize,
    open: Vec<Told>,
    ended: Vec<Told>,
    /// Keys of the calls whose acknowledgement never came.
    unknown: Vec<String>,
}

impl Lane {
    fn new(seed: u64, number: usize) -> Self {
        let form = [Form::Legacy, Form::Modern][number % 2];
        let path = ["json", "sse"][number / 2 % 2];
        let person = Person::new(form, &format!("user-{number}"), path);
        let dice = Dice::new(seed + u64::try_from(number).unwrap());
        Self { person, dice, number, open: Vec::new(), ended: Vec::new(), unknown: Vec::new() }
    }

    /// Does what clients do until taskgate is killed.
    async fn live(mut self, base: String) -> Self {
        let end = self.try_to_live(&base).await;
        assert!(matches!(end, Err(Failure::Gone(_))), "{}: {end:?} before it was killed", self.number);
        self
    }

    async fn try_to_live(&mut self, base: &str) -> Outcome<()> {
        for told in &mut self.open {
            told.look(base).await?;
        }
        if !self.ended.is_empty() {
            let chosen = self.dice.below(self.ended.len());
            self.ended[chosen].look(base).await?;
        }
        loop {
            if self.open.len() < OPEN {
                let job = self.job();
                self.unknown.push(job.key.clone());
                self.open.push(Told::create(&self.person, base, job).await?);
                self.unknown.pop();
                if self.dice.below(12) == 0 {
                    self.open.last_mut().unwrap().cancel(base).await?;
                }
            }
            let chosen = self.dice.below(self.open.len());
            if self.open[chosen].look(base).await?.has_ended() {
                let told = self.open.swap_remove(chosen);
                self.ended.push(told);
            }
        }
    }

    fn job(&mut self) -> Job {
        let bytes = match self.dice.below(16) {
            0 => 1_100_000,
            1..3 => 300_000,
            _ => 100,
        };
        let key = format!("{}.{}", self.number, self.dice.below(usize::MAX));
        // Where an answer goes on is noted within a second.
        let noted = if self.dice.below(4) == 0 { NOTED } else { 0 };
        Job { key, millis: noted + u64::try_from(self.dice.below(LONGEST)).unwrap(), bytes }
    }
}

/// Lets the clients live on one process, kills it after a random time, and returns how long it took to start.
async fn live(lanes: &mut Vec<Lane>, house: &House, dice: &mut Dice) -> Duration {
    let begun = Instant::now();
    let serving = house.serve().await;
    let started = begun.elapsed();
    let mut living = JoinSet::new();
    for lane in lanes.drain(..) {
        living.spawn(lane.live(serving.base.clone()));
    }
    // Now and then until the longest calls are noted.
    let limit = if dice.below(6) == 0 { 10 * LONGEST } else { 2 * LONGEST };
    tokio::time::sleep(Duration::from_millis(u64::try_from(dice.below(limit)).unwrap())).await;
    serving.kill().await;
    while let Some(lane) = living.join_next().await {
        lanes.push(lane.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())));
    }
    started
}

/// Asks for every task, and waits for its end.
async fn settle(lane: &mut Lane, serving: &Serving) {
    for told in lane.open.iter_mut().chain(&mut lane.ended) {
        told.finish(&serving.base).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whenever_it_is_killed_no_acknowledged_task_is_lost_no_end_changes_and_no_call_runs_twice() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let kills = number("TASKGATE_KILLS").map_or(SHARE, |kills| usize::try_from(kills).unwrap());
    let seed = number("TASKGATE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    eprintln!("TASKGATE_SEED={seed}");
    let house = House::plain().await;
    let mut dice = Dice::new(seed);
    let mut lanes: Vec<_> = (0..LANES).map(|lane| Lane::new(seed, lane)).collect();
    let mut start = live(&mut lanes, &house, &mut dice).await;
    for _ in 1..kills {
        if dice.below(4) == 0 {
            // While it reads what it finds, and a little later.
            let binary = house.start();
            let limit = usize::try_from(start.as_micros()).unwrap() * 5 / 4;
            tokio::time::sleep(Duration::from_micros(u64::try_from(dice.below(limit)).unwrap())).await;
            kill(binary).await;
        } else {
            start = live(&mut lanes, &house, &mut dice).await;
        }
    }
    let serving = house.serve().await;
    let (mut counts, mut resumed) = ([0; 3], 0);
    for lane in &mut lanes {
        settle(lane, &serving).await;
        for key in &lane.unknown {
            assert!(house.workshop.runs(key) <= 1, "{key} ran twice");
        }
        for told in lane.open.iter().chain(&lane.ended) {
            told.check_runs(&house.workshop);
            let status = told.ended.as_ref().unwrap().status.as_str();
            counts[["completed", "failed", "cancelled"].iter().position(|name| *name == status).unwrap()] += 1;
            resumed += usize::from(status == "completed" && lane.person.path == "sse" && told.job.millis > NOTED);
        }
    }
    let [completed, failed, cancelled] = counts;
    eprintln!(
        "{kills} kills: {completed} tasks completed, {resumed} of them long ones on streams that can be resumed; {failed} \
         were interrupted, {cancelled} cancelled"
    );
    assert!(completed > 0, "no task has completed");
    serving.kill().await;
}
