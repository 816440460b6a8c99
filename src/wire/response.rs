//! The responses and the cancellation that taskgate writes itself.

use bytes::Bytes;

use super::{Edits, Parts, message::Outcome, object::quote, splice::append_with_member};

/// Writes the response `{"jsonrpc":"2.0","id":…,"result":…}` from raw parts.
#[must_use]
pub fn result_response(id: &str, result: &str) -> Bytes {
    response(id, "\"result\"", result)
}

/// Writes the response `{"jsonrpc":"2.0","id":…,"error":…}` from raw parts.
#[must_use]
pub fn error_response(id: &str, error: &str) -> Bytes {
    response(id, "\"error\"", error)
}

/// Returns the response to the request with that raw `id`, whose result or error is an edited document.
#[must_use]
pub fn edited_response(id: &str, outcome: Outcome, edits: Edits<'_>) -> Parts {
    edits.apply_between(&front(id, outcome), "}")
}

/// Returns the response to the request with that raw `id`, whose result is the raw object `result` of `source` with one
/// more raw member, which it must not have.
#[must_use]
pub fn result_with_member(id: &str, source: &Bytes, result: &str, member: &str) -> Parts {
    let mut response = Parts::beginning(&front(id, Outcome::Result), source.len() + member.len() + ",}".len());
    append_with_member(&mut response, source, result, member);
    response.push("}");
    response
}

fn front(id: &str, outcome: Outcome) -> [&str; 3] {
    let member = match outcome {
        Outcome::Result => r#","result":"#,
        Outcome::Error => r#","error":"#,
    };
    [r#"{"jsonrpc":"2.0","id":"#, id, member]
}

fn response(id: &str, member: &str, raw: &str) -> Bytes {
    let mut out = String::with_capacity(28 + id.len() + member.len() + raw.len());
    for part in ["{\"jsonrpc\":\"2.0\",\"id\":", id, ",", member, ":", raw, "}"] {
        out.push_str(part);
    }
    out.into()
}

/// Writes the response to `ping`, under its raw id.
#[must_use]
pub fn pong(id: &str) -> Bytes {
    result_response(id, "{}")
}

/// Writes the notification that cancels the request of the raw id `request`.
#[must_use]
pub fn cancelled(request: &str, reason: &str) -> Bytes {
    let params = format!(r#"{{"requestId":{request},"reason":{}}}"#, quote(reason));
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{params}}}"#).into()
}
