//! What an HTTP error status means, and how servers say that they have forgotten the session ("Session Management").

use http::{Response, StatusCode};

use super::{AnswerBody, link::HttpSession};
use crate::{
    upstream::Failure,
    wire::{Kind, Message, message::Outcome, object::Members},
};

impl HttpSession {
    /// Returns the failure that an HTTP error status stands for.
    pub(super) async fn refusal(&self, response: Response<AnswerBody>) -> Failure {
        if self.session().is_none() {
            return self.server.refusal(response).await;
        }
        if response.status() != StatusCode::NOT_FOUND {
            let failure = self.server.refusal(response).await;
            // A client with a session of its own gets such an answer as it is, and can begin another session.
            if !(self.inbound.pooled && speaks_of_no_session(&failure)) {
                return failure;
            }
        }
        self.lost.cancel();
        if self.inbound.pooled {
            // Other clients' calls run in it too: a stream that has begun says itself how it ends.
            self.inbound.exchanges.abandon_silent(&Failure::SessionLost);
        } else {
            self.inbound.exchanges.abandon_all(&Failure::SessionLost);
        }
        Failure::SessionLost
    }
}

/// Returns whether a server says with status 400 that it does not know the session, as many do that were made after the
/// examples of the SDKs: by an error that answers no request, and names the session.
fn speaks_of_no_session(failure: &Failure) -> bool {
    let Failure::Http(error) = failure else { return false };
    let answer = Message::parse(error.body.clone()).ok().filter(|_| error.status == StatusCode::BAD_REQUEST);
    let Some(answer) = answer.filter(|answer| answer.kind() == Kind::Response) else { return false };
    let (None | Some("null"), Some((Outcome::Error, raw))) = (answer.id(), answer.outcome()) else { return false };
    let why = Members::parse(raw).ok().and_then(|error| error.text("message").map(|why| why.to_ascii_lowercase()));
    why.is_some_and(|why| why.contains("session"))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::upstream::HttpError;

    #[test]
    fn an_error_of_status_400_that_answers_no_request_and_names_the_session_says_that_it_is_unknown() {
        let says = |status: u16, id: &str, message: &str| {
            let body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{message}"}},"id":{id}}}"#);
            let (status, body) = (StatusCode::from_u16(status).expect("a status"), body.into());
            speaks_of_no_session(&Failure::Http(Box::new(HttpError { status, headers: HeaderMap::new(), body })))
        };
        assert!(says(400, "null", "Bad Request: No valid session ID provided"));
        assert!(says(400, "null", "Session not found"));
        assert!(!says(400, "7", "No valid session ID provided"), "it answers a request");
        assert!(!says(400, "null", "Parse error"));
        assert!(!says(500, "null", "No valid session ID provided"));
    }
}
