//! `wire/relay.rs`: a response that passes in chunks is the whole one with another id.
//!
//! The first line of an input says how long the chunks are, see `chunks`.

use bytes::Bytes;
use taskgate::wire::{
    depth::{MAX_DEPTH, nests_too_deep},
    message::echoed_number,
    relay::{Foreign, Relay},
};

use super::json::{self, Inner};

const OURS: u64 = 7;
const THEIRS: &str = "\"the client's\"";
/// More than a relay keeps of an id with the white space around it.
const LONG: usize = 32;
/// More than the description of a relay that keeps no more than it should.
const DESCRIPTION: usize = 1000;

/// Relays the document in one piece and in chunks.
pub fn check(input: &[u8]) {
    let (script, document) = super::script(input);
    let document = super::document(document);
    let (whole, passed) = relay(&[&document]);
    let (chunked, passed_in_chunks) = relay(&super::chunks(script, &document));
    assert_eq!(chunked, whole, "chunks make a difference");
    if whole.is_ok() {
        assert_eq!(passed_in_chunks, passed);
    } else {
        assert!(document.starts_with(&passed_in_chunks), "something else was passed on before the end");
    }
    let Some(expected) = std::str::from_utf8(&document).ok().and_then(replaced) else { return };
    match expected {
        Expected::Passed(text) => assert_eq!((whole, passed), (Ok(()), text.into_bytes())),
        Expected::Either(text) => assert!(whole.is_err() || passed == text.into_bytes()),
        Expected::Foreign => assert_eq!(whole, Err(Foreign)),
    }
}

fn relay(chunks: &[&[u8]]) -> (Result<(), Foreign>, Vec<u8>) {
    let mut relay = Relay::new(OURS, Bytes::from_static(THEIRS.as_bytes()));
    let (mut out, mut result) = (Vec::new(), Ok(()));
    for (at, chunk) in chunks.iter().enumerate() {
        result = result.and_then(|()| relay.push(&Bytes::copy_from_slice(chunk), &mut out));
        // A description takes longer than the rest.
        if at % 64 == 0 || at + 1 == chunks.len() {
            assert!(format!("{relay:?}").len() < DESCRIPTION, "keeps what has passed: {relay:?}");
        }
    }
    assert!(out.iter().all(|part| !part.is_empty()));
    (result.and_then(|()| relay.end()), out.concat())
}

enum Expected {
    Passed(String),
    /// The id stands in so much white space that the relay may give it up.
    Either(String),
    Foreign,
}

/// Returns what becomes of a JSON text; `None` if it is not JSON.
fn replaced(text: &str) -> Option<Expected> {
    if nests_too_deep(text.as_bytes()) {
        return None;
    }
    let tree = json::parse(text, MAX_DEPTH).ok()?;
    let Inner::Members(members) = &tree.inner else { return Some(Expected::Foreign) };
    // A key that is written with escapes is not one that a reader looks for.
    let id = members.iter().find(|(key, _)| &text[key.clone()] == "\"id\"");
    let Some((key, id)) = id.filter(|(_, id)| echoed_number(id.raw(text)) == Some(OURS)) else {
        return Some(Expected::Foreign);
    };
    // The white space around the id goes with it.
    let start = key.end + text[key.end..].find(':')? + 1;
    let end = id.span.end + text[id.span.end..].find([',', '}'])?;
    let expected = format!("{}{THEIRS}{}", &text[..start], &text[end..]);
    Some(if end - start <= LONG { Expected::Passed(expected) } else { Expected::Either(expected) })
}
