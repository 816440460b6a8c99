//! What is read from messages further in: members, capabilities, the tasks dialect. A check of every accepted envelope.

use std::time::Duration;

use serde_json::{Value, json};
use taskgate::{
    route,
    wire::{
        ClientCapabilities, Kind, Message,
        beginning::response_number,
        depth::MAX_DEPTH,
        legacy::{self, RELATED_TASK, RequestedTtl},
        message::{Outcome, echoed_number},
        object::{Members, quote, unquote},
    },
};
use uuid::Uuid;

use super::json::{self, Inner, Node};

const TASK: Uuid = Uuid::from_u128(7);

/// Reads all that taskgate may read from a message.
pub fn check(message: &Message) {
    if let Some(raw) = message.params() {
        object(raw);
        read(raw);
    }
    if let Some((_, raw)) = message.outcome() {
        read(raw);
    }
    if message.kind() == Kind::Response {
        let number = message.id().and_then(echoed_number);
        let found = response_number(message.bytes());
        // A `method`, or an id that no string can hold, hides it.
        assert!(found == number || found.is_none(), "{found:?} for {number:?}");
        for end in 0..message.bytes().len().min(64) {
            let found = response_number(&message.bytes()[..end]);
            assert!(found.is_none() || found == number, "{found:?} for {number:?} in the first {end} bytes");
        }
    }
    let declared = ClientCapabilities::of(message);
    assert!(declared.refusal(message).is_none() || message.kind() != Kind::Response);
    // A client that can be asked everything refuses nothing that can be read.
    let (roots, sampling, sampling_tools, elicitation_form, elicitation_url) = (true, true, true, true, true);
    let all = ClientCapabilities { roots, sampling, sampling_tools, elicitation_form, elicitation_url };
    let readable = message.params().is_none_or(|params| Members::parse(params).is_ok());
    assert!(all.refusal(message).is_none() || !readable);
    let _ = (route::is_modern(message), legacy::question_text(message));
    if message.kind() != Kind::Response {
        related(message);
    }
    if let Some((Outcome::Result, _)) = message.outcome() {
        unrelated(message);
    }
}

/// The members of an object are those of the text, or it has a key twice.
fn object(raw: &str) {
    let Ok(tree) = json::parse(raw, MAX_DEPTH) else { return };
    let Inner::Members(_) = tree.inner else {
        assert!(Members::parse(raw).is_err());
        return;
    };
    let expected: Option<Vec<(String, &Node)>> = tree.members(raw);
    let Ok(members) = Members::parse(raw) else {
        assert!(expected.is_none(), "refused");
        return;
    };
    let expected = expected.expect("no key twice");
    assert_eq!(members.is_empty(), expected.is_empty());
    for (key, node) in expected {
        assert_eq!(members.get(&key), Some(node.raw(raw)), "{key:?}");
        assert_eq!(unquote(&quote(&key)).as_deref(), Some(key.as_str()));
        object(node.raw(raw));
    }
}

/// Every reader of raw values, whatever they are.
fn read(raw: &str) {
    let found = (legacy::is_error(raw), legacy::error_message(raw), legacy::progress(raw));
    let (text, ttl, _) = (legacy::progress_text(raw), legacy::requested_ttl(raw), legacy::first_text(raw));
    // A value cannot hold every text, and has one value where a key is there twice.
    let Ok(value) = serde_json::from_str::<Value>(raw) else { return };
    let value = if Members::parse(raw).is_ok() { value } else { Value::Null };
    let message = value["message"].as_str().map(str::to_owned);
    assert_eq!(found, (value["isError"] == Value::Bool(true), message, value["progress"].as_f64()));
    assert_eq!(text.is_some(), value["progress"].is_number());
    if let Ok(RequestedTtl::For(ttl)) = ttl {
        let seconds = value["ttl"].as_f64().expect("a number") / 1000.0;
        let off = (ttl.as_secs_f64() - seconds).abs();
        assert!(ttl == Duration::MAX || off <= 1e-9 + seconds / 1e9, "{ttl:?} for {seconds}");
    }
}

/// A message that is tied to a task says so, and is the same otherwise.
fn related(message: &Message) {
    let Some(mut expected) = comparable(message) else { return };
    let tied = legacy::related(message, TASK);
    assert_eq!((tied.kind(), tied.id(), tied.method()), (message.kind(), message.id(), message.method()));
    let params = &mut expected["params"];
    if !params["_meta"].is_object() || message.params().is_some_and(has_odd_meta) {
        params["_meta"] = json!({});
    }
    params["_meta"][RELATED_TASK] = json!({ "taskId": TASK.to_string() });
    assert_eq!(serde_json::from_slice::<Value>(tied.bytes()).expect("JSON"), expected);
}

/// What an upstream gets of an answer has another id, nothing of the task, and all the rest.
fn unrelated(message: &Message) {
    let Some(mut expected) = comparable(message) else { return };
    expected["id"] = json!(7);
    let odd = message.outcome().is_some_and(|(_, raw)| Members::parse(raw).is_err() || has_odd_meta(raw));
    if let Some(meta) = expected["result"].get_mut("_meta").and_then(Value::as_object_mut).filter(|_| !odd) {
        meta.remove(RELATED_TASK);
    }
    let answer = legacy::unrelated(message, "7");
    assert_eq!(serde_json::from_slice::<Value>(&answer).expect("JSON"), expected);
}

/// A `_meta` with a key twice is as good as none.
fn has_odd_meta(raw: &str) -> bool {
    Members::parse(raw).is_ok_and(|members| members.get("_meta").is_some() && members.object("_meta").is_none())
}

/// A message as a value. `None` where a value is less than the message: it has a key twice in what is edited, or what no
/// value can hold.
fn comparable(message: &Message) -> Option<Value> {
    Members::parse(message.text()).ok()?;
    message.params().map_or(Ok(()), |params| Members::parse(params).map(drop)).ok()?;
    serde_json::from_slice(message.bytes()).ok()
}
