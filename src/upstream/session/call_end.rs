//! Reads what a call gave in the end (section "Task Execution Errors").

use bytes::Bytes;

use crate::{
    upstream::{Failure, excerpt},
    wire::{Message, RpcError, legacy, message::Outcome},
};

/// What a call gave: raw JSON in memory of its own.
#[derive(Debug)]
pub enum CallEnd {
    /// A result.
    Result {
        /// The result.
        raw: Bytes,
        /// What a person may be told, where it says that the tool failed.
        error: Option<String>,
    },
    /// An error of the server.
    Error {
        /// The error.
        raw: Bytes,
        /// What a person may be told of it.
        text: String,
    },
    /// Nothing that can be kept.
    Nothing {
        /// Why, for the client.
        why: String,
        /// Why, for the log.
        cause: String,
    },
}

impl CallEnd {
    /// Returns what a call gave that ended with `ending`. A result of more than `max_result` bytes is not kept.
    #[must_use]
    pub fn of(ending: Result<Message, Failure>, max_result: usize) -> Self {
        let response = match ending {
            Ok(response) => response,
            Err(Failure::TooLarge(_)) => return too_large(max_result),
            Err(failure) => return Self::Nothing { cause: failure.cause().text, why: failure.to_string() },
        };
        let Some((kind, raw)) = response.outcome() else { return nothing("the answer is no response".to_owned()) };
        if raw.len() > max_result {
            return too_large(max_result);
        }
        // A copy: a slice would keep the whole buffer that it was read into.
        let kept = Bytes::copy_from_slice(raw.as_bytes());
        let short = |text: String| excerpt(&text).into_owned();
        match kind {
            Outcome::Result => match legacy::is_error(raw) {
                Ok(true) => {
                    let text = legacy::first_text(raw).unwrap_or_else(|| "the tool reported an error".to_owned());
                    Self::Result { raw: kept, error: Some(short(text)) }
                }
                Ok(false) => Self::Result { raw: kept, error: None },
                Err(why) => nothing(Failure::BadAnswer(format!("{why} in \"result\"")).to_string()),
            },
            Outcome::Error => {
                let text = legacy::error_message(raw).unwrap_or_else(|| raw.to_owned());
                Self::Error { raw: kept, text: short(text) }
            }
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

fn nothing(why: String) -> CallEnd {
    CallEnd::Nothing { cause: why.clone(), why }
}

fn too_large(max_result: usize) -> CallEnd {
    let cause = format!("the result is larger than max_result = {max_result} bytes");
    CallEnd::Nothing { why: format!("limit reached: {cause}"), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_response(rest: &str, max_result: usize) -> (String, String) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        let text_of = |raw: &Bytes| String::from_utf8(raw.to_vec()).expect("text");
        match CallEnd::of(Message::parse(text.into()).map_err(|_| Failure::Abandoned), max_result) {
            CallEnd::Result { raw, error: None } => ("completed".into(), text_of(&raw)),
            CallEnd::Result { raw, error: Some(why) } => (format!("failed: {why}"), text_of(&raw)),
            CallEnd::Error { raw, text } => (format!("error: {text}"), text_of(&raw)),
            CallEnd::Nothing { why, .. } => (format!("nothing: {why}"), String::new()),
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
    fn a_result_over_the_limit_is_not_kept_and_the_limit_is_named() {
        let (status, _) = of_response(r#""result":{"content":[]}"#, 5);
        assert!(status.contains("max_result = 5 bytes"), "{status}");
    }
}
