//! Reads what a call gave in the end (section "Task Execution Errors").

use bytes::Bytes;

use crate::{
    upstream::Failure,
    wire::{Message, RpcError, legacy, message::Outcome},
};

/// What a call gave: raw JSON in memory of its own.
#[derive(Debug)]
pub enum CallOutcome {
    /// A result.
    Result {
        /// The result.
        raw: Bytes,
    },
    /// A result that says that the tool failed.
    ErrorResult {
        /// The result.
        raw: Bytes,
        /// The server's own words for a person, if there are any.
        text: Option<String>,
    },
    /// An error of the server.
    Error {
        /// The error.
        raw: Bytes,
        /// The server's own words for a person, if there are any.
        text: Option<String>,
    },
    /// A result of more bytes than are kept.
    TooLarge {
        /// The most bytes that are kept.
        max_result: usize,
    },
    /// Nothing that can be kept.
    Nothing {
        /// Why, for the client.
        why: String,
        /// Why, for the log.
        cause: String,
    },
}

impl CallOutcome {
    /// Reads what a call gave that ended with `ending`. A result of more than `max_result` bytes is not kept.
    #[must_use]
    pub fn of(ending: Result<Message, Failure>, max_result: usize) -> Self {
        let response = match ending {
            Ok(response) => response,
            Err(Failure::TooLarge(_)) => return Self::TooLarge { max_result },
            Err(failure) => return Self::Nothing { cause: failure.cause().text, why: failure.to_string() },
        };
        let Some((kind, raw)) = response.outcome() else { return nothing("the answer is no response".to_owned()) };
        if raw.len() > max_result {
            return Self::TooLarge { max_result };
        }
        // A copy: a slice would keep the whole buffer that it was read into.
        let kept = Bytes::copy_from_slice(raw.as_bytes());
        match kind {
            Outcome::Result => match legacy::is_error(raw) {
                Ok(true) => Self::ErrorResult { raw: kept, text: legacy::first_text(raw) },
                Ok(false) => Self::Result { raw: kept },
                Err(why) => nothing(Failure::BadAnswer(format!("{why} in \"result\"")).to_string()),
            },
            Outcome::Error => Self::Error { raw: kept, text: legacy::error_message(raw) },
        }
    }
}

/// Returns the code of a raw error.
#[must_use]
pub fn error_code(raw: &[u8]) -> Option<i64> {
    legacy::error_code(std::str::from_utf8(raw).ok()?)
}

/// Returns the raw error for a failure of taskgate's own.
#[must_use]
pub fn own_error(why: &str) -> Bytes {
    RpcError::internal(why).to_raw().into()
}

fn nothing(why: String) -> CallOutcome {
    CallOutcome::Nothing { cause: why.clone(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_response(rest: &str, max_result: usize) -> (String, String) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        let text_of = |raw: &Bytes| String::from_utf8(raw.to_vec()).expect("text");
        let words = |text: Option<String>| text.expect("the server's own words");
        match CallOutcome::of(Message::parse(text.into()).map_err(|_| Failure::Abandoned), max_result) {
            CallOutcome::Result { raw } => ("completed".into(), text_of(&raw)),
            CallOutcome::ErrorResult { raw, text } => (format!("failed: {}", words(text)), text_of(&raw)),
            CallOutcome::Error { raw, text } => (format!("error: {}", words(text)), text_of(&raw)),
            CallOutcome::TooLarge { max_result } => (format!("larger than {max_result}"), String::new()),
            CallOutcome::Nothing { why, .. } => (format!("nothing: {why}"), String::new()),
        }
    }

    #[test]
    fn a_result_an_error_result_and_an_error_are_kept_as_they_are_and_told_apart() {
        let (good, bad) = (r#"{"content":[]}"#, r#"{"isError":true,"content":[{"type":"text","text":"no disk"}]}"#);
        assert_eq!(of_response(&format!("\"result\":{good}"), 100), ("completed".into(), good.into()));
        assert_eq!(of_response(&format!("\"result\":{bad}"), 100), ("failed: no disk".into(), bad.into()));
        let error = r#"{"code":-1,"message":"broken","data":{"x":[1]}}"#;
        assert_eq!(of_response(&format!("\"error\":{error}"), 100), ("error: broken".into(), error.into()));
        assert_eq!(error_code(error.as_bytes()), Some(-1));
    }

    #[test]
    fn a_result_with_a_member_twice_is_not_kept() {
        for twice in [
            r#"{"isError":false,"content":[],"isError":true}"#,
            r#"{"isError":true,"is\u0045rror":false}"#,
            r#"{"content":[],"content":[]}"#,
            r#"{"_meta":{},"content":[],"_meta":{"a":1}}"#,
            r#"{"content":[],"_meta":{"a":1,"a":2}}"#,
        ] {
            let (status, _) = of_response(&format!("\"result\":{twice}"), 100);
            let says = "nothing: the MCP server behind taskgate gave an invalid answer: dup";
            assert!(status.starts_with(says), "{status}");
        }
    }

    #[test]
    fn a_result_over_the_limit_is_not_kept() {
        assert_eq!(of_response(r#""result":{"content":[]}"#, 5), ("larger than 5".into(), String::new()));
    }
}
