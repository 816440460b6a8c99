//! `cancel_job` and `list_jobs`, and what is known of a job.

use std::{sync::Arc, time::Duration};

use super::{
    JobTools, arguments,
    words::{self, JobFacts},
};
use crate::{
    identity::{Owner, OwnerKind},
    limit::FailedLookup,
    observe::events,
    session::Caller,
    task::{End, Ending, Missing, NotCancelled, PageOrder, State, Task, TaskId},
    upstream::{JobToolNames, KnownTools},
    wire::{Message, excerpt, ids, legacy, object::quote},
};

/// How many tasks are read at once, how many in all, and how many that have ended are told.
const PAGE: usize = 100;
const MAX_READ: usize = 1000;
const MAX_ENDED: usize = 20;
/// How many jobs that run are told.
const MAX_RUNNING: usize = 50;

/// What a model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The words.
    pub text: String,
    /// Whether what it asked for was not done.
    pub is_error: bool,
}

impl Told {
    pub(super) fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false }
    }

    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: true }
    }

    /// Returns it as a raw `CallToolResult`: text alone, which every host shows its model.
    #[must_use]
    pub fn to_raw(&self) -> String {
        let is_error = if self.is_error { r#","isError":true"# } else { "" };
        format!(r#"{{"content":[{{"type":"text","text":{}}}]{is_error}}}"#, quote(&self.text))
    }
}

/// Where a model asks about jobs.
#[derive(Clone, Debug)]
pub struct JobPlace {
    /// Who asks.
    pub caller: Arc<Caller>,
    /// What the server's lists have told of its tools; `None` where there is no session with it.
    pub tools: Option<Arc<KnownTools>>,
    /// The names of the tools for jobs there.
    pub names: JobToolNames,
}

/// What holds back the answer to one call, whose caller may guess ids.
#[derive(Debug, Default)]
pub(super) struct HeldBack(Option<FailedLookup>);

impl HeldBack {
    /// Waits until the answer may go.
    pub(super) async fn over(self) {
        if let Some(FailedLookup::Slowed(by, _permit)) = self.0 {
            tokio::time::sleep(by).await;
        }
    }
}

impl JobTools {
    /// Returns whether a call names a job that `owner` has, as far as the store tells.
    pub async fn names_job(&self, owner: &Owner, request: &Message) -> bool {
        for id in arguments::ids_of(request) {
            if self.engine.may_have(owner, id).await {
                return true;
            }
        }
        false
    }

    /// Cancels the job that a call names.
    pub(super) async fn cancel(&self, place: &JobPlace, request: &Message) -> Told {
        let mut held = HeldBack::default();
        let told = self.cancelled(place, request, &mut held).await;
        held.over().await;
        told
    }

    async fn cancelled(&self, place: &JobPlace, request: &Message, held: &mut HeldBack) -> Told {
        let given = match arguments::job_id(request) {
            Ok(id) => id,
            Err(why) => return Told::failed(format!("Nothing was cancelled: {why}.")),
        };
        let (caller, id) = (&place.caller, ids::parse_task(&given));
        match self.engine.look(&caller.owner, id).await {
            Ok(task) => {
                let facts = self.facts(place, &task);
                match self.engine_cancel(caller, id).await {
                    Ok(()) => Told::done(facts.cancels()),
                    Err(NotCancelled::HasEnded(Ending::Cancelled)) => Told::done(facts.cancelled()),
                    Err(NotCancelled::HasEnded(Ending::Error)) => Told::done(facts.had_failed()),
                    Err(NotCancelled::HasEnded(Ending::Result | Ending::ErrorResult)) => Told::done(facts.has_ended()),
                    Err(NotCancelled::Missing(why)) => self.missing(place, &given, &why, held),
                }
            }
            Err(why) => self.missing(place, &given, &why, held),
        }
    }

    async fn engine_cancel(&self, caller: &Caller, id: TaskId) -> Result<(), NotCancelled> {
        self.engine.cancel(&caller.owner, &caller.who, id).await.map(drop)
    }

    /// Lists the last jobs of a caller: those that run, and those that have ended.
    pub(super) async fn list(&self, place: &JobPlace) -> Told {
        let owner = &place.caller.owner;
        if let OwnerKind::Anyone { .. } = owner.kind() {
            return Told::failed(format!(
                "taskgate does not know who asks, so it lists no jobs. The answer to a call that became a job has told its \
                 id: call {}.",
                words::wait_call_of_any(place.names)
            ));
        }
        let (mut running, mut ended, mut before, mut read, mut untold) = (Vec::new(), Vec::new(), None, 0, 0);
        let are_all_read = loop {
            let order = PageOrder::NewestFirst { before };
            let Ok(page) = self.engine.page(owner, order, PAGE).await else { return Told::failed(UNAVAILABLE) };
            for (at, task) in &page {
                before = Some(*at);
                if task.was_given_up() {
                    continue;
                }
                let (list, max) = match task.state {
                    State::Ended(_) => (&mut ended, MAX_ENDED),
                    State::Working | State::InputRequired => (&mut running, MAX_RUNNING),
                };
                if list.len() < max { list.push(self.line(place, task)) } else { untold += 1 }
            }
            read += page.len();
            if page.len() < PAGE || read >= MAX_READ {
                break page.len() < PAGE;
            }
        };
        if running.is_empty() && ended.is_empty() {
            return Told::done("No job of yours runs, and none has a result that can still be read.");
        }
        let lines: Vec<_> = running.into_iter().rev().chain(ended.into_iter().rev()).collect();
        let least = if are_all_read { "" } else { "at least " };
        let more = if untold > 0 { format!("\nand {least}{untold} more.") } else { String::new() };
        let next = format!("\nTo get a result, call {}.", words::wait_call_of_any(place.names));
        Told::done(lines.join("\n") + &more + &next)
    }

    /// Returns the line of a list about a job.
    fn line(&self, place: &JobPlace, task: &Task) -> String {
        let facts = self.facts(place, task);
        match task.state {
            State::Working => facts.line(),
            State::InputRequired => facts.ended_line("waits for an answer of the user"),
            State::Ended(Ending::Result) => facts.ended_line("is done; its result can be read"),
            State::Ended(Ending::ErrorResult | Ending::Error) => facts.ended_line("has failed"),
            State::Ended(Ending::Cancelled) => facts.ended_line("was cancelled"),
        }
    }

    /// Answers for an id that has no job of the caller, or where the store does not tell. A caller that guesses ids
    /// waits for it, once for each call.
    pub(super) fn missing(&self, place: &JobPlace, given: &str, why: &Missing, held: &mut HeldBack) -> Told {
        let id = match why {
            Missing::NotFound(id) => id,
            Missing::Unavailable => return Told::failed(UNAVAILABLE),
            Missing::Damaged => return Told::failed(words::damaged(&excerpt(given))),
        };
        let lookup = place.caller.account.failed_lookup();
        self.observer.emit(events::LookupFailed {
            who: &place.caller.who,
            task: Some(*id),
            repeated: lookup.repeated(),
        });
        match lookup {
            FailedLookup::Answered => {}
            slowed @ FailedLookup::Slowed(..) => {
                held.0.get_or_insert(slowed);
            }
            FailedLookup::Refused(limit) => return Told::failed(limit.to_string()),
        }
        let listed = !matches!(place.caller.owner.kind(), OwnerKind::Anyone { .. });
        Told::failed(words::unknown(&excerpt(given), listed.then_some(place.names)))
    }

    /// Returns what is known of a job.
    pub(super) fn facts(&self, place: &JobPlace, task: &Task) -> JobFacts {
        let JobPlace { caller, tools, names } = place;
        // Where the call does not run here, only the age of its task is known.
        let age = || Duration::from_millis(self.engine.wall_now().saturating_sub(task.created_at));
        let elapsed = self.engine.run_time(task.id).unwrap_or_else(age);
        JobFacts {
            id: task.id,
            tool: (&*task.tool).into(),
            title: tools.as_ref().map_or_else(|| (&*task.tool).into(), |tools| tools.title(&task.tool)),
            elapsed,
            progress: task.status_message.as_deref().filter(|text| !text.is_empty()).map(Into::into),
            estimate: self.estimate(caller, &task.tool),
            names: *names,
            given_up: task.was_given_up(),
        }
    }

    /// Returns what a model is told of a job that gave no result.
    pub(super) fn without_result(facts: &JobFacts, end: &End) -> Told {
        match end {
            End::Error { raw } => {
                let raw = String::from_utf8_lossy(raw);
                let why = legacy::error_message(&raw).unwrap_or_else(|| raw.clone().into_owned());
                Told::failed(facts.failed(excerpt(&why).trim_end_matches('.')))
            }
            End::Cancelled | End::Result { .. } => Told::failed(facts.cancelled()),
        }
    }
}

pub(super) const UNAVAILABLE: &str =
    "taskgate cannot reach its store of jobs now. Make the same call again in a moment.";
