//! POST of a client of revision 2026-07-28: each request stands for itself.

use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};

use super::{
    Body, Endpoint,
    headers::{SESSION_ID, onward_but},
    respond::{self, Response, json},
    sse::Events,
};
use crate::{
    dialect::modern::{Answer, Came, LastCaller, MIRRORED, Refused, Sender, answers_alone},
    gate::refuse::Refusal,
    identity::{Pass, Principal},
    observe::events,
    route::fit,
    upstream::Upstream,
    wire::{Kind, Message, Method},
};

impl Endpoint {
    /// Answers one request.
    pub(super) async fn post_modern(
        &self,
        upstream: &Arc<Upstream>,
        principal: Option<Principal>,
        last: &LastCaller,
        headers: HeaderMap,
        message: Message,
    ) -> Result<Response, Refusal> {
        let id: Box<str> = message.id_to_answer().into();
        if headers.contains_key(SESSION_ID) {
            let why = "Invalid request: it names a session, and its revision has none; send one of both";
            return Err(Refusal::half_modern(why).answering(message.id()));
        }
        if message.kind() == Kind::Notification {
            fit::check(&message).map_err(Refusal::unfit)?;
            // The revision defines none: a client cancels a request by closing its stream.
            return Ok(respond::accepted(Body::default()));
        }
        let passed_on = if answers_alone(upstream, message.method()) {
            None
        } else {
            // A server of the modern generation gets those that mirror the body anew.
            let passed_on = onward_but(upstream, &headers, &MIRRORED);
            Some(passed_on.map_err(|refusal| refusal.answering(message.id()))?)
        };
        // A subscription tells results, to clients that may ask for them now.
        let retrieves = message.method() == Method::Listen;
        let (name, pass) = match principal {
            Some(principal) => (Some(principal.name), if retrieves { principal.pass } else { Pass::Lasting }),
            None => (None, Pass::Lasting),
        };
        let sender = Sender { upstream, principal: name, accounts: self.lifecycle.accounts(), last };
        Ok(match self.modern.answer(sender, message, Came::Http(&headers), passed_on).await {
            Ok(Answer::Whole(status, document)) => with_status(json(document), status),
            Ok(Answer::Stream(pieces)) => respond::stream(Events::of_request(pieces, pass)),
            Err(refused) => self.refuse_modern(&refused, &id),
        })
    }

    fn refuse_modern(&self, refused: &Refused, id: &str) -> Response {
        if let Some(error) = &refused.unauthorized {
            return respond::passed_on(error);
        }
        if let Some(reason) = refused.reason {
            let status = refused.status.as_u16();
            self.observer.emit(events::RequestRefused { who: None, reason, status, foreign: None });
        }
        let mut response = with_status(json(refused.to_response(id)), refused.status);
        if let Some(seconds) = refused.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn with_status(mut response: Response, status: StatusCode) -> Response {
    *response.status_mut() = status;
    response
}
