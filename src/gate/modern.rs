//! POST of a client of revision 2026-07-28: each request stands for itself.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use super::{
    Body, Gate, Response,
    headers::SESSION_ID,
    refuse::{Refusal, json},
    sse,
};
use crate::{
    dialect::modern::{Answer, Came, METHOD, NAME, Refused, Sender},
    identity::Principal,
    upstream::Upstream,
    wire::{Kind, Message},
};

impl Gate {
    /// Answers one request.
    pub(super) async fn post_modern(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        principal: Option<Principal>,
        headers: HeaderMap,
        message: Message,
    ) -> Result<Response, Refusal> {
        let id: Box<str> = message.id_to_answer().into();
        if headers.contains_key(SESSION_ID) {
            let why = "Invalid request: it names a session, which its revision has not; send one of both";
            return Err(Refusal::half_modern(why).answering(message.id()));
        }
        if message.kind() == Kind::Notification {
            // None is defined: a client cancels by closing the stream.
            let mut response = Response::new(Body::default());
            *response.status_mut() = StatusCode::ACCEPTED;
            return Ok(response);
        }
        let mut onward = Self::onward(upstream, headers.clone()).map_err(|refusal| refusal.answering(message.id()))?;
        // They say what a legacy server does not look for.
        onward.remove(METHOD);
        onward.remove(NAME);
        let principal = principal.map(|principal| principal.name);
        let sender = Sender { upstream, principal, accounts: &self.accounts };
        let answered = self.modern.answer(sender, message, Came::Http(&headers), onward).await;
        Ok(match answered {
            Ok(Answer::Whole(status, document)) => {
                let mut response = json(document);
                *response.status_mut() = status;
                response
            }
            Ok(Answer::Stream(pieces)) => sse::modern_response(pieces),
            Err(refused) => refusal(&refused, &id),
        })
    }
}

fn refusal(refused: &Refused, id: &str) -> Response {
    let mut response = json(refused.to_response(id));
    *response.status_mut() = refused.status;
    response
}
