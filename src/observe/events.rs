//! One struct for each thing that happens.

use std::time::Duration;

use super::{
    Event, Metrics,
    metrics::{EndLabels, ReasonLabels},
};

pub use super::metrics::Ended;

/// A client opened a session.
#[derive(Debug)]
pub struct SessionOpened<'a> {
    /// The path of the endpoint.
    pub path: &'a str,
    /// The revision agreed with the client.
    pub version: &'a str,
    /// Whether taskgate serves tasks in it.
    pub tasks: bool,
}

impl Event for SessionOpened<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions.inc();
        metrics.sessions_opened.inc();
        tracing::info!(path = self.path, version = self.version, tasks = self.tasks, "session opened");
    }
}

/// A session ended.
#[derive(Debug)]
pub struct SessionEnded {
    /// Why.
    pub reason: &'static str,
}

impl Event for SessionEnded {
    fn tell(&self, metrics: &Metrics) {
        metrics.sessions.dec();
        tracing::info!(reason = self.reason, "session ended");
    }
}

/// A task was acknowledged.
#[derive(Debug)]
pub struct TaskCreated<'a> {
    /// Its id.
    pub task: uuid::Uuid,
    /// The tool it calls.
    pub tool: &'a str,
    /// Whether it waits for its turn.
    pub queued: bool,
}

impl Event for TaskCreated<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_created.inc();
        metrics.tasks_live.inc();
        metrics.tasks_kept.inc();
        if self.queued {
            metrics.tasks_queued.inc();
        }
        tracing::debug!(task = %self.task, tool = self.tool, queued = self.queued, "task created");
    }
}

/// A queued task got its turn, or ended without one.
#[derive(Debug)]
pub struct TaskLeftQueue;

impl Event for TaskLeftQueue {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_queued.dec();
    }
}

/// A task-augmented call was refused.
#[derive(Debug)]
pub struct TaskRefused<'a> {
    /// The tool that was called.
    pub tool: &'a str,
    /// The limit or rule.
    pub reason: &'static str,
}

impl Event for TaskRefused<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_refused.get_or_create(&ReasonLabels { reason: self.reason }).inc();
        tracing::warn!(tool = self.tool, reason = self.reason, "task refused");
    }
}

/// A task's call is over.
#[derive(Debug)]
pub struct TaskEnded<'a> {
    /// Its id.
    pub task: uuid::Uuid,
    /// How it ended.
    pub status: Ended,
    /// The time since its creation.
    pub after: Duration,
    /// What `statusMessage` says, if anything.
    pub message: Option<&'a str>,
}

impl Event for TaskEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_live.dec();
        metrics.tasks_ended.get_or_create(&EndLabels { status: self.status.as_str() }).inc();
        metrics.task_seconds.observe(self.after.as_secs_f64());
        let status = self.status;
        if status == Ended::Failed {
            tracing::info!(task = %self.task, ?status, after = ?self.after, status_message = self.message, "task ended");
        } else {
            tracing::debug!(task = %self.task, ?status, after = ?self.after, "task ended");
        }
    }
}

/// A task and its result left the store.
#[derive(Debug)]
pub struct TaskRemoved {
    /// Its id.
    pub task: uuid::Uuid,
}

impl Event for TaskRemoved {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_kept.dec();
        tracing::debug!(task = %self.task, "task removed");
    }
}

/// A result was collected.
#[derive(Debug)]
pub struct ResultCollected {
    /// The task.
    pub task: uuid::Uuid,
}

impl Event for ResultCollected {
    fn tell(&self, _metrics: &Metrics) {
        tracing::debug!(task = %self.task, "result collected");
    }
}

/// An HTTP request was refused before it became a message.
#[derive(Debug)]
pub struct RequestRefused {
    /// Why, as a short constant.
    pub reason: &'static str,
    /// The HTTP status.
    pub status: u16,
}

impl Event for RequestRefused {
    fn tell(&self, metrics: &Metrics) {
        metrics.requests_refused.get_or_create(&ReasonLabels { reason: self.reason }).inc();
        tracing::debug!(reason = self.reason, status = self.status, "request refused");
    }
}

/// An upstream gave no response to a plain request.
#[derive(Debug)]
pub struct ExchangeFailed<'a> {
    /// Why.
    pub failure: &'a dyn std::error::Error,
}

impl Event for ExchangeFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.exchange_failures.inc();
        tracing::warn!(failure = %self.failure, "request failed upstream");
    }
}

/// An upstream sent a response to no request that is in flight.
#[derive(Debug)]
pub struct UnknownResponse;

impl Event for UnknownResponse {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_responses.inc();
        tracing::debug!("a late or unknown response was dropped");
    }
}

/// A task asks its client something.
#[derive(Debug)]
pub struct QuestionAsked {
    /// The task.
    pub task: uuid::Uuid,
}

impl Event for QuestionAsked {
    fn tell(&self, metrics: &Metrics) {
        metrics.questions.inc();
        tracing::debug!(task = %self.task, "task waits for input");
    }
}

/// A client answered a question that is not open, or not its own.
#[derive(Debug)]
pub struct UnknownAnswer;

impl Event for UnknownAnswer {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_answers.inc();
        tracing::warn!("an answer to no open question was dropped");
    }
}

/// An upstream sent progress under a token that no request in flight has.
#[derive(Debug)]
pub struct UnknownProgress;

impl Event for UnknownProgress {
    fn tell(&self, metrics: &Metrics) {
        metrics.unknown_progress.inc();
        tracing::debug!("progress under an unknown token was dropped");
    }
}

/// A reader was too slow, and the least important of its messages were dropped.
#[derive(Debug)]
pub struct MessagesDropped {
    /// How many.
    pub count: usize,
}

impl Event for MessagesDropped {
    fn tell(&self, metrics: &Metrics) {
        metrics.messages_dropped.inc_by(self.count as u64);
        tracing::debug!(count = self.count, "messages to a slow reader were dropped");
    }
}

/// A stdio child was started.
#[derive(Debug)]
pub struct ChildStarted {
    /// Its process id.
    pub pid: u32,
}

impl Event for ChildStarted {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.inc();
        tracing::info!(pid = self.pid, "child process started");
    }
}

/// A stdio child ended.
#[derive(Debug)]
pub struct ChildEnded<'a> {
    /// How.
    pub fate: &'a str,
}

impl Event for ChildEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.children.dec();
        tracing::info!(fate = self.fate, "child process ended");
    }
}
