//! `wire/splice.rs`: an edited text means what the same edits of its value mean, and nothing else in it changes.
//!
//! The first line of an input is a list of edits, one letter for each value that is met on the way through the
//! document: `n` sets a member that is not there, `s` sets one that is, `r` removes one, `b` sets a new one and removes
//! one, `c` does that in the other order, `x` replaces the value. With `L` in front the document is part of a large one.

use std::slice::Iter;

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};
use taskgate::wire::{Edits, depth::nests_too_deep, object::Members};

/// A key that no document has.
const NEW: &str = "new \"\\\u{e9}";

/// Edits the text and its value, and compares.
pub fn check(input: &[u8]) {
    let (script, document) = super::script(input);
    let document = super::document(document);
    let Ok(text) = std::str::from_utf8(&document) else { return };
    if nests_too_deep(text.as_bytes()) {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    // The value of a text with a duplicate key is less than the text.
    if has_duplicates(text) {
        return;
    }
    match script.split_first() {
        Some((b'L', script)) => {
            let padding = "x".repeat(20_000);
            let text = format!(r#"{{"front":"{padding}","document": {text} ,"back":"{padding}"}}"#);
            edit(script, &text, json!({ "front": padding, "document": value, "back": padding }));
        }
        _ => edit(script, text, value),
    }
}

fn edit(script: &[u8], text: &str, mut value: Value) {
    let source = Bytes::from(text.to_owned());
    let text = std::str::from_utf8(&source).expect("text");
    let edits = || Edits::of(&source);
    assert_eq!(edits().apply().into_bytes(), source, "no edit, but another text");
    let (mut whole, mut between) = (edits(), edits());
    walk(text, &mut value.clone(), &mut between, &mut script.iter());
    walk(text, &mut value, &mut whole, &mut script.iter());
    let whole = whole.apply();
    let edited = serde_json::from_slice::<Value>(&whole.into_bytes()).expect("still JSON");
    assert_eq!(edited, value);
    let chunks = between.apply_between(&["["], "]").into_chunks();
    assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
    assert_eq!(serde_json::from_slice::<Value>(&chunks.concat()).expect("still JSON"), json!([value]));
}

/// Plans the edits of one value and of the values in it. No two may overlap, so an edited value is not walked into.
fn walk<'a>(raw: &'a str, value: &mut Value, edits: &mut Edits<'a>, script: &mut Iter<'_, u8>) {
    let letter = script.next().copied().unwrap_or(b'-');
    if letter == b'x' {
        edits.replace_raw(raw, "null");
        *value = Value::Null;
        return;
    }
    match value {
        Value::Object(map) => {
            let members = Members::parse(raw).expect("an object with every key once");
            let mut keys: Vec<String> = map.keys().cloned().collect();
            let which = script.as_slice().len() % 7 % keys.len().max(1);
            let some = keys.get(which).cloned();
            let does_both = matches!(letter, b'b' | b'c') && keys.len() > 1;
            let removes = letter == b'r' || does_both;
            if matches!(letter, b'n' | b'b') {
                edits.set(&members, NEW, "[1]");
            }
            if let Some(key) = some.filter(|_| removes || letter == b's') {
                keys.retain(|other| *other != key);
                if removes {
                    edits.remove(&members, &key);
                    map.remove(&key);
                } else {
                    edits.set(&members, &key, "[2]");
                    map.insert(key, json!([2]));
                }
            }
            if letter == b'c' {
                edits.set(&members, NEW, "[1]");
            }
            edits.remove(&members, NEW);
            for key in keys {
                let (raw, value) = (members.get(&key).expect("a member"), map.get_mut(&key).expect("the same one"));
                walk(raw, value, edits, script);
            }
            if matches!(letter, b'n' | b'b' | b'c') {
                map.insert(NEW.to_owned(), json!([1]));
            }
        }
        Value::Array(items) => {
            let raws: Vec<&'a RawValue> = serde_json::from_str(raw).expect("an array");
            for (raw, item) in raws.into_iter().zip(items) {
                walk(raw.get(), item, edits, script);
            }
        }
        _ => {}
    }
}

/// Returns whether an object somewhere in a text has a duplicate key, or the new one.
fn has_duplicates(raw: &str) -> bool {
    match raw.trim_start().as_bytes().first() {
        Some(b'{') => {
            let Ok(members) = Members::parse(raw) else { return true };
            let keys: Vec<String> = serde_json::from_str::<serde_json::Map<String, Value>>(raw)
                .map(|map| map.keys().cloned().collect())
                .unwrap_or_default();
            keys.iter().any(|key| key == NEW || members.get(key).is_none_or(has_duplicates))
        }
        Some(b'[') => serde_json::from_str::<Vec<&RawValue>>(raw)
            .is_ok_and(|items| items.iter().any(|raw| has_duplicates(raw.get()))),
        _ => false,
    }
}
