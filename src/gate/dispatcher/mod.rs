//! What becomes of the messages of a session, whatever the transport: requests are answered (`answer.rs`), what expects
//! no answer is accepted (`accept.rs`).

mod accept;
mod answer;
mod hosts;
mod native;
mod too_many_requests;

use std::sync::Arc;

pub(super) use accept::Accepted;

use crate::{
    dialect::{legacy::Legacy, tools::JobTools},
    flow::ByteRoom,
    gate::Lifecycle,
    observe::Observer,
    session::{Session, Source},
};

/// Takes the messages of sessions, each by its route: to the dialect, or to the upstream.
#[derive(Debug)]
pub struct Dispatcher {
    /// Answers what is about tasks.
    legacy: Legacy,
    /// Helps hosts without tasks.
    tools: Arc<JobTools>,
    /// Ends the sessions that turn out to be lost.
    lifecycle: Arc<Lifecycle>,
    /// The room that is left for messages that are late, in all sessions.
    late: ByteRoom,
    observer: Arc<Observer>,
}

impl Dispatcher {
    /// Creates the dispatcher in front of a dialect and the upstreams of the sessions.
    #[must_use]
    pub fn new(legacy: Legacy, lifecycle: Arc<Lifecycle>, observer: Arc<Observer>) -> Arc<Self> {
        let tools = JobTools::new(Arc::clone(legacy.engine()), Arc::clone(&observer));
        let late = ByteRoom::new(accept::MAX_LATE_TOTAL);
        Arc::new(Self { legacy, tools, lifecycle, late, observer })
    }

    /// Returns what a session's client gets that belongs to no request.
    pub(in crate::gate) fn listener(&self, session: &Session) -> Box<dyn Source> {
        self.legacy.get_stream(session)
    }
}
