//! What happens to tasks.

use std::time::Duration;

use uuid::Uuid;

use crate::observe::{
    AuditLine, Event, Metrics, Who,
    metrics::{EndLabels, Ended, ReasonLabels},
};

/// A task was acknowledged.
#[derive(Debug)]
pub struct TaskCreated<'a> {
    /// The session that created it, and its owner.
    pub who: &'a Who,
    /// Its id.
    pub task: Uuid,
    /// The tool that it calls.
    pub tool: &'a str,
    /// Whether it waits for its turn.
    pub queued: bool,
}

impl Event for TaskCreated<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_created.inc();
        metrics.tasks_live.inc();
        if self.queued {
            metrics.tasks_queued.inc();
        }
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(task = %self.task, session, upstream, tool = self.tool, queued = self.queued, "task created");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        let outcome = if self.queued { "queued" } else { "running" };
        Some(AuditLine {
            task: Some(self.task),
            tool: Some(self.tool),
            ..AuditLine::new("task_created", Some(self.who), outcome)
        })
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

/// A call as a task was refused.
#[derive(Debug)]
pub struct TaskRefused<'a> {
    /// The session that it came in, and its owner.
    pub who: &'a Who,
    /// The tool that was called.
    pub tool: &'a str,
    /// The limit that was reached, or the rule that forbids it.
    pub reason: &'static str,
}

impl Event for TaskRefused<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_refused.get_or_create(&ReasonLabels { reason: self.reason }).inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::warn!(session, upstream, tool = self.tool, reason = self.reason, "task refused");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine { tool: Some(self.tool), ..AuditLine::new("task_refused", Some(self.who), self.reason) })
    }
}

/// A task ended.
#[derive(Debug)]
pub struct TaskEnded<'a> {
    /// The session that created it, and its owner.
    pub who: &'a Who,
    /// Its id.
    pub task: Uuid,
    /// The tool that it called.
    pub tool: &'a str,
    /// How it ended.
    pub status: Ended,
    /// The time since its creation.
    pub after: Duration,
    /// Why it failed, where taskgate says so; `None` where its server does.
    pub why: Option<&'a str>,
    /// The code of the JSON-RPC error that it ended with.
    pub code: Option<i64>,
    /// The size of what is kept as its result, in bytes.
    pub bytes: Option<usize>,
}

impl Event for TaskEnded<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_live.dec();
        metrics.tasks_ended.get_or_create(&EndLabels { status: self.status.as_str() }).inc();
        metrics.task_seconds.observe(self.after.as_secs_f64());
        let Self { who, task, tool, status, after, why, code, bytes } = self;
        let (session, upstream, status) = (who.session(), who.upstream(), status.as_str());
        if self.status == Ended::Failed {
            let of_server =
                if code.is_some() { "the server answered with a JSON-RPC error" } else { "the result says isError" };
            let why = why.unwrap_or(of_server);
            tracing::info!(%task, session, upstream, tool, status, ?after, why, code, bytes, "task ended");
        } else {
            tracing::debug!(%task, session, upstream, tool, status, ?after, bytes, "task ended");
        }
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine {
            task: Some(self.task),
            tool: Some(self.tool),
            duration: Some(self.after),
            bytes: self.bytes,
            ..AuditLine::new("task_ended", Some(self.who), self.status.as_str())
        })
    }
}

/// The store did not answer about a task or a session.
#[derive(Debug)]
pub struct StoreUnavailable<'a> {
    /// Why.
    pub why: &'a str,
}

impl Event for StoreUnavailable<'_> {
    fn tell(&self, _: &Metrics) {
        tracing::warn!(why = self.why, "the store is unavailable");
    }
}

/// The store took in a task.
#[derive(Debug)]
pub struct TaskKept;

impl Event for TaskKept {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_kept.inc();
    }
}

/// A task and its result left the store.
#[derive(Debug)]
pub struct TaskRemoved {
    /// Its id.
    pub task: Uuid,
}

impl Event for TaskRemoved {
    fn tell(&self, metrics: &Metrics) {
        metrics.tasks_kept.dec();
        tracing::debug!(task = %self.task, "task removed");
    }
}

/// The store keeps the result of a task.
#[derive(Debug)]
pub struct ResultKept {
    /// Its size, in bytes.
    pub bytes: usize,
}

impl Event for ResultKept {
    fn tell(&self, metrics: &Metrics) {
        metrics.result_bytes.inc_by(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

/// The store no longer keeps the result of a task.
#[derive(Debug)]
pub struct ResultRemoved {
    /// Its size, in bytes.
    pub bytes: usize,
}

impl Event for ResultRemoved {
    fn tell(&self, metrics: &Metrics) {
        metrics.result_bytes.dec_by(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

/// A client collected a result.
#[derive(Debug)]
pub struct ResultRetrieved<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
    /// The task.
    pub task: Uuid,
    /// The tool that it called.
    pub tool: &'a str,
    /// How it had ended.
    pub status: Ended,
    /// The size of the result, in bytes.
    pub bytes: usize,
}

impl Event for ResultRetrieved<'_> {
    fn tell(&self, _metrics: &Metrics) {
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(task = %self.task, session, upstream, tool = self.tool, bytes = self.bytes, "result retrieved");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        Some(AuditLine {
            task: Some(self.task),
            tool: Some(self.tool),
            bytes: Some(self.bytes),
            ..AuditLine::new("result_retrieved", Some(self.who), self.status.as_str())
        })
    }
}

/// A client cancelled a task.
#[derive(Debug)]
pub struct TaskCancelled<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
    /// The task.
    pub task: Uuid,
    /// The tool that it called.
    pub tool: &'a str,
}

impl Event for TaskCancelled<'_> {
    fn tell(&self, _metrics: &Metrics) {
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(task = %self.task, session, upstream, tool = self.tool, "task cancelled");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        let line = AuditLine::new("task_cancelled", Some(self.who), "cancelled");
        Some(AuditLine { task: Some(self.task), tool: Some(self.tool), ..line })
    }
}

/// A client asked for a task that does not exist for its owner: it is unknown, another owner's, or expired.
#[derive(Debug)]
pub struct LookupFailed<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
    /// The id, if it is well-formed.
    pub task: Option<Uuid>,
    /// Whether the answer was slowed or refused, where there were too many look-ups.
    pub repeated: Option<&'static str>,
}

impl Event for LookupFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.failed_lookups.inc();
        let (session, upstream) = (self.who.session(), self.who.upstream());
        let task = self.task.map(tracing::field::display);
        tracing::debug!(task, session, upstream, repeated = self.repeated, "a task was not found");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        let line = match self.repeated {
            Some(answer) => AuditLine::new("repeated_failed_lookups", Some(self.who), answer),
            None => AuditLine::new("lookup_failed", Some(self.who), "not_found"),
        };
        Some(AuditLine { task: self.task, ..line })
    }
}

/// A client polls a task far more often than it was told to.
#[derive(Debug)]
pub struct ExcessivePolling<'a> {
    /// The client's session, and its owner.
    pub who: &'a Who,
    /// The task.
    pub task: Uuid,
    /// The tool that it calls.
    pub tool: &'a str,
}

impl Event for ExcessivePolling<'_> {
    fn tell(&self, _metrics: &Metrics) {
        let (session, upstream) = (self.who.session(), self.who.upstream());
        tracing::debug!(task = %self.task, session, upstream, tool = self.tool, "excessive polling");
    }

    fn audit(&self) -> Option<AuditLine<'_>> {
        let line = AuditLine::new("excessive_polling", Some(self.who), "answered");
        Some(AuditLine { task: Some(self.task), tool: Some(self.tool), ..line })
    }
}

/// A task asks its client something.
#[derive(Debug)]
pub struct QuestionAsked {
    /// The task.
    pub task: Uuid,
}

impl Event for QuestionAsked {
    fn tell(&self, metrics: &Metrics) {
        metrics.questions.inc();
        tracing::debug!(task = %self.task, "task waits for input");
    }
}

/// An upstream asked something during a task that its client was not asked: a limit was reached, or the task had ended.
#[derive(Debug)]
pub struct QuestionRefused {
    /// The task.
    pub task: Uuid,
    /// The limit that was reached, in a word, or `ended`.
    pub reason: &'static str,
}

impl Event for QuestionRefused {
    fn tell(&self, metrics: &Metrics) {
        let Self { task, reason } = self;
        metrics.questions_refused.get_or_create(&ReasonLabels { reason }).inc();
        tracing::debug!(%task, reason, "question of a task refused");
    }
}

/// An open question of a task is kept.
#[derive(Debug)]
pub struct QuestionKept {
    /// Its size, in bytes.
    pub bytes: usize,
}

impl Event for QuestionKept {
    fn tell(&self, metrics: &Metrics) {
        metrics.question_bytes.inc_by(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}

/// A question of a task is no longer kept.
#[derive(Debug)]
pub struct QuestionForgotten {
    /// Its size, in bytes.
    pub bytes: usize,
}

impl Event for QuestionForgotten {
    fn tell(&self, metrics: &Metrics) {
        metrics.question_bytes.dec_by(i64::try_from(self.bytes).unwrap_or(i64::MAX));
    }
}
