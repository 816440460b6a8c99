//! Hosts without tasks of either generation: heartbeats while a call is silent, and jobs, which are tasks that a model
//! waits for with tools of taskgate's own.

mod adopt;
mod arguments;
mod heartbeat;
mod jobs;
mod list;
mod plain;
mod wait;
mod waiting;
mod words;
mod writer;

use std::{sync::Arc, time::Duration};

pub use adopt::{AdoptedJob, JobAdoption, NotAdopted};
pub use heartbeat::Heartbeat;
pub use jobs::{JobPlace, Told};
pub use list::{ListedFor, instructed, with_instructions, with_job_tools};
pub use plain::{Due, PlainCall};
pub use wait::{OpenQuestion, Wait};
pub use waiting::{HostReply, waits_for_jobs};

use http::HeaderMap;
use writer::JobWriter;

use crate::{
    observe::Observer,
    session::Caller,
    task::{Engine, TaskWriter},
    upstream::{JobTool, JobToolNames, UpstreamSession},
};

/// How long a call that could not become a job waits before it tries again.
pub const RETRY: Duration = Duration::from_secs(1);

/// Returns what writes for the streams of clients that have jobs.
#[must_use]
pub fn writer() -> &'static dyn TaskWriter {
    &JobWriter
}

/// Makes jobs of calls, and answers what models ask about them.
#[derive(Debug)]
pub struct JobTools {
    engine: Arc<Engine>,
    observer: Arc<Observer>,
}

impl JobTools {
    /// Returns the tools for the tasks of `engine`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { engine, observer })
    }

    /// Returns the tool for jobs that has a name in front of a session, and the names of all of them; `None` where the
    /// server has a tool of that name. The server is asked where no list has told yet: each request of a modern client
    /// may have a session of its own.
    pub async fn named(
        &self,
        session: &UpstreamSession,
        name: &str,
        headers: &HeaderMap,
    ) -> Option<(JobTool, JobToolNames)> {
        if !session.tools().are_listed() && !session.is_lost() {
            // A server that does not tell now is taken to have no such tool.
            let _ = session.learn_tools(headers).await;
        }
        session.tools().called(name)
    }

    /// Says that a call of `name` runs, in words for a person. `progress` is what the server said last.
    #[must_use]
    pub fn in_words(
        &self,
        caller: &Caller,
        session: &UpstreamSession,
        name: &str,
        elapsed: Duration,
        progress: Option<&str>,
    ) -> String {
        let (title, estimate) = (session.tools().title(name), self.estimate(caller, name));
        words::running(&title, elapsed, estimate.as_deref(), progress)
    }
}
