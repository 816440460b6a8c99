//! `wait_for_job`: waits for jobs of one caller, whichever dialect it speaks.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::select_all;
use serde_json::value::RawValue;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    JobTools, arguments,
    heartbeat::notification,
    jobs::{HeldBack, JobPlace, Told, UNAVAILABLE},
};
use crate::{
    limit::Rated,
    task::{End, Missing, State, Task, TaskId, Watch},
    upstream::JobTool,
    wire::{
        Asks, Message, excerpt, ids,
        legacy::question_text,
        object::{Members, quote},
        params::given_token,
    },
};

/// How often a client is told that a job still runs whose tool has no `heartbeat`.
const BEAT: Duration = Duration::from_secs(15);
/// How many bytes of results one answer about several jobs has.
const MAX_RESULTS: usize = 16 << 20;

/// A question of a job's server that the caller can be asked.
#[derive(Clone, Debug)]
pub struct OpenQuestion {
    /// The job.
    pub job: TaskId,
    /// The question.
    pub id: Uuid,
    /// The server's request.
    pub request: Message,
}

/// One call that waits.
#[derive(Debug)]
pub struct Wait {
    tools: Arc<JobTools>,
    place: JobPlace,
    jobs: Vec<Job>,
    watches: Vec<Watch>,
    until: Instant,
    /// The progress that the client is told, if it gave a token.
    progress: Option<WaitProgress>,
}

/// The progress of one call that waits.
#[derive(Debug)]
struct WaitProgress {
    /// The raw token.
    token: Box<str>,
    /// How often the client was told.
    count: u64,
    /// What was told last.
    told: String,
    every: Duration,
    beat_at: Instant,
}

/// One job that is waited for.
#[derive(Debug)]
struct Job {
    /// The id as it was given.
    given: String,
    id: TaskId,
    seen: Result<Arc<Task>, Missing>,
}

impl JobTools {
    /// Takes a call of a tool for jobs, and returns what is to be waited for.
    ///
    /// # Errors
    /// What the model is told, where there is nothing to wait for.
    pub async fn ask(self: &Arc<Self>, place: &JobPlace, request: &Message, tool: JobTool) -> Result<Wait, Told> {
        let counted = place.caller.account.count(Rated::TaskMethod);
        counted.map_err(|limit| Told::failed(limit.to_string()))?;
        match tool {
            JobTool::Cancel => Err(self.cancel(place, request).await),
            JobTool::List => Err(self.list(place).await),
            JobTool::Wait => Wait::begin(self, place, request).await,
        }
    }
}

impl Wait {
    /// Begins to wait for the jobs that a call names.
    ///
    /// # Errors
    /// What the model is told where it cannot wait.
    pub(super) async fn begin(tools: &Arc<JobTools>, place: &JobPlace, request: &Message) -> Result<Self, Told> {
        let refused = |why: &dyn std::fmt::Display| Told::failed(format!("Nothing was waited for: {why}."));
        let asked = arguments::wait(request).map_err(|why| refused(&why))?;
        let token = given_token(request).map_err(|error| refused(&error.message))?;
        let (owner, who) = (&place.caller.owner, &place.caller.who);
        let (mut jobs, mut watches) = (Vec::new(), Vec::new());
        for given in asked.ids {
            let Some(id) = ids::parse(&given) else {
                let id = TaskId::nil();
                jobs.push(Job { given, id, seen: Err(Missing::NotFound(id)) });
                continue;
            };
            let job = Job { given, id, seen: tools.engine.poll(owner, id, who).await.map(|polled| polled.task) };
            // Only a job that runs takes room. `is_over` looks at it again before anything waits, so that no end is missed.
            if job.runs() {
                let watch = tools.engine.watch(owner, id);
                watches.push(watch.map_err(|limit| Told::failed(format!("limit reached: {limit}; call again later")))?);
            }
            jobs.push(job);
        }
        let policy = &place.caller.upstream.policy;
        let beats = jobs.iter().filter_map(|job| policy.tool(&job.seen.as_ref().ok()?.tool).heartbeat);
        let (now, every) = (Instant::now(), beats.min().unwrap_or(BEAT));
        Ok(Self {
            tools: Arc::clone(tools),
            place: place.clone(),
            jobs,
            watches,
            until: now + asked.at_most,
            progress: token.map(|token| WaitProgress {
                token,
                count: 0,
                told: String::new(),
                every,
                beat_at: now + every,
            }),
        })
    }

    /// Returns the jobs.
    #[must_use]
    pub fn jobs(&self) -> Vec<TaskId> {
        self.jobs.iter().map(|job| job.id).collect()
    }

    /// Looks at the jobs. Returns whether there is nothing more to wait for.
    pub async fn is_over(&mut self) -> bool {
        // Asked before the jobs are looked at: those that end with the process have ended by then.
        let stops = self.watches.iter().any(Watch::is_stopped);
        for job in &mut self.jobs {
            if job.runs() {
                job.seen = self.tools.engine.look(&self.place.caller.owner, job.id).await;
            }
        }
        stops || !self.jobs.iter().any(Job::runs) || Instant::now() >= self.until
    }

    /// Returns the open questions that the caller can be asked.
    #[must_use]
    pub fn questions(&self) -> Vec<OpenQuestion> {
        let (caller, engine) = (&self.place.caller, &self.tools.engine);
        let running = self.jobs.iter().filter(|job| job.runs());
        let open = running.flat_map(|job| {
            let questions = engine.questions(&caller.owner, job.id).into_iter();
            questions.map(|(id, request)| OpenQuestion { job: job.id, id, request })
        });
        open.filter(|open| Asks::of(&open.request).is_ok_and(|asks| caller.client.can_be_asked(asks))).collect()
    }

    /// Returns the notification of progress that is due; `None` where the client gave no token, or there is nothing new
    /// to tell and it is not time yet.
    #[must_use]
    pub fn progress(&mut self) -> Option<Bytes> {
        let progress = self.progress.as_mut()?;
        let runs = |job: &&Job| job.runs();
        let job = self.jobs.iter().find(runs)?;
        let task = job.seen.as_ref().ok()?;
        let news = format!("{:?}{:?}", task.state, task.status_message);
        let is_due = Instant::now() >= progress.beat_at;
        if !is_due && (news == progress.told || task.status_message.is_none()) {
            return None;
        }
        progress.told = news;
        progress.beat_at = Instant::now() + progress.every;
        progress.count += 1;
        let text = self.tools.facts(&self.place, task).progress();
        let others = self.jobs.iter().filter(runs).count() - 1;
        let text = if others == 0 { text } else { format!("{text}; and {others} more") };
        Some(notification(&progress.token, &progress.count.to_string(), &text))
    }

    /// Waits until a job may have changed, there is progress to be told, or the time is over. Only where a job runs.
    pub async fn pause(&mut self) {
        // A client without a token is not told, so no beat is due.
        let next = self.progress.as_ref().map_or(self.until, |progress| self.until.min(progress.beat_at));
        let changes = self.watches.iter_mut().map(|watch| Box::pin(watch.changed()));
        tokio::select! {
            _ = select_all(changes) => {}
            () = tokio::time::sleep_until(next) => {}
        }
    }

    /// Returns the raw `CallToolResult`: the result of a job as its server gave it, or words.
    pub async fn answer(self) -> Bytes {
        let mut held = HeldBack::default();
        let answer = self.in_full(&mut held).await;
        held.over().await;
        answer
    }

    async fn in_full(&self, held: &mut HeldBack) -> Bytes {
        if let [job] = &self.jobs[..] {
            return match self.outcome(job, held).await {
                Outcome::Result(raw, _) => raw,
                Outcome::Told(told) => told.to_raw().into(),
            };
        }
        let (mut content, mut failures, mut bytes) = (Vec::new(), 0, 0);
        for job in &self.jobs {
            match self.outcome(job, held).await {
                Outcome::Told(told) => {
                    failures += usize::from(told.is_error);
                    content.push(text(&told.text));
                }
                Outcome::Result(raw, is_error) => {
                    failures += usize::from(is_error);
                    let id = &job.given;
                    if let Some(parts) = contents_within(&raw, bytes + raw.len()) {
                        bytes += raw.len();
                        let how = match (is_error, parts.is_empty()) {
                            (false, false) => "is done. Its result follows.",
                            (false, true) => "is done, and its result is empty.",
                            (true, false) => "has failed. What it gave follows.",
                            (true, true) => "has failed, and its result is empty.",
                        };
                        content.push(text(&format!("Job {id} {how}")));
                        content.extend(parts);
                    } else {
                        let call = super::words::wait_call(self.place.names, &[job.id]);
                        content.push(text(&format!("Job {id} is done. To get its result, call {call} alone.")));
                    }
                }
            }
        }
        let is_error = if failures == self.jobs.len() { r#","isError":true"# } else { "" };
        format!(r#"{{"content":[{}]{is_error}}}"#, content.join(",")).into()
    }

    async fn outcome(&self, job: &Job, held: &mut HeldBack) -> Outcome {
        let caller = &self.place.caller;
        let task = match &job.seen {
            Ok(task) => task,
            Err(why) => return Outcome::Told(self.tools.missing(&self.place, &job.given, why, held)),
        };
        let facts = self.tools.facts(&self.place, task);
        if !task.state.is_terminal() {
            let settings = caller.upstream.policy.tool(&task.tool);
            let questions = self.tools.engine.questions(&caller.owner, job.id);
            let text = match questions.last().filter(|_| task.state == State::InputRequired) {
                Some((_, question)) => {
                    let asked = Asks::of(question).is_ok_and(|asks| caller.client.can_be_asked(asks));
                    let words = question_text(question);
                    let words = words.strip_prefix("Input required: ").unwrap_or(&words);
                    facts.asks(&excerpt(words), asked)
                }
                None => facts.still_runs(settings),
            };
            return Outcome::Told(Told::done(text));
        }
        match self.tools.engine.retrieve(&caller.owner, job.id, &caller.who).await {
            Ok(Some(End::Result { raw, is_error })) => Outcome::Result(raw, is_error),
            Ok(Some(end)) => Outcome::Told(JobTools::without_result(&facts, &end)),
            Ok(None) => Outcome::Told(Told::failed(UNAVAILABLE)),
            Err(why) => Outcome::Told(self.tools.missing(&self.place, &job.given, &why, held)),
        }
    }
}

/// What is told of one job.
enum Outcome {
    /// Its raw result, and whether that says that the tool has failed.
    Result(Bytes, bool),
    Told(Told),
}

impl Job {
    fn runs(&self) -> bool {
        self.seen.as_ref().is_ok_and(|task| !task.state.is_terminal())
    }
}

fn text(text: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(text))
}

/// Returns the parts of a result as [`contents`] does; `None` where the results of the answer, which have so many
/// `bytes` with this one, are too large.
fn contents_within(raw: &[u8], bytes: usize) -> Option<Vec<String>> {
    contents(raw).filter(|_| bytes <= MAX_RESULTS)
}

/// Returns the raw parts of a result's content. Structured content without any other becomes text.
fn contents(raw: &[u8]) -> Option<Vec<String>> {
    let result = Members::parse(std::str::from_utf8(raw).ok()?).ok()?;
    let parts: Vec<&RawValue> = serde_json::from_str(result.get("content").unwrap_or("[]")).ok()?;
    let structured = result.get("structuredContent").filter(|_| parts.is_empty());
    Some(parts.into_iter().map(|part| part.get().to_owned()).chain(structured.map(text)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_about_several_jobs_is_bounded() {
        let raw = br#"{"content":[{"type":"text","text":"x"}]}"#;
        assert_eq!(contents_within(raw, MAX_RESULTS).map(|parts| parts.len()), Some(1));
        assert_eq!(contents_within(raw, MAX_RESULTS + 1), None);
    }

    #[test]
    fn structured_content_is_told_as_text_only_where_there_is_no_other() {
        let both = br#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":1}}"#;
        assert_eq!(contents(both), Some(vec![r#"{"type":"text","text":"x"}"#.to_owned()]));
        let alone = br#"{"content":[],"structuredContent":{"n":1}}"#;
        assert_eq!(contents(alone), Some(vec![text(r#"{"n":1}"#)]));
    }
}
