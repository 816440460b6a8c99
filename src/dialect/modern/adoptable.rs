//! How a call may become a task, or a job.

use std::{sync::Arc, time::Duration};

use crate::{config::Tool, limit::Permit};

/// How a call may become a task.
#[derive(Debug)]
pub(super) struct Adoptable {
    pub(super) name: Arc<str>,
    pub(super) tool: Arc<Tool>,
    /// What it becomes.
    pub(super) form: Form,
    /// Whether a try was counted as a creation.
    pub(super) counted: bool,
}

/// What a call becomes that takes long.
#[derive(Debug)]
pub(super) enum Form {
    /// A task, with the right to run that was taken before the call began; `None` once a try has used it up.
    Task(Option<Permit>),
    /// A job, whose client knows no tasks.
    Job,
}

impl Adoptable {
    /// Returns whether the call becomes a job.
    pub(super) fn is_job(&self) -> bool {
        matches!(self.form, Form::Job)
    }

    /// Returns after how long the call becomes something else.
    pub(super) fn after(&self) -> Duration {
        match self.form {
            Form::Task(_) => self.tool.task_after,
            Form::Job => self.tool.becomes_job_after().unwrap_or(Duration::MAX),
        }
    }
}
