//! Calls of hosts without tasks: those of the tools for jobs are answered here, and others may get heartbeats or become
//! jobs.

use std::sync::Arc;

use http::HeaderMap;

use super::Dispatcher;
use crate::{
    dialect::tools::{HostReply, ListedFor, PlainCall, with_job_tools},
    gate::delivery::{Carrier, Delivery, Whole},
    session::{Session, StreamRoom},
    upstream::{ListRequest, UpstreamSession, may_be_job_tool},
    wire::{Message, Parts as Document, RpcError, object::Members},
};

/// What becomes of a call.
pub(super) enum HostCall {
    /// It is answered.
    Answered(Delivery),
    /// It goes on, perhaps with help.
    Goes(Option<Box<PlainCall>>),
}

/// A page of the server's tools on its way to a client that is helped.
pub(super) struct HostPage {
    session: Arc<UpstreamSession>,
    /// What asks for it.
    request: ListRequest,
    listed_for: ListedFor,
}

impl Dispatcher {
    /// Answers a `tools/call` of a tool for jobs, and prepares any other.
    pub(super) async fn host_call(
        &self,
        session: &Arc<Session>,
        message: &Message,
        headers: &HeaderMap,
        carrier: Carrier,
    ) -> HostCall {
        let params = message.params().and_then(|params| Members::parse(params).ok());
        let name = params.as_ref().and_then(|params| params.text("name"));
        // What cannot be read is refused, or passes.
        let (Some(params), Some(name)) = (params, name) else { return HostCall::Goes(None) };
        let asks_for_task = params.get("task").is_some();
        if session.gets_jobs()
            && may_be_job_tool(&name)
            && let Some(called) = self.tools.named(&session.upstream_session, &name, headers).await
        {
            if asks_for_task && session.tasks.are_ours() {
                let why = format!("The tool {name:?} cannot be called as a task; call it without params.task");
                let error = RpcError::method_not_found(why);
                return HostCall::Answered(Whole::error(message.id_to_answer(), &error).into());
            }
            let reply = self.tools.answer(session, message, called).await;
            return HostCall::Answered(match reply {
                HostReply::Ready(document) => Whole::Document(document).into(),
                HostReply::Wait(source) => match room(session, carrier) {
                    Ok(room) => Delivery::Stream { source, room },
                    Err(full) => Whole::error(message.id_to_answer(), &full).into(),
                },
            });
        }
        let plain = (!asks_for_task).then(|| PlainCall::new(&self.tools, session, message, &name, headers));
        HostCall::Goes(plain.flatten())
    }
}

impl HostPage {
    /// Returns what a page is on its way to; `None` where the client is not helped.
    pub(super) fn of(session: &Session, first: bool) -> Option<Self> {
        let (policy, jobs) = (&session.caller.upstream.policy, session.gets_jobs());
        let helps = jobs || policy.has_heartbeats();
        // What a session lists is in no cache that clients share.
        let listed_for = if jobs { ListedFor::Host(session.required_tools()) } else { ListedFor::Any };
        helps.then(|| {
            let session = Arc::clone(&session.upstream_session);
            let request = ListRequest { first, asked_at: session.tools().changes() };
            Self { session, request, listed_for }
        })
    }

    /// Takes in the page, and returns it as the client gets it.
    pub(super) fn finish(&self, page: Document, policy: &crate::config::Policy) -> Document {
        with_job_tools(page, self.request, policy, &self.session, self.listed_for)
    }
}

/// Takes room for the stream that an answer may need where it goes out in a response of its own.
pub(super) fn room(session: &Session, carrier: Carrier) -> Result<Option<StreamRoom>, RpcError> {
    let room = (carrier == Carrier::Response).then(|| session.streams().reserve()).transpose();
    room.map_err(|full| RpcError::internal(full.to_string()))
}
