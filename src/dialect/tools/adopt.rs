//! A plain call becomes a job: a task whose client is answered in words.

use std::sync::Arc;

use http::HeaderMap;
use tokio::time::Instant;

use super::{JobTools, words::JobFacts, writer::JobWriter};
use crate::{
    config::Tool,
    limit::{Rated, ToolId},
    session::{Caller, TaskAdmission},
    task::{Adopted, Adoption, AskedTtl, CallSession, NewTask, NotCreated},
    upstream::UpstreamSession,
    wire::Message,
};

/// A call that has run for long.
#[derive(Debug)]
pub struct JobAdoption<'a> {
    /// Who called.
    pub caller: &'a Arc<Caller>,
    /// Where the call runs.
    pub session: &'a Arc<UpstreamSession>,
    /// The session of the call as its task holds it.
    pub call_session: CallSession,
    /// The tool's name.
    pub name: Arc<str>,
    /// Its settings.
    pub tool: Arc<Tool>,
    /// When the call began.
    pub since: Instant,
    /// The last progress that the server told.
    pub progress: f64,
    /// That progress in words.
    pub text: Option<String>,
    /// The end-to-end headers that its request came with.
    pub headers: HeaderMap,
    /// Its request, while the server may still refuse it.
    pub request: Option<Message>,
    /// The right to add a task to the client's session, if it has one.
    pub admission: Option<TaskAdmission>,
    /// Whether it was counted as a creation at an earlier try.
    pub counted: bool,
}

/// A job that is in the store, and whose call is still to be followed.
#[derive(Debug)]
pub struct AdoptedJob {
    /// The task.
    pub adopted: Adopted,
    /// The words that answer the call.
    pub text: String,
}

impl From<AdoptedJob> for Adopted {
    fn from(job: AdoptedJob) -> Self {
        job.adopted
    }
}

/// Why a call goes on as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdopted {
    /// No turn is free, or the store does not answer. It may be one later.
    NotNow {
        /// [`JobAdoption::counted`] of the next try.
        counted: bool,
    },
    /// A limit, or the process stops.
    Refused,
}

impl From<NotCreated> for NotAdopted {
    /// The call was counted before its task was to be created.
    fn from(why: NotCreated) -> Self {
        match why {
            NotCreated::Unavailable => Self::NotNow { counted: true },
            NotCreated::Turns(..) | NotCreated::Kept(_) | NotCreated::Stopping => Self::Refused,
        }
    }
}

impl JobTools {
    /// Makes a job of a call that runs.
    ///
    /// # Errors
    /// [`NotAdopted`]
    pub async fn adopt(&self, call: JobAdoption<'_>) -> Result<AdoptedJob, NotAdopted> {
        let JobAdoption { caller, session, name, tool, since, progress, text, admission, counted, .. } = call;
        let (call_session, headers, request) = (call.call_session, call.headers, call.request);
        // Where the server has tools of all the names that taskgate could use, there are no jobs: no model could wait
        // for one.
        let names = session.tools().job_tools().ok_or(NotAdopted::Refused)?;
        let permit = self.engine.permit_now(caller, &name, &tool).ok_or(NotAdopted::NotNow { counted })?;
        if !counted {
            caller.account.count(Rated::Creation).map_err(|_| NotAdopted::Refused)?;
        }
        let (told, settings) = (text.as_deref().map(Box::from), Arc::clone(&tool));
        let new_task = NewTask {
            name: Arc::clone(&name),
            tool,
            ttl: AskedTtl::Default,
            announced: false,
            writer: &JobWriter,
            admission,
        };
        let adoption = Adoption { permit, since, progress, text, headers, request };
        let adopted = self.engine.adopt(caller, call_session, new_task, adoption).await?;
        let facts = JobFacts {
            id: adopted.task.id,
            title: session.tools().title(&name),
            tool: (&*adopted.task.tool).into(),
            elapsed: since.elapsed(),
            progress: told,
            estimate: self.estimate(caller, &name),
            names,
            given_up: false,
        };
        let text = facts.adopted(&settings);
        Ok(AdoptedJob { adopted, text })
    }

    /// Says how long calls of a tool usually take; `None` where that is not known.
    pub(super) fn estimate(&self, caller: &Caller, tool: &str) -> Option<String> {
        self.engine.usual_time(&ToolId::of(&caller.upstream.id, tool)).map(|usual| usual.to_string())
    }
}
