//! Why an exchange with an upstream ended without a response.

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header::LOCATION};

use crate::{
    net::without_secrets,
    observe::events::Cause,
    wire::{RpcError, excerpt},
};

/// Why an upstream did not answer. taskgate sends a tool call again only after [`Self::SessionLost`], and only where the
/// server has refused it unrun.
#[derive(Clone, Debug)]
pub enum Failure {
    /// No connection could be made.
    Unreachable(String),
    /// The upstream answered with an HTTP error, which a plain call passes on as it is.
    Http(Box<HttpError>),
    /// The upstream refuses taskgate itself, with wrong or missing credentials, with this status: 401 or 403.
    Refused(StatusCode),
    /// The upstream refuses `initialize` by POST, and the older transport fails as well.
    NoTransport {
        /// How the POST was refused.
        post: Box<Self>,
        /// Why the GET opened no stream.
        get: Box<Self>,
    },
    /// The upstream does not know the session any more.
    SessionLost,
    /// The answer violates the protocol.
    BadAnswer(String),
    /// The connection or the answer's stream ended before the response.
    Incomplete(String),
    /// The answer is larger than the limit, in bytes.
    TooLarge(usize),
    /// A limit of taskgate was reached; the text names it.
    Limit(String),
    /// The stdio child is gone.
    ProcessEnded(String),
    /// The client reads too slowly for what the upstream asks of it.
    ClientTooSlow,
    /// The session ended before the response.
    Abandoned,
    /// taskgate made a mistake: it panicked.
    OwnFault,
    /// The process stops.
    Stopping,
    /// The requestor cancelled the request, so it gets no response.
    Cancelled,
    /// The upstream did not answer in time.
    TimedOut(Duration),
    /// A question of the upstream was not answered, and it cannot be told so.
    Unanswered(String),
}

/// An upstream's answer with an HTTP error status.
#[derive(Clone, Debug)]
pub struct HttpError {
    /// The status.
    pub status: StatusCode,
    /// All headers of the answer.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl HttpError {
    /// Returns whether the error is about the identity of the requestor.
    #[must_use]
    pub fn is_authorization(&self) -> bool {
        matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => {
                write!(f, "the MCP server behind taskgate cannot be reached: {}", excerpt(why))
            }
            Self::Http(error) => {
                let status = error.status;
                write!(f, "the MCP server behind taskgate answered HTTP {status}")?;
                if let Some(location) = error.headers.get(LOCATION).filter(|_| status.is_redirection()) {
                    let location = String::from_utf8_lossy(location.as_bytes());
                    let location = excerpt(&location);
                    return write!(
                        f,
                        ", a redirect to {location:?}, which is not followed; set the upstream's url to it"
                    );
                }
                let text = String::from_utf8_lossy(&error.body);
                let text = text.trim();
                if !text.is_empty() {
                    write!(f, ": {}", excerpt(text))?;
                }
                Ok(())
            }
            Self::Refused(status) => write!(
                f,
                "the MCP server behind taskgate refuses taskgate itself with HTTP {status}; the client's Authorization \
                 is not passed on, so its operator has to set the upstream's headers"
            ),
            Self::NoTransport { post, get } => {
                write!(f, "{post}; nor did a GET there open an HTTP+SSE stream of revision 2024-11-05: {get}")
            }
            Self::SessionLost => {
                f.write_str(
                    "the MCP server behind taskgate has ended the session of this request, which may have had an effect; check \
                     before you repeat it",
                )
            }
            Self::BadAnswer(why) => {
                write!(f, "the MCP server behind taskgate gave an invalid answer: {}", excerpt(why))
            }
            Self::Incomplete(why) => {
                write!(f, "the MCP server behind taskgate ended its answer before the response: {}", excerpt(why))
            }
            Self::TooLarge(limit) => {
                write!(f, "the answer of the MCP server behind taskgate is larger than the limit of {limit} bytes")
            }
            Self::Limit(why) => f.write_str(why),
            Self::ProcessEnded(why) => write!(f, "the MCP server process behind taskgate has ended: {why}"),
            Self::ClientTooSlow => {
                f.write_str("the client does not read what the server sends it; the stream was ended")
            }
            Self::Abandoned => f.write_str("the call was abandoned because its session has ended"),
            Self::OwnFault => f.write_str(
                "taskgate made a mistake and gave up the call, which may have had an effect; its log says more",
            ),
            Self::Stopping => f.write_str("taskgate is stopping; try again when it is back"),
            Self::Cancelled => f.write_str("the request was cancelled"),
            Self::TimedOut(limit) => {
                let limit = humantime::format_duration(*limit);
                write!(f, "the MCP server behind taskgate did not answer within {limit}")
            }
            Self::Unanswered(why) => {
                write!(f, "a question of the MCP server behind taskgate was not answered: {}", excerpt(why))
            }
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// Returns whether the server may go on with the request, and ask in its course: it has the request, and has not
    /// said that it ends it.
    pub(super) fn leaves_the_server_working(&self) -> bool {
        match self {
            // A gateway may have lost the answer.
            Self::Http(error) => error.status.is_server_error() || error.status == StatusCode::REQUEST_TIMEOUT,
            Self::BadAnswer(_)
            | Self::Incomplete(_)
            | Self::TooLarge(_)
            | Self::ClientTooSlow
            | Self::Abandoned
            | Self::OwnFault
            | Self::Cancelled
            | Self::TimedOut(_)
            | Self::Unanswered(_) => true,
            Self::Unreachable(_)
            | Self::Refused(_)
            | Self::NoTransport { .. }
            | Self::SessionLost
            | Self::Limit(_)
            | Self::ProcessEnded(_)
            | Self::Stopping => false,
        }
    }

    /// Returns what the log says about it. That never contains a body of the server, which may be a result.
    #[must_use]
    pub fn cause(&self) -> Cause {
        Cause { kind: self.kind(), text: self.for_the_log(), of_server: self.is_of_server() }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Http(_) => "http",
            Self::Refused(_) => "refused",
            Self::NoTransport { .. } => "no_transport",
            Self::SessionLost => "session_lost",
            Self::BadAnswer(_) => "bad_answer",
            Self::Incomplete(_) => "incomplete",
            Self::TooLarge(_) => "too_large",
            Self::Limit(_) => "limit",
            Self::ProcessEnded(_) => "process_ended",
            Self::ClientTooSlow => "client_too_slow",
            Self::Abandoned => "abandoned",
            Self::OwnFault => "own_fault",
            Self::Stopping => "stopping",
            Self::Cancelled => "cancelled",
            Self::TimedOut(_) => "timed_out",
            Self::Unanswered(_) => "unanswered",
        }
    }

    /// Returns whether the server, or the way to it, caused the failure, and not the client or the end of the process.
    fn is_of_server(&self) -> bool {
        !matches!(
            self,
            Self::ClientTooSlow
                | Self::Abandoned
                | Self::OwnFault
                | Self::Stopping
                | Self::Cancelled
                | Self::Unanswered(_)
        )
    }

    fn for_the_log(&self) -> String {
        match self {
            Self::Http(error) => {
                let (status, size) = (error.status, error.body.len());
                let location = error.headers.get(LOCATION).filter(|_| status.is_redirection());
                let location = location.and_then(|location| location.to_str().ok()?.parse::<Uri>().ok());
                match location {
                    Some(location) => format!("HTTP {status} to {}", excerpt(&without_secrets(&location))),
                    None => format!("HTTP {status} with a body of {size} bytes"),
                }
            }
            Self::NoTransport { post, get } => format!("{}; by GET {}", post.for_the_log(), get.for_the_log()),
            other => other.to_string(),
        }
    }
}

impl From<&Failure> for RpcError {
    fn from(failure: &Failure) -> Self {
        Self::internal(failure.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_cut_and_escaped_in_every_failure() {
        let words = format!("\u{1b}[2J{}", "x".repeat(1 << 20));
        let mut headers = HeaderMap::new();
        let location = format!("http://host/{}?key=secret", "x".repeat(10_000));
        headers.insert(LOCATION, location.parse().expect("a header"));
        let http = |status, headers: &HeaderMap| {
            let error = HttpError { status, headers: headers.clone(), body: words.clone().into() };
            Failure::Http(Box::new(error))
        };
        let failures = [
            Failure::Unreachable(words.clone()),
            Failure::BadAnswer(words.clone()),
            Failure::Incomplete(words.clone()),
            http(StatusCode::BAD_GATEWAY, &headers),
            http(StatusCode::FOUND, &headers),
            Failure::NoTransport {
                post: Box::new(http(StatusCode::BAD_GATEWAY, &headers)),
                get: Box::new(Failure::BadAnswer(words.clone())),
            },
        ];
        for failure in failures {
            for text in [failure.to_string(), failure.cause().text] {
                assert!(text.len() < 2000, "{} bytes", text.len());
                assert!(!text.contains('\u{1b}'), "{text}");
            }
        }
    }

    #[test]
    fn the_log_has_the_status_and_size_of_an_http_error_and_where_a_redirect_leads_without_its_query() {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, "https://ann:secret@host/a?key=secret".parse().expect("a header"));
        let said = |status| {
            let error = HttpError { status, headers: headers.clone(), body: Bytes::from_static(b"secret") };
            Failure::Http(Box::new(error)).cause().text
        };
        assert_eq!(said(StatusCode::BAD_GATEWAY), "HTTP 502 Bad Gateway with a body of 6 bytes");
        assert_eq!(said(StatusCode::FOUND), "HTTP 302 Found to https://host/a");
    }
}
