//! `wire/sse.rs`: what a stream of bytes means as events (HTML standard, "Parsing an event stream"), however it is cut,
//! within its limit; and that nothing in a document can end the event that carries it.
//!
//! The first line of an input says how long the chunks are, see `chunks`; its length chooses the limit.

use std::time::Duration;

use bytes::Bytes;
use taskgate::wire::sse::{Decoder, Event, EventId, HEARTBEAT, MAX_EVENT_ID, encode, prime};

/// Longer than any input.
const NO_LIMIT: usize = 1 << 30;

/// Takes the rest of the input as a stream, and as a document.
pub fn check(input: &[u8]) {
    let (script, rest) = super::script(input);
    let chunks = super::chunks(script, rest);
    let expected = read(rest);
    assert_eq!(decode(NO_LIMIT, &[rest]), (expected, true));
    assert_eq!(decode(NO_LIMIT, &chunks), decode(NO_LIMIT, &[rest]), "chunks make a difference");
    for limit in [script.len(), 8 * script.len()] {
        let whole = decode(limit, &[rest]);
        assert_eq!(decode(limit, &chunks), whole, "chunks make a difference to the limit");
        let (Read { events, .. }, _) = whole;
        assert!(events.iter().all(|event| event.data.len() <= limit && event.name.len() <= 3 * limit));
    }
    framing(rest);
}

/// The outcome of reading a stream.
#[derive(Debug, Default, PartialEq)]
struct Read {
    events: Vec<Event>,
    last_id: Option<Vec<u8>>,
    retry: Option<Duration>,
}

/// Returns what the decoder reads, and whether it came to the end.
fn decode(limit: usize, chunks: &[&[u8]]) -> (Read, bool) {
    let (mut decoder, mut events) = (Decoder::new(limit), Vec::new());
    let to_the_end = chunks.iter().all(|chunk| decoder.push(chunk, &mut events).is_ok());
    (Read { events, last_id: decoder.last_id().map(|id| id.to_vec()), retry: decoder.retry() }, to_the_end)
}

/// Returns what the standard reads.
fn read(stream: &[u8]) -> Read {
    let stream = stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream);
    let (mut read, mut name, mut data, mut id) = (Read::default(), String::new(), Vec::new(), None);
    for line in lines(stream) {
        if line.is_empty() {
            read.last_id = Option::clone(&id).filter(|id: &Vec<u8>| !id.is_empty());
            let name = std::mem::take(&mut name);
            if data.pop().is_some() {
                let id = read.last_id.clone().map(Bytes::from);
                read.events.push(Event { name, data: Bytes::from(std::mem::take(&mut data)), id });
            }
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => name = String::from_utf8_lossy(value).into_owned(),
            b"data" => data.extend(value.iter().chain(b"\n")),
            // An id that is too long to be sent back counts as none.
            b"id" if !value.contains(&0) => id = Some(if value.len() > MAX_EVENT_ID { vec![] } else { value.to_vec() }),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                read.retry = millis.map(Duration::from_millis).or(read.retry);
            }
            _ => {}
        }
    }
    read
}

/// Returns the lines that have an end.
fn lines(mut stream: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = stream.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
        lines.push(&stream[..end]);
        let both = stream[end..].starts_with(b"\r\n");
        stream = &stream[end + 1 + usize::from(both)..];
    }
    lines
}

/// Checks that a document is one event, also between others, and comes out as it went in but for its line ends.
fn framing(document: &[u8]) {
    let lines = document.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty());
    let data = lines.collect::<Vec<_>>().join(&b'\n');
    // White space alone is no JSON.
    if data.is_empty() {
        return;
    }
    let (first, second) = ([1, 2].map(|event| EventId { session: 0xAB, stream: 3, event })).into();
    let beginning = prime(EventId { event: 0, ..first }, Duration::from_secs(1));
    let parts =
        [beginning, encode(document, Some(first)), HEARTBEAT, encode(document, None), encode(b"7", Some(second))];
    let (read, _) = decode(NO_LIMIT, &[&parts.concat()]);
    let id = |id: EventId| Some(Bytes::from(id.to_string()));
    let event = |data: &[u8], last: EventId| Event {
        name: "message".to_owned(),
        data: Bytes::copy_from_slice(data),
        id: id(last),
    };
    let primer = Event { name: String::new(), data: Bytes::new(), id: id(EventId { event: 0, ..first }) };
    let events = [primer, event(&data, first), event(&data, first), event(b"7", second)];
    assert_eq!(read.events, events, "a document broke its frame");
    assert_eq!(read.last_id.as_deref(), Some(second.to_string().as_bytes()));
    assert_eq!(read.retry, Some(Duration::from_secs(1)));
}
