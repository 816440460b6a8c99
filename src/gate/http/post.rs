//! POST: one message of a client (section "Sending Messages to the Server").

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};

use super::{
    Body, Endpoint,
    headers::{SESSION_ID, accepts_answers, is_json, names_modern_revision, onward, session_id, speaks_version},
    intake::Intake,
    respond::{self, Response},
    sse::Events,
};
use crate::{
    dialect::{
        modern::LastCaller,
        recognise::{is_modern, lacks_revision},
    },
    gate::{
        delivery::{Carrier, Delivery, Whole},
        dispatcher::Accepted,
        lifecycle::NewClient,
        refuse::Refusal,
    },
    identity::{Pass, Principal},
    session::{Session, Tasks},
    upstream::{Failure, Upstream},
    wire::{Kind, Message, Method},
};

impl Endpoint {
    /// Takes one message of a client.
    pub(super) async fn post(
        &self,
        upstream: &Arc<Upstream>,
        principal: Option<Principal>,
        last: &LastCaller,
        headers: HeaderMap,
        intake: Intake,
    ) -> Result<Response, Refusal> {
        is_json(&headers)?;
        accepts_answers(&headers)?;
        let message = intake.message(&self.bodies).await?;
        let modern = names_modern_revision(&headers)
            || is_modern(&message)
            || !headers.contains_key(SESSION_ID) && lacks_revision(upstream, &message);
        if modern && upstream.modern {
            return self.post_modern(upstream, principal, last, headers, message).await;
        }
        speaks_version(&headers).map_err(|refusal| refusal.answering(message.id()))?;
        if modern {
            return Err(Refusal::modern().answering(message.id()));
        }
        let initialize = message.kind() == Kind::Request && message.method() == Method::Initialize;
        if initialize && !headers.contains_key(SESSION_ID) {
            // Rare paths are boxed, so that every request's future stays small.
            let headers = onward(upstream, headers).map_err(|refusal| refusal.answering(message.id()))?;
            let principal = principal.map(|principal| principal.name);
            let client = NewClient { upstream, principal, previous: None, comes_back: true };
            let opening = Box::pin(self.lifecycle.open(client, &message, headers));
            return Ok(match opening.await {
                Ok((session, answer)) => self.opened(&session, answer, &message),
                Err(whole) => respond::whole(whole),
            });
        }
        let named = session_id(&headers);
        let found = named.and_then(|id| self.lifecycle.find(id, &upstream.id, principal.as_ref()));
        let in_use = found.map_err(|refusal| refusal.answering(message.id()))?;
        let session = in_use.get();
        let asks_of_tasks = message.kind() == Kind::Request && message.method().is_of_tasks();
        let headers = if asks_of_tasks && session.tasks == Tasks::Served {
            // It goes no further.
            HeaderMap::new()
        } else {
            onward(&session.caller.upstream, headers).map_err(|refusal| refusal.answering(message.id()))?
        };
        match message.kind() {
            Kind::Request => {
                let id: Box<str> = message.id_to_answer().into();
                // A call goes on when its token has ended, and its answer comes; a result is for clients that may ask
                // for it now.
                let retrieves = message.method() == Method::TasksResult;
                let pass = principal.filter(|_| retrieves).map_or(Pass::Lasting, |principal| principal.pass);
                let answer = self.dispatcher.request(session, message, headers, Carrier::Response).await?;
                Ok(self.present(answer, &id, session, pass))
            }
            Kind::Notification | Kind::Response => {
                Ok(match Box::pin(self.dispatcher.accept(session, message, headers)).await? {
                    Accepted::Yes => respond::accepted(Body::default()),
                    Accepted::Unauthorized(error) => respond::passed_on(&error),
                })
            }
        }
    }

    /// Answers `initialize`, with the id of the session.
    fn opened(&self, session: &Arc<Session>, answer: Delivery, initialize: &Message) -> Response {
        let mut response = self.present(answer, initialize.id_to_answer(), session, Pass::Lasting);
        if let Ok(id) = HeaderValue::from_str(&session.id.to_string()) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    fn present(&self, answer: Delivery, id: &str, session: &Arc<Session>, pass: Pass) -> Response {
        match answer {
            Delivery::Whole(whole) => respond::whole(whole),
            Delivery::Acknowledgement { document, start } => respond::json(Body::with_signal(document, start)),
            Delivery::Large { relay, first, rest } => match Body::relayed(relay, &first, rest) {
                Ok(relayed) => respond::json(relayed),
                Err(foreign) => {
                    let failure = Failure::BadAnswer(foreign.to_string());
                    respond::whole(Whole::failed(
                        &self.observer,
                        &session.caller.upstream,
                        Some(&session.caller.who),
                        id,
                        failure,
                    ))
                }
            },
            Delivery::Stream { source, room } => {
                let connection = session.streams().open(id, source, room);
                respond::stream(Events::of_session(connection, session.hold(), pass))
            }
        }
    }
}
