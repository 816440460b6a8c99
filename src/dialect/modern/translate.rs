//! What a legacy server answers, as a modern client understands it.

use bytes::Bytes;
use serde_json::value::RawValue;

use super::{ClientRequest, SERVER_INFO, input::PAGE, param_headers};
use crate::{
    upstream::ServerFacts,
    wire::{
        Edits, Message, Method, Parts,
        legacy::{error_code, error_message, first_text, is_error},
        message::Outcome,
        object::{Members, Needle, may_have, quote},
        params::unambiguous,
        response::{edited_response, result_with_member},
        splice::append_with_member,
        tools::listed,
    },
};

/// Says that a result is complete.
pub(super) const COMPLETE: &str = r#""resultType":"complete""#;
static RESULT_TYPE: Needle = Needle::new("resultType");

/// Returns the server's response under the client's id, as revision 2026-07-28 has it.
///
/// # Errors
/// A sentence saying why it is no response, or has a member twice.
pub(super) fn to_modern(response: &Message, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let (outcome, raw) = response.outcome().ok_or("it is no response")?;
    match outcome {
        Outcome::Result => {
            // A server that knows sessions only means something else by a type.
            let is_typed = |_: &Members<'_>| !facts.versions.is_empty();
            result(&response.bytes().slice_ref(raw.as_bytes()), raw, (request.method, request.id()), facts, is_typed)
        }
        Outcome::Error => {
            let source = response.bytes().slice_ref(raw.as_bytes());
            let mut edits = Edits::of(&source);
            recode(&mut edits, raw, false);
            Ok(edited_response(request.id(), outcome, edits))
        }
    }
}

/// Returns whether a response is an error, or an error result.
pub(super) fn has_failed(response: &Message) -> bool {
    match response.outcome() {
        Some((Outcome::Result, raw)) => is_error(raw).unwrap_or(true),
        Some((Outcome::Error, _)) | None => true,
    }
}

/// Returns the words with which a call has failed, if there are any.
pub(super) fn words_of(failure: &Message) -> Option<String> {
    match failure.outcome()? {
        (Outcome::Result, raw) => first_text(raw),
        (Outcome::Error, raw) => error_message(raw),
    }
}

/// Returns whether a server says that it does not know the method.
pub(super) fn is_unknown_method(response: &Message) -> bool {
    matches!(response.outcome(), Some((Outcome::Error, raw)) if error_code(raw) == Some(-32601))
}

/// Returns whether an error is one with which a modern server refuses a request (status 400), for want of headers or of
/// a revision.
pub(super) fn may_be_of_modern_server(response: &Message) -> bool {
    matches!(response.outcome(), Some((Outcome::Error, raw)) if matches!(error_code(raw), Some(-32020 | -32022)))
}

/// Returns a raw `result` that was kept, or that taskgate has written, in a response.
///
/// # Errors
/// A sentence saying what has a member twice.
pub(super) fn kept_result(source: &Bytes, request: &ClientRequest, facts: &ServerFacts) -> Result<Parts, String> {
    let raw = std::str::from_utf8(source).map_err(|error| error.to_string())?;
    // A server that knows sessions only means something else by any type.
    let is_typed = |kept: &Members<'_>| !facts.versions.is_empty() && may_end_call(kept);
    result(source, raw, (request.method, request.id()), facts, is_typed)
}

/// Returns a raw `result` of the server, whose bytes are `source`, in a response to a request of that method and raw
/// id. `is_typed` says whether its type is one that this revision knows.
///
/// # Errors
/// A sentence saying what has a member twice, where it is read.
fn result(
    source: &Bytes,
    raw: &str,
    (method, id): (Method, &str),
    facts: &ServerFacts,
    is_typed: impl Fn(&Members<'_>) -> bool,
) -> Result<Parts, String> {
    if !is_read(method, raw) {
        return Ok(result_with_member(id, source, raw, &facts.complete));
    }
    let mut edits = Edits::of(source);
    let (result, meta) = unambiguous(raw)?;
    if method == Method::ToolsList {
        for tool in listed(raw)? {
            edits.remove(&tool.members, "execution");
            param_headers::remove(&mut edits, &tool)?;
        }
    }
    let mut missing = Vec::new();
    match result.get("resultType") {
        None => missing.push(COMPLETE.to_owned()),
        Some(_) if is_typed(&result) => {}
        Some(_) => edits.set(&result, "resultType", r#""complete""#),
    }
    if is_cacheable(method) {
        for (member, hint) in [("ttlMs", "0"), ("cacheScope", r#""private""#)] {
            match result.get(member) {
                None => missing.push(format!(r#""{member}":{hint}"#)),
                // A server that knows sessions only means something else by it, as by `resultType`.
                Some(_) => edits.set(&result, member, hint),
            }
        }
        if result.get("nextCursor") == Some("null") {
            edits.remove(&result, "nextCursor");
        }
    }
    match meta {
        Some(meta) if meta.get(SERVER_INFO).is_none() => edits.set(&meta, SERVER_INFO, &facts.server_info),
        Some(_) => {}
        None => {
            let meta = format!(r#"{{"{SERVER_INFO}":{}}}"#, facts.server_info);
            match result.get("_meta") {
                None => missing.push(format!(r#""_meta":{meta}"#)),
                // One that is no object says nothing, and a second one would be ambiguous.
                Some(_) => edits.set(&result, "_meta", &meta),
            }
        }
    }
    if !missing.is_empty() {
        edits.add(raw, missing.join(","));
    }
    Ok(edited_response(id, Outcome::Result, edits))
}

/// Appends a raw result that was kept to a document. It says that it is complete, unless it has a type that the end of a
/// call may have. One that cannot be read is left as it is.
pub(super) fn append_completed(document: &mut Parts, kept: &Bytes) {
    let mut edits = Edits::of(kept);
    if let Ok(raw) = std::str::from_utf8(kept) {
        if !may_have(raw, [&RESULT_TYPE]) {
            return append_with_member(document, kept, raw, COMPLETE);
        }
        if let Ok(result) = Members::parse(raw)
            && !may_end_call(&result)
        {
            edits.set(&result, "resultType", r#""complete""#);
        }
    }
    edits.append_to(document);
}

/// Returns whether a result that was kept has a type that the end of a call may have. Where it has another, its server
/// knows sessions only, and means something else by it.
fn may_end_call(kept: &Members<'_>) -> bool {
    kept.text("resultType").is_some_and(|it| !matches!(&*it, "" | "task" | "input_required"))
}

/// Returns the answer of a server that knows sessions only as a task keeps it, where that is another one: such a server
/// means something else by what this revision reserves.
pub(super) fn kept_in_task(answer: &Message) -> Option<Message> {
    let (outcome, raw) = answer.outcome()?;
    let mut edits = Edits::of(answer.bytes());
    match outcome {
        Outcome::Result if may_have(raw, [&RESULT_TYPE]) => {
            let result = Members::parse(raw).ok().filter(|result| result.get("resultType").is_some())?;
            edits.set(&result, "resultType", r#""complete""#);
        }
        Outcome::Error if matches!(error_code(raw), Some(-32022..=-32020)) => recode(&mut edits, raw, false),
        Outcome::Result | Outcome::Error => return None,
    }
    Message::parse(edits.apply().into_bytes()).ok()
}

/// Returns whether a raw `result` has to be parsed. Most results that are not lists need no parsing.
fn is_read(method: Method, raw: &str) -> bool {
    static KEYS: [Needle; 2] = [Needle::new("\"_meta\""), Needle::new("\"resultType\"")];
    is_cacheable(method) || !raw.starts_with('{') || may_have(raw, KEYS.each_ref())
}

/// Replaces the code of a raw `error` of a server, which is modern or not, with the modern one, where they differ
/// (overview, section "Error Codes").
pub(super) fn recode(edits: &mut Edits<'_>, raw: &str, is_modern: bool) {
    let code = match error_code(raw) {
        // A resource that is not there.
        Some(-32002) => "-32602",
        // Reserved, and without a meaning. Among them is -32042, where no page can be made of it.
        Some(-32099..=-32023) => "-32603",
        // A server that knows sessions only means something else by them.
        Some(-32022..=-32020) if !is_modern => "-32603",
        _ => return,
    };
    if let Ok(error) = Members::parse(raw) {
        edits.set(&error, "code", code);
    }
}

/// Returns the raw `inputRequests` that stand for a server's error -32042, which sends the user to pages (revision
/// 2025-11-25, "Elicitation", section "URL Elicitation Required Error"); `None` for any other error.
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
        requests.push(format!(r#""{PAGE}{number}":{{"method":"elicitation/create","params":{params}}}"#));
    }
    Some(format!("{{{}}}", requests.join(","))).filter(|_| !pages.is_empty())
}

/// Returns whether results of a method say how long they may be cached (section "Cacheable Results").
fn is_cacheable(method: Method) -> bool {
    matches!(method, Method::ToolsList | Method::OtherList | Method::ResourcesRead)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(raw: &str) -> Result<String, String> {
        answered_to(Method::ToolsCall, raw)
    }

    fn answered_to(method: Method, raw: &str) -> Result<String, String> {
        let source = Bytes::copy_from_slice(raw.as_bytes());
        let raw = std::str::from_utf8(&source).expect("text");
        let answer = result(&source, raw, (method, "7"), &ServerFacts::own(), |_| false)?;
        Ok(String::from_utf8(answer.into_bytes().to_vec()).expect("text"))
    }

    #[test]
    fn a_result_gets_each_member_that_it_lacks_once_however_its_own_are_written() {
        let info = ServerFacts::own().server_info;
        let meta = format!(r#""_meta":{{"{SERVER_INFO}":{info}}}"#);
        let complete = format!(r#""resultType":"complete",{meta}"#);
        for (raw, expected) in [
            ("{}", format!("{{{complete}}}")),
            ("{ }", format!("{{{complete} }}")),
            (r#"{"content":[]}"#, format!(r#"{{{complete},"content":[]}}"#)),
            (r#"{"text":"\"_meta\" resultType"}"#, format!(r#"{{{complete},"text":"\"_meta\" resultType"}}"#)),
            (r#"{"a":{"_meta":{}}}"#, format!(r#"{{{complete},"a":{{"_meta":{{}}}}}}"#)),
            (r#"{"resultType":"complete"}"#, format!(r#"{{{meta},"resultType":"complete"}}"#)),
            (r#"{"resultType":"task","taskId":"x"}"#, format!(r#"{{{meta},"resultType":"complete","taskId":"x"}}"#)),
            (r#"{"result\u0054ype":"mine"}"#, format!(r#"{{{meta},"result\u0054ype":"complete"}}"#)),
            (r#"{"_meta":null,"a":1}"#, format!(r#"{{"resultType":"complete",{meta},"a":1}}"#)),
            (r#"{"\u005fmeta":[]}"#, format!(r#"{{"resultType":"complete","\u005fmeta":{{"{SERVER_INFO}":{info}}}}}"#)),
            (
                r#"{"\u005fmeta":{"a":1}}"#,
                format!(r#"{{"resultType":"complete","\u005fmeta":{{"{SERVER_INFO}":{info},"a":1}}}}"#),
            ),
        ] {
            let expected = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{expected}}}"#);
            assert_eq!(answered(raw), Ok(expected), "{raw}");
        }
    }

    #[test]
    fn a_kept_result_has_a_type_that_the_end_of_a_call_may_have() {
        let complete = |raw: &str| {
            let source = Bytes::copy_from_slice(raw.as_bytes());
            let mut document = Parts::default();
            append_completed(&mut document, &source);
            String::from_utf8(document.into_bytes().to_vec()).expect("text")
        };
        for meant_otherwise in [r#""task""#, r#""input_required""#, r#""\u0074ask""#, r#""""#, "5", "null"] {
            let kept = format!(r#"{{"content":[],"resultType":{meant_otherwise}}}"#);
            assert_eq!(complete(&kept), r#"{"content":[],"resultType":"complete"}"#, "{kept}");
        }
        for stays in [r#"{"resultType":"complete"}"#, r#"{"resultType":"com.example/x"}"#] {
            assert_eq!(complete(stays), stays);
        }
        for without in [r#"{"a":1}"#, r#"{"a":{"resultType":"task"}}"#] {
            assert_eq!(complete(without), without.replacen('{', &format!("{{{COMPLETE},"), 1));
        }
    }

    #[test]
    fn what_a_legacy_list_says_of_caching_is_not_believed() {
        for theirs in [r#""ttlMs":-5,"cacheScope":"weird""#, r#""cacheScope":"public","ttlMs":60000"#] {
            let answer = answered_to(Method::OtherList, &format!("{{{theirs}}}")).expect("a list");
            let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
            let hints = (&answer["result"]["ttlMs"], &answer["result"]["cacheScope"]);
            assert_eq!(hints, (&serde_json::json!(0), &serde_json::json!("private")), "{theirs}");
        }
    }

    #[test]
    fn what_a_legacy_list_has_as_null_is_missing() {
        let list = r#"{"tools":[],"nextCursor":null,"ttlMs":null,"cacheScope":null}"#;
        let answer = answered_to(Method::ToolsList, list).expect("tools");
        assert!(answer.ends_with(r#""tools":[],"ttlMs":0,"cacheScope":"private"}}"#), "{answer}");
        let answer = answered_to(Method::OtherList, r#"{"nextCursor":null}"#).expect("nothing");
        let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        assert!(answer["result"].get("nextCursor").is_none(), "{answer}");
    }

    #[test]
    fn a_result_with_a_member_twice_that_is_read_is_refused_and_others_pass_as_they_are() {
        for twice in [r#"{"_meta":{},"_meta":{}}"#, r#"{"resultType":"a","result\u0054ype":"b"}"#] {
            assert!(answered(twice).is_err_and(|why| why.starts_with("duplicate member")), "{twice}");
        }
        let passes = r#""isError":false,"isError":true}"#;
        assert!(answered(&format!("{{{passes}")).is_ok_and(|answer| answer.contains(passes)));
    }
}
