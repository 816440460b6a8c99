//! What an HTTP error status means, and how servers say that they have forgotten the session ("Session Management").

use std::borrow::Cow;

use http::{Response, StatusCode};

use super::{AnswerBody, link::HttpSession};
use crate::{
    upstream::Failure,
    wire::{Kind, Message, message::Outcome, object::Members},
};

/// How servers made after the SDKs or their examples say with status 400 that they do not know a session.
const UNKNOWN: [&str; 10] = [
    "no valid session",
    "invalid session",
    "invalid or missing session",
    "unknown session",
    "missing session id",
    "session not found",
    "no session found",
    "no such session",
    // Over HTTP+SSE.
    "no transport found for sessionid",
    // A server with one transport, which has begun anew.
    "server not initialized",
];
/// The longest text that is looked at for that, in bytes; and the longest body, with what is around the text.
const MAX_TEXT: usize = 256;
const MAX_BODY: usize = 4 * MAX_TEXT;

impl HttpSession {
    /// Returns the failure that an HTTP error status stands for, with at most `limit` bytes of its body.
    pub(super) async fn refusal(&self, response: Response<AnswerBody>, limit: usize) -> Failure {
        if response.status() != StatusCode::NOT_FOUND || self.session().is_none() {
            return self.server.refusal(response, limit).await;
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

    /// Returns the failure that an HTTP error status stands for, as the answer to a request, to an answer of the client,
    /// or to a stream that was open before. Many servers give these status 400 when they have forgotten the session.
    /// That is only likely, so it ends no other call.
    pub(super) async fn refusal_of_request(&self, response: Response<AnswerBody>, limit: usize) -> Failure {
        let failure = self.refusal(response, limit).await;
        if self.session().is_none() || !speaks_of_no_session(&failure) {
            return failure;
        }
        self.lost.cancel();
        Failure::SessionLost
    }
}

/// Returns whether a server says with status 400 that it does not know the session, by a text or by an error that
/// answers no request.
pub(super) fn speaks_of_no_session(failure: &Failure) -> bool {
    let Failure::Http(error) = failure else { return false };
    if error.status != StatusCode::BAD_REQUEST || error.body.len() > MAX_BODY {
        return false;
    }
    let why = match Message::parse(error.body.clone()) {
        Ok(answer) => match (answer.kind(), answer.id(), answer.outcome()) {
            (Kind::Response, None | Some("null"), Some((Outcome::Error, raw))) => {
                Members::parse(raw).ok().and_then(|error| error.text("message").map(Cow::into_owned))
            }
            _ => None,
        },
        // What is JSON and no such error may be about the request.
        Err(_) if error.body.trim_ascii_start().starts_with(b"{") => None,
        Err(_) => std::str::from_utf8(&error.body).ok().map(str::to_owned),
    };
    let Some(why) = why.filter(|why| why.len() <= MAX_TEXT).map(|why| why.to_ascii_lowercase()) else { return false };
    // Whole words: an argument may be called "session identifier".
    let follows = |end: usize| why[end..].starts_with(char::is_alphanumeric);
    UNKNOWN.iter().any(|words| why.match_indices(words).any(|(at, _)| !follows(at + words.len())))
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::upstream::HttpError;

    #[test]
    fn status_400_with_words_of_an_unknown_session_that_answer_no_request_says_that_it_is_forgotten() {
        let speaks = |status: u16, body: String| {
            let (status, body) = (StatusCode::from_u16(status).expect("a status"), body.into());
            speaks_of_no_session(&Failure::Http(Box::new(HttpError { status, headers: HeaderMap::new(), body })))
        };
        let says = |status: u16, id: &str, message: &str| {
            speaks(status, format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":"{message}"}},"id":{id}}}"#))
        };
        assert!(speaks(400, "Bad Request: No valid session ID provided".to_owned()));
        assert!(speaks(400, "Invalid or missing session ID".to_owned()));
        assert!(!speaks(400, "Missing argument: session_name".to_owned()));
        assert!(!speaks(400, "Missing session identifier argument".to_owned()));
        assert!(!says(400, "null", "Invalid params: the argument 'session id' is required"));
        assert!(!speaks(400, format!("Unknown session{}", " ".repeat(MAX_BODY))));
        assert!(!speaks(400, r#"{"id":7,"error":{"message":"Invalid session ID"}}"#.to_owned()), "it may have run");
        assert!(!says(400, "null", "The session was closed"), "the request may have run");
        assert!(says(400, "null", "Bad Request: No valid session ID provided"));
        assert!(speaks(400, "No transport found for sessionId".to_owned()));
        assert!(says(400, "null", "Session not found"));
        assert!(says(400, "null", "Bad Request: Server not initialized"));
        assert!(!says(400, "7", "No valid session ID provided"), "it answers a request");
        assert!(!says(400, "null", "Parse error"));
        assert!(!says(500, "null", "No valid session ID provided"));
    }
}
