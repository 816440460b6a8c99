//! POST: one message of a client (section "Sending Messages to the Server").

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{
    Body,
    headers::{SESSION_ID, accepts_answers, is_json, speaks_version},
    intake::Intake,
    sse,
};
use crate::{
    gate::{
        Gate, Response,
        answer::{Answer, Whole},
        refuse::{Refusal, json},
        session::Accepted,
    },
    identity::{Pass, Principal},
    route::is_modern,
    session::Session,
    upstream::{Failure, HttpError, Upstream},
    wire::{Kind, Message, Method},
};

impl Gate {
    pub(super) async fn post(
        self: &Arc<Self>,
        upstream: &Arc<Upstream>,
        principal: Option<Principal>,
        headers: HeaderMap,
        intake: Intake,
    ) -> Result<Response, Refusal> {
        is_json(&headers)?;
        accepts_answers(&headers)?;
        speaks_version(&headers)?;
        let message = intake.message(&self.bodies).await?;
        if is_modern(&message) {
            return Err(Refusal::modern().answering(message.id()));
        }
        let initialize = message.kind() == Kind::Request && message.method() == Method::Initialize;
        if initialize && !headers.contains_key(SESSION_ID) {
            // Rare paths are boxed, so that every request's future stays small.
            let headers = Self::onward(upstream, headers).map_err(|refusal| refusal.answering(message.id()))?;
            let principal = principal.map(|principal| principal.name);
            let opening = Box::pin(self.open(upstream, principal, &message, headers));
            return Ok(match opening.await {
                Ok((session, answer)) => self.opened(&session, answer, &message),
                Err(whole) => present_whole(whole),
            });
        }
        let session = self.session(&upstream.id, principal.as_ref(), &headers);
        let in_use = session.map_err(|refusal| refusal.answering(message.id()))?;
        let session = in_use.get();
        let headers = Self::onward(&session.upstream, headers).map_err(|refusal| refusal.answering(message.id()))?;
        match message.kind() {
            Kind::Request => {
                let id: Box<str> = message.id_to_answer().into();
                // A call goes on when its token has ended, and its answer comes; a result is for who may ask for it now.
                let retrieves = message.method() == Method::TasksResult;
                let pass = principal.filter(|_| retrieves).map_or(Pass::Lasting, |principal| principal.pass);
                let answer = self.request(session, message, headers, true).await?;
                Ok(self.present(answer, &id, session, pass))
            }
            Kind::Notification | Kind::Response => Ok(match Box::pin(self.accept(session, message, headers)).await? {
                Accepted::Yes => accepted(),
                Accepted::Unauthorized(error) => passed_on(&error),
            }),
        }
    }

    /// The answer to `initialize`, with the id of the session.
    fn opened(&self, session: &Arc<Session>, answer: Answer, initialize: &Message) -> Response {
        let mut response = self.present(answer, initialize.id_to_answer(), session, Pass::Lasting);
        if let Ok(id) = HeaderValue::from_str(&session.id.to_string()) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    fn present(&self, answer: Answer, id: &str, session: &Arc<Session>, pass: Pass) -> Response {
        match answer {
            Answer::Whole(whole) => present_whole(whole),
            Answer::Acknowledgement(document, start) => json(Body::with_signal(document, start)),
            Answer::Large(relay, first, rest) => match Body::relayed(relay, &first, rest) {
                Ok(relayed) => json(relayed),
                Err(foreign) => {
                    let failure = Failure::BadAnswer(foreign.to_string());
                    present_whole(self.failed(&session.upstream, Some(&session.who), id, failure))
                }
            },
            Answer::Stream(source, room) => {
                sse::response(session.streams().open(id, source, room), session.hold(), pass)
            }
        }
    }
}

/// An error in answer to a request that was understood has status 200 too: clients take any other status for a fault of
/// the connection and drop every request on it.
fn present_whole(whole: Whole) -> Response {
    match whole {
        Whole::Document(document) => json(document),
        Whole::Unauthorized(error) => passed_on(&error),
    }
}

fn accepted() -> Response {
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// An upstream's HTTP error as it came.
fn passed_on(error: &HttpError) -> Response {
    let mut response = Response::new(Body::from(error.body.clone()));
    *response.status_mut() = error.status;
    for name in [header::CONTENT_TYPE, header::WWW_AUTHENTICATE] {
        for value in error.headers.get_all(&name) {
            response.headers_mut().append(name.clone(), value.clone());
        }
    }
    response
}
