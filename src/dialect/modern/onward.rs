//! A request as it goes on to the server: to a modern one as it came, to a legacy one in that one's form.

use http::HeaderMap;

use super::{CLIENT_CAPABILITIES, ClientRequest, TASKS, for_legacy::ForLegacy, headers};
use crate::{
    config::Native,
    upstream::{CallOptions, Generation, MAX_MESSAGE, Purpose, ToServer, Upstream},
    wire::{Edits, Message, Method, RpcError, object::Members},
};

/// Who makes tasks of calls, and answers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// taskgate alone. The server is not told that the client knows tasks.
    Ours,
    /// The server alone.
    Theirs,
    /// The server, and taskgate for the tools that are always tasks.
    Both,
}

/// What goes on.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) message: Message,
    pub(super) headers: HeaderMap,
}

impl ClientRequest {
    /// Returns who makes tasks with a server of that generation.
    pub(super) fn whose(&self, generation: Generation) -> Whose {
        whose(&self.caller.upstream, generation)
    }

    /// Returns what a server of that generation gets.
    ///
    /// # Errors
    /// -32602 where there is a member twice.
    pub(super) fn sent(&self, generation: Generation, whose: Whose) -> Result<Sent, RpcError> {
        Ok(Sent { message: self.message_for(generation, whose)?, headers: self.headers_for(generation) })
    }

    /// Returns the request as it goes to a legacy server, where its `_meta` goes and nothing else is changed.
    pub(super) fn bared(&self, generation: Generation) -> Option<ToServer<'_>> {
        match &self.for_legacy {
            ForLegacy::WithoutMeta(meta) if generation == Generation::Legacy => {
                Some(ToServer::bared(&self.message, meta))
            }
            _ => None,
        }
    }

    /// Returns the message that a server of that generation gets.
    ///
    /// # Errors
    /// -32602 where there is a member twice.
    pub(super) fn message_for(&self, generation: Generation, whose: Whose) -> Result<Message, RpcError> {
        match generation {
            Generation::Legacy => Ok(self.for_legacy.apply(&self.message)),
            // Also where the server has not declared tasks: it may have been replaced by one that has.
            Generation::Modern { .. } if whose == Whose::Ours && self.meta.tasks => without_tasks(&self.message),
            Generation::Modern { .. } => Ok(self.message.clone()),
        }
    }

    /// Returns the headers that a server of that generation gets.
    pub(super) fn headers_for(&self, generation: Generation) -> HeaderMap {
        let mut headers = self.headers.clone();
        if generation.is_modern() {
            headers.extend(headers::mirrored(&self.message, self.subject.as_deref()));
        }
        headers
    }
}

/// Returns whether taskgate answers a method about a task alone, as the server certainly does not have the task.
#[must_use]
pub fn answers_alone(upstream: &Upstream, method: Method) -> bool {
    // Answers to the questions of a task go on with the headers of `tasks/update`.
    let is_asked = matches!(method, Method::TasksGet | Method::TasksCancel);
    let known = upstream.pool.generation();
    is_asked && (upstream.native == Native::Replace || known.is_some_and(|known| whose(upstream, known) == Whose::Ours))
}

/// Returns who makes tasks with a server of that generation.
fn whose(upstream: &Upstream, generation: Generation) -> Whose {
    match (generation, upstream.native) {
        (Generation::Modern { has_tasks: true }, Native::Keep) => Whose::Theirs,
        // The server decides for each call, so there is no telling which of its tools have tasks.
        (Generation::Modern { has_tasks: true }, Native::Auto) => Whose::Both,
        _ => Whose::Ours,
    }
}

/// Returns how a request is sent. One that may become a task has progress, whether the client wants to hear of it or
/// not.
pub(super) fn call_options(generation: Generation, may_be_task: bool) -> CallOptions {
    let passes = generation.is_modern() && !may_be_task;
    let purpose = if passes { Purpose::Foreground } else { Purpose::Background };
    CallOptions { purpose, max_answer: MAX_MESSAGE, relay: false, native: false, wants_progress: may_be_task }
}

/// Returns the request without the client's declaration of the tasks extension.
fn without_tasks(request: &Message) -> Result<Message, RpcError> {
    let mut edits = Edits::of(request.bytes());
    let params = request.params().map(Members::parse).transpose().map_err(RpcError::bad_params)?;
    let meta = params.as_ref().and_then(|params| params.object("_meta"));
    let declared = meta.as_ref().and_then(|meta| meta.object(CLIENT_CAPABILITIES));
    if let Some(extensions) = declared.as_ref().and_then(|declared| declared.object("extensions")) {
        edits.remove(&extensions, TASKS);
    }
    Message::parse(edits.apply().into_bytes()).map_err(RpcError::bad_params)
}
