//! A client's request on its way upstream: taskgate's number in the place of its id and its progress token, the rest as
//! it was.

use ::http::HeaderMap;
use bytes::Bytes;
use tokio::time::Instant;

use super::UpstreamSession;
use crate::{
    upstream::{Exchange, Outgoing, Purpose},
    wire::{
        Edits, Message, Method, Params, RpcError,
        object::{MemberSpan, Needle, may_have},
        params::may_matter,
    },
};

/// A request in flight on behalf of a client.
#[derive(Debug)]
pub struct Call {
    /// What comes back.
    pub exchange: Exchange,
    /// The raw progress token that the client gave.
    pub progress_token: Option<Box<str>>,
    /// The request as it was sent, and its headers, where a modern server may want it again, with answers.
    pub(super) sent: Option<(Bytes, HeaderMap)>,
    /// When it was sent.
    pub begun: Instant,
}

/// A client's request, and what goes on of it to the server.
#[derive(Debug)]
pub struct ToServer<'a> {
    message: &'a Message,
    /// The `_meta` of its `params`, of which nothing goes to the server. They have no `task`.
    bared: Option<&'a MemberSpan>,
}

/// What may differ between calls.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// A client's open request, a task, or a subscription.
    pub purpose: Purpose,
    /// The largest answer to take, in bytes.
    pub max_answer: usize,
    /// Whether a large answer may be handed over while it arrives.
    pub relay: bool,
    /// Whether a call that passes may create a task of the server.
    pub native: bool,
    /// Whether the server is asked for progress though the client may not want it: for a task, or for a call that may
    /// become one, or a job.
    pub wants_progress: bool,
}

impl UpstreamSession {
    /// Starts a client's request upstream. For a task, `params.task` is left out.
    ///
    /// # Errors
    /// The limit on requests in flight, or what [`Params::parse`] refuses.
    pub fn call<'a>(
        &self,
        request: impl Into<ToServer<'a>>,
        headers: HeaderMap,
        options: CallOptions,
    ) -> Result<Call, RpcError> {
        self.begin(request.into(), headers, options, false)
    }

    /// Starts a client's request as [`Self::call`] does, in the course of which the server asks nothing.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub fn call_apart<'a>(
        &self,
        request: impl Into<ToServer<'a>>,
        headers: HeaderMap,
        options: CallOptions,
    ) -> Result<Call, RpcError> {
        self.begin(request.into(), headers, options, true)
    }

    fn begin(
        &self,
        ToServer { message, bared }: ToServer<'_>,
        headers: HeaderMap,
        options: CallOptions,
        apart: bool,
    ) -> Result<Call, RpcError> {
        let CallOptions { wants_progress, max_answer, mut relay, .. } = options;
        let raw_params = message.params();
        // A call that asks for a task has params to be parsed.
        let is_bare = bared.is_some() || wants_progress && raw_params.is_some_and(is_bare);
        let read = |params: &&str| !is_bare && (wants_progress || may_matter(params));
        let parse = if self.rounds.is_some() { Params::parse_any } else { Params::parse };
        let params = raw_params.filter(read).map(parse).transpose()?;
        let token = params.as_ref().and_then(|params| params.progress_token);
        let client_id = match options.purpose {
            Purpose::Foreground => message.id(),
            Purpose::Background | Purpose::Listening => None,
        };
        let exchanges = &self.inbound.exchanges;
        let begun = if apart {
            exchanges.begin_apart(client_id, options.purpose)
        } else {
            exchanges.begin(client_id, options.purpose)
        };
        let mut exchange = begun.map_err(|too_many| RpcError::internal(too_many.to_string()))?;
        let number = exchange.number;
        let (written, mut edits) = (number.to_string(), Edits::of(message.bytes()));
        if let Some(id) = message.id_span() {
            edits.replace(id, written.clone());
        }
        if let (Some(token), Purpose::Foreground) = (token, options.purpose)
            && options.native
            && creates_task(message, params.as_ref())
        {
            self.inbound.native.expect(number, token, |number| self.inbound.exchanges.is_open(number));
            // The task's id has to be read from its answer.
            relay = false;
        }
        let progress = || [r#"{"progressToken":"#, &written, "}"].concat();
        match (bared, raw_params) {
            (Some(meta), _) if wants_progress => edits.replace(meta.value.clone(), progress()),
            // It is bare, so nothing below adds or removes another member.
            (Some(meta), _) => edits.replace(meta.cut.clone(), ""),
            (None, Some(bare)) if wants_progress && is_bare => edits.add(bare, [r#""_meta":"#, &progress()].concat()),
            (None, _) => {}
        }
        if let Some(Params { members, meta, .. }) = &params {
            if let Some(token) = token {
                edits.replace_raw(token, written);
            } else if wants_progress {
                // A client that only polls sees progress too.
                match meta {
                    Some(meta) => edits.set(meta, "progressToken", &written),
                    None => edits.set(members, "_meta", &progress()),
                }
            }
            if options.purpose == Purpose::Background {
                edits.remove(members, "task");
            }
        }
        let message = edits.apply().into_bytes();
        let may_be_retried = self.rounds.is_some() && options.purpose == Purpose::Background;
        let sent = may_be_retried.then(|| (message.clone(), headers.clone()));
        exchange.carry(self.link.request(Outgoing { number, message, headers, max_answer, relay }));
        Ok(Call { exchange, progress_token: token.map(Into::into), sent, begun: Instant::now() })
    }
}

/// Returns whether raw `params` certainly have neither `_meta` nor `task`. Such ones are not parsed.
fn is_bare(params: &str) -> bool {
    static KEYS: [Needle; 2] = [Needle::new("\"_meta\""), Needle::new("\"task\"")];
    !may_have(params, KEYS.each_ref())
}

impl<'a> ToServer<'a> {
    /// Returns a request of which the `meta` of its `params` does not go to the server. They have no `task`.
    #[must_use]
    pub fn bared(message: &'a Message, meta: &'a MemberSpan) -> Self {
        Self { message, bared: Some(meta) }
    }
}

impl<'a> From<&'a Message> for ToServer<'a> {
    fn from(message: &'a Message) -> Self {
        Self { message, bared: None }
    }
}

impl Call {
    /// Leaves a client's request to a task: its client gets another answer, and can neither cancel it by its id nor get
    /// progress of it.
    pub fn leave_to_task(&mut self) {
        self.progress_token = None;
        self.exchange.all.leave_to_task(self.exchange.number);
    }
}

/// Returns whether a request asks for a task.
fn creates_task(message: &Message, params: Option<&Params<'_>>) -> bool {
    message.method() == Method::ToolsCall && params.is_some_and(|params| params.members.get("task").is_some())
}
