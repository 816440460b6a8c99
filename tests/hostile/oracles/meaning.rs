//! What is read from messages further in: members, capabilities, the tasks dialect. It checks every accepted envelope.

use std::time::Duration;

use serde_json::{Value, json};
use taskgate::{
    dialect::recognise::{are_modern, is_modern},
    wire::{
        ClientCapabilities, Kind, Message, Params,
        beginning::{Meant, meant},
        depth::MAX_DEPTH,
        legacy::{self, RELATED_TASK, RequestedTtl},
        message::{MAX_ID, Outcome, echoed_number},
        object::{Members, quote, unquote},
        params::may_matter,
        received::Received,
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
        params(raw);
    }
    if let Some((_, raw)) = message.outcome() {
        read(raw);
    }
    if message.kind() == Kind::Response {
        let number = message.id().and_then(echoed_number);
        for end in (0..message.bytes().len().min(64)).chain([message.bytes().len()]) {
            match meant(&message.bytes()[..end]) {
                Meant::Response(found) => {
                    assert!(found.is_none() || found == number, "{found:?} for {number:?} in the first {end} bytes");
                }
                // An id that no string can hold hides it.
                Meant::Unknown => {}
                Meant::Unanswerable => panic!("a method in the first {end} bytes of a response"),
                Meant::Request(id) => panic!("a request {id} in the first {end} bytes of a response"),
            }
        }
    }
    let declared = message.params().and_then(|params| Members::parse(params).ok());
    let declared = declared.and_then(|params| ClientCapabilities::of(&params).ok()).unwrap_or_default();
    assert!(declared.refusal(message).is_none() || message.kind() != Kind::Response);
    // A client that can be asked everything refuses nothing readable.
    let (roots, sampling, sampling_tools, elicitation_form, elicitation_url) = (true, true, true, true, true);
    let all = ClientCapabilities { roots, sampling, sampling_tools, elicitation_form, elicitation_url };
    let readable = message.params().is_none_or(|params| Members::parse(params).is_ok());
    assert!(all.refusal(message).is_none() || !readable);
    let _ = (is_modern(message), legacy::question_text(message));
    if message.kind() != Kind::Response {
        related(message);
    }
    if let Some((Outcome::Result, _)) = message.outcome() {
        unrelated(message);
    }
}

/// Checks that an invalid message ends the call that it names, and no other.
pub fn broken(received: &Received) {
    let Received::Broken(broken) = received else { return };
    assert!(!broken.why.is_empty() && broken.why.len() < 500, "{}", broken.why);
    if let Meant::Request(id) = &broken.meant {
        assert!(id.len() <= MAX_ID && (id.starts_with('"') || id.parse::<f64>().is_ok()), "{id}");
    }
}

/// Checks that nothing is read of `params` that another reader could read differently, and that a token is a string or
/// an integer.
fn params(raw: &str) {
    let Ok(tree) = json::parse(raw, MAX_DEPTH) else { return };
    let once = |raw: &str| json::parse(raw, MAX_DEPTH).is_ok_and(|tree| tree.members(raw).is_some());
    let members = tree.members(raw);
    let meta = members.as_ref().and_then(|members| members.iter().find(|(key, _)| key == "_meta"));
    let meta = meta.map(|(_, node)| node.raw(raw)).filter(|meta| meta.starts_with('{'));
    let token = meta.and_then(|meta| {
        let tree = json::parse(meta, MAX_DEPTH).ok()?;
        let token = tree.members(meta)?.into_iter().find(|(key, _)| key == "progressToken")?.1.raw(meta).to_owned();
        Some(token)
    });
    let is_token = |raw: &str| {
        raw.len() <= MAX_ID && (raw.starts_with('"') || raw.bytes().all(|b| b == b'-' || b.is_ascii_digit()))
    };
    match Params::parse(raw) {
        Ok(params) => {
            assert!(members.is_some() && meta.is_none_or(once), "a member twice was accepted");
            assert_eq!(params.progress_token, token.as_deref());
            assert!(token.as_deref().is_none_or(is_token), "{token:?}");
            assert!(params.progress_token.is_none() || may_matter(raw), "a token that would be passed over");
            assert!(!are_modern(raw), "a modern request was accepted");
        }
        Err(error) if error.code == -32600 => assert!(may_matter(raw)),
        Err(_) => assert!(members.is_none() || !meta.is_none_or(once) || !token.as_deref().is_none_or(is_token)),
    }
}

/// Checks that the members of an object are those of the text, unless it has a duplicate key.
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
    assert_eq!(members.iter().next().is_none(), expected.is_empty());
    for (key, node) in expected {
        assert_eq!(members.get(&key), Some(node.raw(raw)), "{key:?}");
        assert_eq!(unquote(&quote(&key)).as_deref(), Some(key.as_str()));
        object(node.raw(raw));
    }
}

/// Runs every reader of raw values, whatever they are.
fn read(raw: &str) {
    let found = (legacy::is_error(raw), legacy::error_message(raw), legacy::progress(raw));
    let (text, ttl, _) = (legacy::progress_text(raw), legacy::requested_ttl(raw), legacy::first_text(raw));
    // A value cannot hold every text, and has one value for a duplicate key.
    let Ok(value) = serde_json::from_str::<Value>(raw) else { return };
    let value = if Members::parse(raw).is_ok() { value } else { Value::Null };
    let message = value["message"].as_str().map(str::to_owned);
    let (is_error, of_error, progress) = found;
    assert_eq!(is_error.is_ok(), value.is_object() && !has_odd_meta(raw), "what is there twice decides nothing");
    assert!(is_error.is_err() || is_error == Ok(value["isError"] == Value::Bool(true)));
    assert_eq!((of_error, progress), (message, value["progress"].as_f64()));
    assert_eq!(text.is_some(), value["progress"].is_number());
    if let Ok(RequestedTtl::For(ttl)) = ttl {
        let seconds = value["ttl"].as_f64().expect("a number") / 1000.0;
        let off = (ttl.as_secs_f64() - seconds).abs();
        assert!(ttl == Duration::MAX || off <= 1e-9 + seconds / 1e9, "{ttl:?} for {seconds}");
    }
}

/// Checks that a message that is tied to a task says so and is otherwise the same; one with a duplicate member is not
/// tied.
fn related(message: &Message) {
    let tied = legacy::related(message, TASK);
    let odd = message.params().is_some_and(|params| Members::parse(params).is_err() || has_odd_meta(params));
    assert!(!odd || tied.is_none());
    let Some(mut expected) = comparable(message) else { return };
    let Some(tied) = tied else {
        assert!(odd, "{} is not tied", message.text());
        return;
    };
    assert_eq!((tied.kind(), tied.id(), tied.method()), (message.kind(), message.id(), message.method()));
    let params = &mut expected["params"];
    if !params["_meta"].is_object() {
        params["_meta"] = json!({});
    }
    params["_meta"][RELATED_TASK] = json!({ "taskId": TASK.to_string() });
    assert_eq!(serde_json::from_slice::<Value>(tied.bytes()).expect("JSON"), expected);
}

/// Checks that an upstream gets an answer with another id, without the task, and with all the rest.
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

/// Returns whether `_meta` is an object with a duplicate key.
fn has_odd_meta(raw: &str) -> bool {
    Members::parse(raw).is_ok_and(|members| {
        members.get("_meta").is_some_and(|meta| meta.starts_with('{')) && members.object("_meta").is_none()
    })
}

/// Returns a message as a value. `None` where a value is less than the message: it has a duplicate key in the edited
/// part, or something that no value can hold.
fn comparable(message: &Message) -> Option<Value> {
    Members::parse(message.text()).ok()?;
    message.params().map_or(Ok(()), |params| Members::parse(params).map(drop)).ok()?;
    serde_json::from_slice(message.bytes()).ok()
}
