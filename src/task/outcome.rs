//! How an ending of a call becomes the end of its task (section "Task Execution Errors").

use bytes::Bytes;

use std::sync::Arc;

use super::{Change, End};
use crate::{
    upstream::{Failure, excerpt},
    wire::{Message, RpcError, legacy, message},
};

/// The change that `ending` means, where a result of more than `max_result` bytes is not kept.
pub(super) fn of(ending: Result<Message, Failure>, max_result: usize) -> Change {
    let response = match ending {
        Ok(response) => response,
        Err(Failure::TooLarge(_)) => return too_large(max_result),
        Err(failure) => return failed(failure.to_string()),
    };
    let Some((kind, raw)) = response.outcome() else { return failed("the answer is no response".to_owned()) };
    if raw.len() > max_result {
        return too_large(max_result);
    }
    // A copy: a slice would keep the whole buffer that it was read into.
    let kept = Bytes::copy_from_slice(raw.as_bytes());
    match kind {
        message::Outcome::Result => match legacy::is_error(raw) {
            Ok(true) => {
                let text = legacy::first_text(raw).unwrap_or_else(|| "the tool reported an error".to_owned());
                Change::End(End::Result { raw: kept, is_error: true }, Some(excerpt(&text).into()))
            }
            Ok(false) => Change::End(End::Result { raw: kept, is_error: false }, None),
            Err(why) => failed(Failure::BadAnswer(format!("{why} in \"result\"")).to_string()),
        },
        message::Outcome::Error => {
            let text = legacy::error_message(raw).unwrap_or_else(|| raw.to_owned());
            Change::End(End::Error { raw: kept }, Some(excerpt(&text).into()))
        }
    }
}

/// Returns why a call of that ending failed, for the log; `None` where the answer says so, which is a result.
pub(super) fn why(ending: &Result<Message, Failure>, max_result: usize) -> Option<String> {
    match ending {
        Err(failure) => Some(failure.cause().text),
        Ok(response) if response.outcome().is_some_and(|(_, raw)| raw.len() > max_result) => {
            Some(format!("the result is larger than max_result = {max_result} bytes"))
        }
        Ok(_) => None,
    }
}

/// Returns the code of a JSON-RPC error.
pub(super) fn code(end: &End) -> Option<i64> {
    match end {
        End::Error { raw } => legacy::error_code(std::str::from_utf8(raw).ok()?),
        End::Result { .. } | End::Cancelled => None,
    }
}

/// A failure without an answer of the upstream.
pub(super) fn failed(why: String) -> Change {
    let error = RpcError::internal(why);
    Change::End(End::Error { raw: error.to_raw().into() }, Some(Arc::from(error.message)))
}

fn too_large(max_result: usize) -> Change {
    failed(format!("limit reached: the result is larger than max_result = {max_result} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_response(rest: &str, max_result: usize) -> (String, String) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#);
        match of(Message::parse(text.into()).map_err(|_| Failure::Abandoned), max_result) {
            Change::End(End::Result { raw, is_error: false }, None) => ("completed".into(), text_of(&raw)),
            Change::End(End::Result { raw, is_error: true }, Some(why)) => (format!("failed: {why}"), text_of(&raw)),
            Change::End(End::Error { raw }, Some(why)) => (format!("error: {why}"), text_of(&raw)),
            other => panic!("{other:?}"),
        }
    }

    fn text_of(raw: &Bytes) -> String {
        String::from_utf8(raw.to_vec()).expect("text")
    }

    #[test]
    fn a_result_completes_an_error_result_fails_and_both_are_kept_as_they_are() {
        let (good, bad) = (r#"{"content":[]}"#, r#"{"isError":true,"content":[{"type":"text","text":"no disk"}]}"#);
        assert_eq!(of_response(&format!("\"result\":{good}"), 100), ("completed".into(), good.into()));
        assert_eq!(of_response(&format!("\"result\":{bad}"), 100), ("failed: no disk".into(), bad.into()));
    }

    #[test]
    fn a_json_rpc_error_fails_with_its_message_and_is_kept_as_it_is() {
        let error = r#"{"code":-1,"message":"broken","data":{"x":[1]}}"#;
        assert_eq!(of_response(&format!("\"error\":{error}"), 100), ("error: broken".into(), error.into()));
    }

    #[test]
    fn a_result_with_a_member_twice_fails_and_is_not_kept() {
        for twice in [
            r#"{"isError":false,"content":[],"isError":true}"#,
            r#"{"isError":true,"is\u0045rror":false}"#,
            r#"{"content":[],"content":[]}"#,
            r#"{"_meta":{},"content":[],"_meta":{"a":1}}"#,
            r#"{"content":[],"_meta":{"a":1,"a":2}}"#,
        ] {
            let (status, kept) = of_response(&format!("\"result\":{twice}"), 100);
            assert!(
                status.starts_with("error: the MCP server behind taskgate gave an invalid answer: dup"),
                "{status}"
            );
            assert!(kept.contains("-32603"), "{kept}");
        }
    }

    #[test]
    fn a_result_over_the_limit_fails_and_names_it() {
        let (status, _) = of_response(r#""result":{"content":[]}"#, 5);
        assert!(status.contains("max_result = 5 bytes"), "{status}");
    }
}
