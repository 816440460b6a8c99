//! What clients were told of their tasks, and so what must hold whatever has died since.

use std::time::{Duration, Instant};

use crate::{
    people::{Failure, Form, Outcome, Person, Seen},
    workshop::{Job, Workshop},
};

/// What the message of a task says that failed because the process ended while its call ran.
const INTERRUPTED: &str = "the process of taskgate ended while the call ran";
/// How long a task may take to end after the last start.
const PATIENCE: Duration = Duration::from_mins(1);

/// A task that was acknowledged.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) person: Person,
    pub(crate) job: Job,
    pub(crate) id: String,
    /// What was last told of it, once it had ended.
    pub(crate) ended: Option<Seen>,
    /// Whether a request to cancel it was sent.
    pub(crate) cancelled: bool,
    /// How many calls the shim had counted when a client knew of the task, and of its end.
    pub(crate) known: [u64; 2],
}

impl Told {
    /// Creates a task, and waits for the acknowledgement.
    pub(crate) async fn create(person: &Person, base: &str, job: Job) -> Outcome<Self> {
        let id = person.create(base, &job).await?;
        Ok(Self { person: person.clone(), job, id, ended: None, cancelled: false, known: [0; 2] })
    }

    /// Asks for the task, and checks that the answer agrees with all that was told before. A task that is not found has
    /// been lost.
    pub(crate) async fn look(&mut self, base: &str) -> Outcome<Seen> {
        let seen = match self.person.look(base, &self.id).await {
            Ok(seen) => seen,
            Err(Failure::Refused(why)) => panic!("{} of {} is lost: {why}", self.id, self.job.key),
            Err(gone) => return Err(gone),
        };
        if let Some(told) = &self.ended {
            assert_eq!((&seen.status, &seen.end), (&told.status, &told.end), "{}: told otherwise before", self.job.key);
        }
        self.check(&seen);
        if seen.has_ended() {
            self.ended = Some(seen.clone());
        }
        Ok(seen)
    }

    /// Checks that the rules allow what a task says.
    fn check(&self, seen: &Seen) {
        let key = &self.job.key;
        match seen.status.as_str() {
            "working" | "input_required" => {}
            "completed" => {
                let text = seen.end.as_ref().and_then(|end| end["content"][0]["text"].as_str()).unwrap_or_default();
                assert!(text == self.job.text(), "{key}: not its result: {text:.100}");
            }
            "failed" => assert!(seen.message.contains(INTERRUPTED), "{key} failed: {seen:?}"),
            "cancelled" => assert!(self.cancelled, "{key}: no client has cancelled it"),
            _ => panic!("{key}: {seen:?}"),
        }
    }

    /// Cancels the task.
    pub(crate) async fn cancel(&mut self, base: &str) -> Outcome<()> {
        self.cancelled = true;
        match self.person.cancel(base, &self.id).await {
            // It had ended.
            Err(Failure::Refused(_)) if self.person.form == Form::Legacy => Ok(()),
            Ok(()) if self.person.form == Form::Legacy => {
                self.ended = Some(Seen { status: "cancelled".to_owned(), message: String::new(), end: None });
                Ok(())
            }
            answer => answer,
        }
    }

    /// Waits until the task has ended.
    pub(crate) async fn finish(&mut self, base: &str) -> Outcome<Seen> {
        let begun = Instant::now();
        while self.ended.is_none() {
            self.look(base).await?;
            assert!(begun.elapsed() < PATIENCE, "{} has not ended", self.job.key);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.look(base).await
    }

    /// Checks how often the call of a task that has ended has run.
    pub(crate) fn check_runs(&self, workshop: &Workshop) {
        let (runs, key) = (workshop.runs(&self.job.key), &self.job.key);
        let ended = self.ended.as_ref().unwrap_or_else(|| panic!("{key} has not ended"));
        let completed = ended.status == "completed";
        assert!(runs <= 1 && (runs == 1 || !completed), "{key} ran {runs} times and is {}", ended.status);
    }
}
