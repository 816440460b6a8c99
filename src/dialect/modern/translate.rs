//! A modern request as a legacy server understands it, and what that server answers as a modern client does.

use bytes::Bytes;

use super::{ClientRequest, PREFIX, SERVER_INFO};
use crate::{
    upstream::ServerFacts,
    wire::{
        Edits, Message, Method, Parts, RpcError,
        legacy::is_error,
        message::Outcome,
        object::{Members, quote},
        params::unambiguous,
        response::error_response,
        tools::listed,
    },
};

/// What a legacy server says of a resource that it does not have; the modern code is -32602.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// Returns the request without what only the modern generation has.
///
/// # Errors
/// -32602 where there is a member twice.
pub(super) fn to_legacy(request: &Message) -> Result<Message, RpcError> {
    let invalid = |why: String| RpcError::invalid_params(format!("Invalid params: {why}"));
    let Some(params) = request.params() else { return Ok(request.clone()) };
    let (members, meta) = unambiguous(params).map_err(invalid)?;
    let mut edits = Edits::of(request.bytes());
    if let Some(meta) = &meta {
        let kept: Vec<_> = meta.iter().filter(|(key, _)| !key.starts_with(PREFIX)).collect();
        if kept.len() < meta.iter().count() {
            let kept: Vec<_> = kept.into_iter().map(|(key, value)| format!("{}:{value}", quote(key))).collect();
            edits.replace_raw(meta.raw(), format!("{{{}}}", kept.join(",")));
        }
    }
    // A task is not asked for.
    if members.get("task").is_some() {
        edits.remove(&members, "task");
    }
    Message::parse(edits.apply().into_bytes()).map_err(|malformed| invalid(malformed.to_string()))
}

/// Returns the server's response under the client's id, as revision 2026-07-28 has it.
///
/// # Errors
/// A sentence saying why it is no response, or has a member twice.
pub(super) fn to_modern(response: &Message, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let (outcome, raw) = response.outcome().ok_or("it is no response")?;
    match outcome {
        Outcome::Result => result(raw, request, facts),
        Outcome::Error => Ok(error(raw, &request.id).into()),
    }
}

/// Returns whether a response is an error, or an error result.
pub(super) fn has_failed(response: &Message) -> bool {
    match response.outcome() {
        Some((Outcome::Result, raw)) => is_error(raw).unwrap_or(true),
        Some((Outcome::Error, _)) | None => true,
    }
}

/// Returns a raw `result` of the server in a response.
///
/// # Errors
/// A sentence saying what has a member twice.
pub(super) fn result(raw: &str, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let source = Bytes::copy_from_slice(raw.as_bytes());
    let text = std::str::from_utf8(&source).map_err(|error| error.to_string())?;
    let (result, meta) = unambiguous(text)?;
    let mut edits = Edits::of(&source);
    if request.method == Method::ToolsList {
        for tool in listed(text)? {
            edits.remove(&tool.members, "execution");
        }
    }
    let mut missing = Vec::new();
    if result.get("resultType").is_none() {
        missing.push(r#""resultType":"complete""#.to_owned());
    }
    if is_cacheable(request.method) {
        let hints = [("ttlMs", "0"), ("cacheScope", r#""private""#)];
        let hints = hints.into_iter().filter(|(member, _)| result.get(member).is_none());
        missing.extend(hints.map(|(member, value)| format!("\"{member}\":{value}")));
    }
    match meta {
        Some(meta) if meta.get(SERVER_INFO).is_none() => edits.set(&meta, SERVER_INFO, &facts.server_info),
        Some(_) => {}
        None => missing.push(format!(r#""_meta":{{"{SERVER_INFO}":{}}}"#, facts.server_info)),
    }
    if !missing.is_empty() {
        let comma = if result.is_empty() { "" } else { "," };
        edits.replace(1..1, missing.join(",") + comma);
    }
    Ok(edits.apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, request.id), "}"))
}

/// Returns the server's error in a response, with the code that the modern generation has for it.
pub(super) fn error(raw: &str, id: &str) -> Bytes {
    let front = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#);
    let members = Members::parse(raw).ok();
    let code = members.as_ref().and_then(|error| error.get("code"));
    match code.filter(|code| code.parse::<f64>().is_ok_and(|code| code == RESOURCE_NOT_FOUND as f64)) {
        Some(code) => {
            let source = Bytes::copy_from_slice(raw.as_bytes());
            let mut edits = Edits::of(&source);
            let at = code.as_ptr() as usize - raw.as_ptr() as usize;
            edits.replace(at..at + code.len(), "-32602");
            edits.apply_between(&front, "}").into_bytes()
        }
        None => error_response(id, raw),
    }
}

/// Section "Cacheable Results".
fn is_cacheable(method: Method) -> bool {
    matches!(method, Method::ToolsList | Method::OtherList | Method::ResourcesRead)
}
