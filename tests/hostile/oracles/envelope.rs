//! `wire/message.rs`, `wire/envelope.rs` and `wire/depth.rs`: what is a message, and which members it has.

use std::collections::HashMap;

use bytes::Bytes;
use taskgate::wire::{
    Kind, Malformed, Message, Method, RpcError,
    depth::{MAX_DEPTH, nests_too_deep},
    last_metas,
    message::Outcome,
    object::Members,
    received::{Received, receive},
};

use super::{
    json::{self, Inner, Node, Problem},
    meaning,
};

/// Takes the input as the body of a request, and as a message of an upstream.
pub fn check(input: &[u8]) {
    // What was remembered for another input makes room.
    (0..last_metas::MOST).for_each(|nth| last_metas::remember(&format!("{{\"other\":{nth}}}")));
    let bytes = Bytes::from(super::document(input).into_owned());
    let tree = std::str::from_utf8(&bytes).ok().map(|text| (text, json::parse(text, MAX_DEPTH)));
    match &tree {
        Some((_, Ok(_))) => assert!(!nests_too_deep(&bytes), "refused for a depth that it has not"),
        Some((_, Err(Problem::TooDeep))) => assert!(nests_too_deep(&bytes), "too deep, and let through"),
        _ => {}
    }
    let (one, all) = (Message::parse(bytes.clone()), receive(&bytes));
    match tree {
        Some((_, Err(Problem::TooDeep))) => {}
        Some((text, Ok(tree))) => {
            agree(text, kind(text, &tree, false), &tree, &one);
            // Each item of a batch is what it would be alone, whatever the others are.
            let items = if let Inner::Items(items) = &tree.inner { &items[..] } else { std::slice::from_ref(&tree) };
            assert_eq!(items.len(), all.len());
            for (item, received) in items.iter().zip(&all) {
                let raw = if items.len() == 1 && one.is_ok() { text } else { item.raw(text) };
                let parsed = match received {
                    Received::Message(message) => Ok(message.clone()),
                    Received::Broken(broken) => Err(Malformed::NotJson(broken.why.clone())),
                };
                assert!(parsed.as_ref().is_ok_and(|message| message.text() == raw) || parsed.is_err());
                let tree = json::parse(raw, MAX_DEPTH).expect("JSON");
                agree(raw, kind(raw, &tree, true), &tree, &parsed);
            }
        }
        _ => {
            assert!(matches!(one, Err(Malformed::NotJson(_) | Malformed::Batch)), "no JSON, but {one:?}");
            assert!(matches!(all[..], [Received::Broken(_)]), "no JSON, but {all:?}");
        }
    }
    all.iter().for_each(meaning::broken);
    match one {
        Ok(message) => {
            assert_eq!(message.bytes(), &bytes, "a message is not the bytes that came");
            meaning::check(&message);
            come_again(&message);
        }
        Err(malformed) => refusal(malformed),
    }
}

/// Checks that a message is the same where its `_meta` has come before and is stepped over.
fn come_again(message: &Message) {
    let params = message.params().and_then(|params| Members::parse(params).ok());
    if let Some(meta) = params.as_ref().and_then(|params| params.get("_meta")).filter(|meta| meta.starts_with('{')) {
        last_metas::remember(meta);
        let again = Message::parse(message.bytes().clone());
        assert_eq!(again.map(|again| format!("{again:?}")), Ok(format!("{message:?}")));
        let members = message.params().map(|params| format!("{:?}", Members::parse(params)));
        assert_eq!(members, params.map(|params| format!("{:?}", Ok::<_, String>(params))));
    }
}

/// Checks that the envelope is what the members of the object say.
fn agree(text: &str, expected: Option<Kind>, tree: &Node, parsed: &Result<Message, Malformed>) {
    let Ok(message) = parsed else {
        assert_eq!(expected, None, "refused: {parsed:?}");
        return;
    };
    assert_eq!(Some(message.kind()), expected);
    let Inner::Members(members) = &tree.inner else { panic!("no object, but a message") };
    let named = |name: &str| {
        let mut of_that_name =
            members.iter().filter(|(key, _)| string(&text[key.clone()]).is_some_and(|key| key == name));
        let first = of_that_name.next();
        assert!(of_that_name.next().is_none(), "{name:?} is there twice, and was accepted");
        first.map(|(_, node)| node)
    };
    let raw = |name| named(name).map(|node| node.raw(text));
    assert_eq!(message.id(), raw("id"));
    assert_eq!(message.id_span(), named("id").map(|node| node.span.clone()));
    assert_eq!(message.params(), raw("params"));
    let outcome = match (raw("result"), raw("error")) {
        (Some(result), None | Some("null")) => Some((Outcome::Result, result)),
        (_, error) => error.map(|error| (Outcome::Error, error)),
    };
    assert_eq!(message.outcome(), outcome);
    let method = raw("method").and_then(string).map_or(Method::Other, |name| Method::of(&name));
    assert_eq!(message.method(), method);
}

/// Returns what a JSON text is as a message, by the members of the envelope (JSON-RPC 2.0, sections 4 and 5, and MCP's
/// rules); of a server's response also what the outcome is.
fn kind(text: &str, tree: &Node, of_server: bool) -> Option<Kind> {
    let Inner::Members(members) = &tree.inner else { return None };
    let mut envelope = HashMap::new();
    for (key, node) in members {
        let key = string(&text[key.clone()])?;
        let known = ["jsonrpc", "id", "method", "params", "result", "error"].contains(&key.as_str());
        if known && envelope.insert(key, node.raw(text)).is_some() {
            return None;
        }
    }
    let has = |name: &str| envelope.contains_key(name);
    let id = envelope.get("id").map(|raw| raw.starts_with('"') || raw.bytes().all(|b| b == b'-' || b.is_ascii_digit()));
    // Of the two members of a response the other one may be null.
    let other = |name: &str| envelope.get(name).is_none_or(|raw| *raw == "null");
    let result = envelope.get("result").is_some_and(|raw| !of_server || raw.starts_with('{')) && other("error");
    let error = envelope.get("error").is_some_and(|raw| !of_server || is_error(raw)) && other("result") && !result;
    let neither = !has("result") && !has("error");
    let kind = match (has("method"), id) {
        (true, Some(true)) if neither => Kind::Request,
        (true, None) if neither => Kind::Notification,
        (false, Some(true)) if result => Kind::Response,
        (false, id) if error && (id != Some(false) || envelope["id"] == "null") => Kind::Response,
        _ => return None,
    };
    let params_fit = kind == Kind::Response || envelope.get("params").is_none_or(|raw| raw.starts_with('{'));
    let method_fits = envelope.get("method").is_none_or(|raw| string(raw).is_some());
    let version_fits = string(envelope.get("jsonrpc")?)? == "2.0";
    let is_named =
        || envelope.get("method").and_then(|raw| string(raw)).is_some_and(|n| n.starts_with("notifications/"));
    let name_fits = !of_server || kind != Kind::Request || !is_named();
    (version_fits && method_fits && params_fit && name_fits).then_some(kind)
}

/// Returns whether raw JSON is an error: an integer `code`, a string `message`, and no duplicate member.
fn is_error(raw: &str) -> bool {
    let tree = json::parse(raw, MAX_DEPTH).expect("JSON");
    let Some(members) = tree.members(raw) else { return false };
    let member = |name: &str| members.iter().find(|(key, _)| key == name).map(|(_, node)| node.raw(raw));
    let code = member("code").and_then(|raw| serde_json::from_str::<f64>(raw).ok());
    code.is_some_and(|code| code.fract().abs() < f64::MIN_POSITIVE)
        && member("message").is_some_and(|raw| raw.starts_with('"'))
}

/// Returns the text of a raw string; `None` for anything else, and for one that no string can hold.
fn string(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

/// Checks that the answer to a refused body is a message itself.
fn refusal(malformed: Malformed) {
    let id = match &malformed {
        Malformed::Invalid { id, .. } => id.clone(),
        _ => None,
    };
    let answer = Message::parse(RpcError::from(malformed).to_response(id.as_deref())).expect("an error response");
    assert_eq!((answer.kind(), answer.id()), (Kind::Response, id.as_deref()));
}
