//! A modern request as a legacy server understands it, and what that server answers as a modern client does.

use std::borrow::Cow;

use bytes::Bytes;

use serde_json::value::RawValue;

use super::{ClientRequest, PREFIX, SERVER_INFO};
use crate::{
    upstream::ServerFacts,
    wire::{
        Edits, Message, Method, Parts, RpcError,
        legacy::{error_code, is_error},
        message::Outcome,
        object::{Members, quote},
        params::unambiguous,
        tools::listed,
    },
};

/// What a legacy server says of a resource that it does not have; the modern code is -32602.
const RESOURCE_NOT_FOUND: i64 = -32002;

/// The members of `params` that a legacy server has no use for: the answers of a retry, and a wish for a task.
const MODERN: [&str; 3] = ["inputResponses", "requestState", "task"];

/// Returns a raw object of raw members.
fn object<'a>(members: impl Iterator<Item = (&'a str, Cow<'a, str>)>) -> String {
    let members: Vec<_> = members.map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    format!("{{{}}}", members.join(","))
}

/// Returns the request without what only the modern generation has.
///
/// # Errors
/// -32602 where there is a member twice.
pub(super) fn to_legacy(request: &Message) -> Result<Message, RpcError> {
    let invalid = |why: String| RpcError::invalid_params(format!("Invalid params: {why}"));
    let Some(params) = request.params() else { return Ok(request.clone()) };
    let (members, meta) = unambiguous(params).map_err(invalid)?;
    let is_kept = |key: &str| !key.starts_with(PREFIX);
    // Usually nothing of it is left.
    let empties = meta.as_ref().is_some_and(|meta| !meta.iter().any(|(key, _)| is_kept(key)));
    let legacy_meta = meta.as_ref().filter(|_| !empties).map(|meta| {
        let kept = meta.iter().filter(|(key, _)| is_kept(key));
        object(kept.map(|(key, value)| (key, value.into())))
    });
    let mut edits = Edits::of(request.bytes());
    if members.iter().any(|(key, _)| MODERN.contains(&key)) {
        let goes = |key: &str| MODERN.contains(&key) || empties && key == "_meta";
        let kept = members.iter().filter(|(key, _)| !goes(key)).map(|(key, value)| match &legacy_meta {
            Some(meta) if key == "_meta" => (key, Cow::Borrowed(&**meta)),
            _ => (key, value.into()),
        });
        edits.replace_raw(members.raw(), object(kept));
    } else if empties {
        edits.remove(&members, "_meta");
    } else if let (Some(meta), Some(legacy)) = (&meta, legacy_meta) {
        edits.replace_raw(meta.raw(), legacy);
    }
    Ok(request.with_edited_params(edits))
}

/// Returns the server's response under the client's id, as revision 2026-07-28 has it.
///
/// # Errors
/// A sentence saying why it is no response, or has a member twice.
pub(super) fn to_modern(response: &Message, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let (outcome, raw) = response.outcome().ok_or("it is no response")?;
    match outcome {
        Outcome::Result => result(&response.bytes().slice_ref(raw.as_bytes()), raw, request, facts),
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

/// Returns whether a modern server refuses a request so, with status 400: it asks for headers, or for a revision.
pub(super) fn may_be_of_modern_server(response: &Message) -> bool {
    matches!(response.outcome(), Some((Outcome::Error, raw)) if matches!(error_code(raw), Some(-32020 | -32022)))
}

/// Returns a raw `result` that was kept, or that taskgate has written, in a response.
///
/// # Errors
/// A sentence saying what has a member twice.
pub(super) fn kept_result(source: &Bytes, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let raw = std::str::from_utf8(source).map_err(|error| error.to_string())?;
    result(source, raw, request, facts)
}

/// Returns a raw `result` of the server, whose bytes are `source`, in a response.
///
/// # Errors
/// A sentence saying what has a member twice.
fn result(source: &Bytes, raw: &str, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let (result, meta) = unambiguous(raw)?;
    let mut edits = Edits::of(source);
    if request.method == Method::ToolsList {
        for tool in listed(raw)? {
            edits.remove(&tool.members, "execution");
        }
    }
    // Each with a comma behind it.
    let mut missing = String::with_capacity(64 + facts.server_info.len());
    if result.get("resultType").is_none() {
        missing.push_str(r#""resultType":"complete","#);
    }
    if is_cacheable(request.method) {
        for (member, hint) in [("ttlMs", r#""ttlMs":0,"#), ("cacheScope", r#""cacheScope":"private","#)] {
            if result.get(member).is_none() {
                missing.push_str(hint);
            }
        }
    }
    match meta {
        Some(meta) if meta.get(SERVER_INFO).is_none() => edits.set(&meta, SERVER_INFO, &facts.server_info),
        Some(_) => {}
        None => {
            for part in [r#""_meta":{""#, SERVER_INFO, "\":", &facts.server_info, "},"] {
                missing.push_str(part);
            }
        }
    }
    if result.is_empty() {
        missing.pop();
    }
    if !missing.is_empty() {
        edits.replace(1..1, missing);
    }
    Ok(edits.apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, request.id), "}"))
}

/// Returns the server's error in a response, with the code that the modern generation has for it.
pub(super) fn error(raw: &str, id: &str) -> Bytes {
    let source = Bytes::copy_from_slice(raw.as_bytes());
    let mut edits = Edits::of(&source);
    if error_code(raw) == Some(RESOURCE_NOT_FOUND)
        && let Some(error) = std::str::from_utf8(&source).ok().and_then(|raw| Members::parse(raw).ok())
    {
        edits.set(&error, "code", "-32602");
    }
    edits.apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#), "}").into_bytes()
}

/// Returns the raw `inputRequests` that stand for a server's error -32042, which sends the user to pages (revision 2025-11-25,
/// "Elicitation", section "URL Elicitation Required Error"); `None` for any other error.
pub(super) fn pages_to_visit(response: &Message) -> Option<String> {
    let Some((Outcome::Error, raw)) = response.outcome() else { return None };
    let error = Members::parse(raw).ok()?;
    if error.get("code")? != "-32042" {
        return None;
    }
    let pages: Vec<&RawValue> = serde_json::from_str(error.object("data")?.get("elicitations")?).ok()?;
    let mut requests = Vec::new();
    for (number, page) in pages.iter().enumerate() {
        let page = Members::parse(page.get()).ok()?;
        let (message, url) = (page.text("message")?, page.text("url")?);
        let params = format!(r#"{{"mode":"url","message":{},"url":{}}}"#, quote(&message), quote(&url));
        requests.push(format!(r#""page-{number}":{{"method":"elicitation/create","params":{params}}}"#));
    }
    Some(format!("{{{}}}", requests.join(","))).filter(|_| !pages.is_empty())
}

/// Section "Cacheable Results".
fn is_cacheable(method: Method) -> bool {
    matches!(method, Method::ToolsList | Method::OtherList | Method::ResourcesRead)
}
