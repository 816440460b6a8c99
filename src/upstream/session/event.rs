//! Reads what a server says in the course of a call.

use bytes::Bytes;

use super::{Call, UpstreamSession, for_client};
use crate::wire::{Asks, Kind, Message, Method, RpcError, excerpt, legacy, params::requested, response::pong};

/// What a server says in the course of a call.
#[derive(Debug)]
pub enum ServerEvent {
    /// How far the call is.
    Progress {
        /// A number that grows.
        progress: f64,
        /// What a person may be told of it, shortened if that is long.
        text: String,
        /// The message under the token that the client gave; `None` if it gave none.
        for_client: Option<Message>,
    },
    /// A request to the client.
    Asks(ServerQuestion),
    /// A request that taskgate answers at once, with these bytes.
    AnsweredHere(Bytes),
    /// The server wants no answer any more to what it asked under this raw id.
    Withdraws(Box<str>),
    /// A change in the server, which concerns the whole session and not only the call.
    Changes,
    /// Anything else about the call.
    Says,
    /// Nothing that can be read.
    Nothing,
}

/// A request of a server that its client can be asked.
#[derive(Debug)]
pub struct ServerQuestion {
    /// What a client has to have declared to be asked it.
    pub needs: Asks,
    /// What a person may be told of it.
    pub text: String,
}

impl UpstreamSession {
    /// Reads what the server says in the course of `call`.
    #[must_use]
    pub fn event(&self, call: &Call, message: &Message) -> ServerEvent {
        match (message.kind(), message.method()) {
            (Kind::Request, _) => self.asked(message),
            (_, Method::Progress) => progress(call, message).unwrap_or(ServerEvent::Nothing),
            (_, Method::Cancelled) => {
                requested(message).map_or(ServerEvent::Nothing, |request| ServerEvent::Withdraws(request.into()))
            }
            (_, method) if method.is_change() => ServerEvent::Changes,
            _ => ServerEvent::Says,
        }
    }

    /// Reads a request. The client that opened the session decides what can be asked at all: the server knows its
    /// declaration.
    fn asked(&self, request: &Message) -> ServerEvent {
        if request.method() == Method::Ping {
            // taskgate is the other end of the connection, which a ping is meant for.
            return ServerEvent::AnsweredHere(pong(request.id_to_answer()));
        }
        let needs = Asks::of(request).and_then(|needs| self.inbound.client.refusal(request).map_or(Ok(needs), Err));
        match needs {
            Ok(needs) => ServerEvent::Asks(ServerQuestion { needs, text: legacy::question_text(request) }),
            Err(refusal) => ServerEvent::AnsweredHere(refusal.to_response(request.id())),
        }
    }
}

/// Returns the answer to a question of a server that is not asked, under the question's raw id.
#[must_use]
pub fn question_refusal(raw_id: &str, why: String) -> Bytes {
    RpcError::internal(why).to_response(Some(raw_id))
}

fn progress(call: &Call, message: &Message) -> Option<ServerEvent> {
    let params = message.params()?;
    let progress = legacy::progress(params)?;
    let text = legacy::progress_text(params).unwrap_or_default();
    let for_client = for_client(message, call).and_then(|bytes| Message::parse(bytes).ok());
    Some(ServerEvent::Progress { progress, text: excerpt(&text).into_owned(), for_client })
}
