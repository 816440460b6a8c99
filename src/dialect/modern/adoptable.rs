//! How a call may become a task, or a job.

use std::{sync::Arc, time::Duration};

use crate::{
    config::Tool,
    dialect::tools::NotAdopted,
    limit::Permit,
    task::{Adopted, Trying},
};

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
    /// A task, with the right to run that was taken before the call began.
    Task(Permit),
    /// A job, whose client knows no tasks.
    Job,
}

/// A call on its way to become something else. It goes on meanwhile.
#[derive(Debug)]
pub(super) struct Becoming {
    pub(super) trying: Trying<Became, NotAdopted>,
    /// How the next try is made, where this one comes to nothing.
    pub(super) next: Adoptable,
}

/// What has become of a call.
#[derive(Debug)]
pub(super) struct Became {
    pub(super) adopted: Adopted,
    /// The words that answer a call that is a job; a task is told as one.
    pub(super) words: Option<String>,
}

impl From<Became> for Adopted {
    fn from(became: Became) -> Self {
        became.adopted
    }
}

impl Becoming {
    /// Waits for the end of a try, if there is one.
    pub(super) async fn tried(becoming: &mut Option<Self>) -> Result<Became, NotAdopted> {
        match becoming {
            Some(becoming) => (&mut becoming.trying).await.unwrap_or(Err(NotAdopted::NotNow { counted: true })),
            None => std::future::pending().await,
        }
    }
}

impl Adoptable {
    /// Returns whether the call becomes a job.
    pub(super) fn is_job(&self) -> bool {
        matches!(self.form, Form::Job)
    }

    /// Returns the right to run that the call has.
    pub(super) fn permit(&self) -> Option<Permit> {
        match &self.form {
            Form::Task(permit) => Some(permit.clone()),
            Form::Job => None,
        }
    }

    /// Returns after how long the call becomes something else.
    pub(super) fn after(&self) -> Duration {
        match self.form {
            Form::Task(_) => self.tool.task_after,
            Form::Job => self.tool.becomes_job_after().unwrap_or(Duration::MAX),
        }
    }
}
