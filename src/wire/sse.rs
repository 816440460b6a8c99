//! Server-Sent Events as the HTML standard defines them, with a limit on the size of an event.

use std::{
    fmt::{self, Write as _},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};

use super::extend;

/// The longest event id that is kept, in bytes: it has to fit into the head of the request that resumes the stream. A
/// stream cannot be resumed at a longer one.
pub const MAX_EVENT_ID: usize = 4 * 1024;

/// A comment that keeps an idle stream open.
pub const HEARTBEAT: Bytes = Bytes::from_static(b": \n\n");

/// One dispatched event. Fields that taskgate has no use for are not kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty means `message`.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: Bytes,
    /// The id by which the stream is resumed behind the event, if there is one.
    pub id: Option<Bytes>,
}

/// An event was larger than the decoder's limit, which counts its data so far and the whole line that is being read.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Splits a byte stream into events, however it is cut into chunks. Each event leaves in an allocation of its own size,
/// and the decoder keeps no spare room: a small event kept by a slow reader must not hold the room of a large one.
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    name: String,
    /// The id of the event that is being read; it takes effect when the event is whole.
    id: Option<Bytes>,
    last_id: Option<Bytes>,
    retry: Option<Duration>,
    /// The last line ended in CR, so an LF that follows belongs to it.
    after_cr: bool,
    first_line: bool,
}

impl Decoder {
    /// Creates a decoder that refuses events of more than `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            name: String::new(),
            id: None,
            last_id: None,
            retry: None,
            after_cr: false,
            first_line: true,
        }
    }

    /// Creates a decoder of what comes behind the event with that id.
    #[must_use]
    pub fn behind(limit: usize, event: Bytes) -> Self {
        Self { last_id: Some(event), ..Self::new(limit) }
    }

    /// Returns the id of the last event that had one, by which the stream can be resumed.
    #[must_use]
    pub fn last_id(&self) -> Option<&Bytes> {
        self.last_id.as_ref().filter(|id| !id.is_empty())
    }

    /// Returns how long the sender asks to wait before a reconnection.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Returns whether a part of an event is there, and its rest is not. Comments are no part of an event.
    #[must_use]
    pub fn has_part_of_event(&self) -> bool {
        self.has_data || !(self.line.is_empty() || self.line.starts_with(b":"))
    }

    /// Drops an unfinished event, before the stream continues on another connection.
    pub fn restart(&mut self) {
        let fresh = Self::new(self.limit);
        *self = Self { last_id: self.last_id.take(), retry: self.retry, ..fresh };
    }

    /// Takes in `chunk` and appends the events that it completes to `events`.
    ///
    /// # Errors
    /// [`TooLarge`]; then the stream cannot be read any further.
    pub fn push(&mut self, mut chunk: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        while !chunk.is_empty() {
            if std::mem::take(&mut self.after_cr) && chunk[0] == b'\n' {
                chunk = &chunk[1..];
                continue;
            }
            let end = memchr::memchr2(b'\n', b'\r', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            // Counted before the line is read, so that the limit does not depend on how the stream is cut.
            if self.line.len() + self.data.len() + part.len() > self.limit {
                return Err(TooLarge);
            }
            let Some(end) = end else {
                extend(&mut self.line, part, self.limit);
                return Ok(());
            };
            self.after_cr = chunk[end] == b'\r';
            let rest = &chunk[end + 1..];
            if self.line.is_empty() {
                self.end_line(part, events);
            } else {
                extend(&mut self.line, part, self.limit);
                let line = std::mem::take(&mut self.line);
                self.end_line(&line, events);
            }
            chunk = rest;
        }
        Ok(())
    }

    fn end_line(&mut self, mut line: &[u8], events: &mut Vec<Event>) {
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        if line.is_empty() {
            self.last_id = self.id.take().or(self.last_id.take());
            let name = std::mem::take(&mut self.name);
            if std::mem::take(&mut self.has_data) {
                let data = std::mem::take(&mut self.data).into_boxed_slice().into();
                events.push(Event { name, data, id: self.last_id().cloned() });
            }
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                extend(&mut self.data, value, self.limit);
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => {
                self.id = Some(Bytes::copy_from_slice(if value.len() > MAX_EVENT_ID { b"" } else { value }));
            }
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.retry = millis.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }
}

/// The id of an event that taskgate sends: the session, the stream, and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventId {
    /// A number that no other session is likely to have.
    pub session: u32,
    /// The stream's number in its session.
    pub stream: u64,
    /// The event's number in its stream, from 1 on; 0 stands for the stream's beginning.
    pub event: u64,
}

impl EventId {
    /// Reads an id in the form that taskgate gives out.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (session, place) = text.split_once('-')?;
        let (stream, event) = place.split_once('-')?;
        let session = u32::from_str_radix(session, 16).ok()?;
        let id = Self { session, stream: stream.parse().ok()?, event: event.parse().ok()? };
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}-{}", self.session, self.stream, self.event)
    }
}

/// The most bytes that a frame adds to a document of one line.
const FRAME: usize = 80;

/// Frames a JSON document as an event. Line ends in it, which JSON allows only as white space, split the data.
#[must_use]
pub fn encode(document: &[u8], id: Option<EventId>) -> Bytes {
    let mut out = BytesMut::with_capacity(document.len() + FRAME);
    out.put_slice(b"event: message\n");
    if let Some(id) = id {
        // Writing to a buffer that grows cannot fail.
        let _ = writeln!(out, "id: {id}");
    }
    for line in document.split(|b| matches!(b, b'\n' | b'\r')).filter(|line| !line.is_empty()) {
        out.put_slice(b"data: ");
        out.put_slice(line);
        out.put_u8(b'\n');
    }
    out.put_u8(b'\n');
    out.freeze()
}

/// Writes the event of the 2024-11-05 transport that tells where messages go by POST.
#[must_use]
pub fn endpoint(uri: &str) -> Bytes {
    format!("event: endpoint\ndata: {uri}\n\n").into()
}

/// Writes an event without data. When its connection ends, a client can resume the stream by the event's id, after
/// `retry`.
#[must_use]
pub fn prime(id: EventId, retry: Duration) -> Bytes {
    format!("id: {id}\nretry: {}\ndata: \n\n", retry.as_millis()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let (mut decoder, mut events) = (Decoder::new(1024), Vec::new());
        for chunk in chunks {
            decoder.push(chunk, &mut events).expect("within the limit");
        }
        let text = |data: Bytes| String::from_utf8(data.to_vec()).expect("text");
        events.into_iter().map(|event| (event.name, text(event.data))).collect()
    }

    fn one(name: &str, data: &str) -> Vec<(String, String)> {
        vec![(name.into(), data.into())]
    }

    #[test]
    fn every_kind_of_line_end_ends_a_line() {
        for end in ["\n", "\r\n", "\r"] {
            let stream = ["event: e", "data: a", "data:b", "id: 7", ": comment", "", ""].join(end);
            assert_eq!(decode(&[stream.as_bytes()]), one("e", "a\nb"), "{end:?}");
        }
    }

    #[test]
    fn a_part_of_an_event_is_known_and_a_comment_is_none() {
        let (mut decoder, mut events) = (Decoder::new(1024), Vec::new());
        for (chunk, part) in
            [(": still", false), (" here\n", false), ("data", true), (":\n", true), ("da", true), ("ta\n\n", false)]
        {
            decoder.push(chunk.as_bytes(), &mut events).expect("within the limit");
            assert_eq!(decoder.has_part_of_event(), part, "{chunk:?}");
        }
    }

    #[test]
    fn an_event_without_data_is_not_dispatched_and_one_with_empty_data_is() {
        assert_eq!(decode(&[b"event: x\n\ndata: y\n\n"]), one("", "y"));
        assert_eq!(decode(&[b"id: 1\ndata: \n\n"]), one("", ""));
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_an_unfinished_event_is_not_dispatched() {
        assert_eq!(decode(&[b"\xEF\xBB\xBFdata: a\n\ndata: b\n"]), one("", "a"));
    }

    #[test]
    fn an_event_over_the_limit_is_refused() {
        for event in ["data: 123456789", "data: 1234\ndata: 5678\n\n", "event: 12345678\n\n", ": 12345678901\n"] {
            let refused = |chunks: Vec<&str>| {
                let mut decoder = Decoder::new(12);
                chunks.iter().any(|chunk| decoder.push(chunk.as_bytes(), &mut Vec::new()).is_err())
            };
            assert!(refused(vec![event]), "{event}");
            assert!(refused(event.split_inclusive(' ').collect()), "{event}");
        }
    }

    #[test]
    fn the_event_to_resume_at_is_remembered() {
        let mut decoder = Decoder::new(64);
        decoder
            .push(b"id: 7\nretry: 250\ndata: \n\nretry: soon\nretry: +9\n\n", &mut Vec::new())
            .expect("within the limit");
        assert_eq!(decoder.last_id(), Some(&Bytes::from_static(b"7")));
        decoder.push(b"id: 8\ndata: cut o", &mut Vec::new()).expect("within the limit");
        decoder.restart();
        assert_eq!(decoder.last_id(), Some(&Bytes::from_static(b"7")));
        assert_eq!(decoder.retry(), Some(Duration::from_millis(250)));
    }

    #[test]
    fn a_small_event_keeps_only_its_own_bytes_also_after_a_large_one() {
        let (mut decoder, mut events) = (Decoder::new(1 << 20), Vec::new());
        for size in [500_000, 100, 100] {
            let event = format!("data: {}\ndata: x\n\n", "x".repeat(size));
            for part in event.as_bytes().chunks(1000) {
                decoder.push(part, &mut events).expect("within the limit");
            }
        }
        let capacities = events.into_iter().map(|event| (event.data.len(), Vec::from(event.data).capacity()));
        assert_eq!(capacities.collect::<Vec<_>>(), [(500_002, 500_002), (102, 102), (102, 102)]);
        assert_eq!((decoder.line.capacity(), decoder.data.capacity()), (0, 0));
    }

    #[test]
    fn a_stream_is_not_resumed_at_an_id_that_no_request_can_carry() {
        let mut decoder = Decoder::new(1 << 20);
        let long = "x".repeat(MAX_EVENT_ID);
        for (id, kept) in [(&*long, true), (&format!("{long}y"), false), ("7", true)] {
            decoder.push(format!("id: {id}\ndata: \n\n").as_bytes(), &mut Vec::new()).expect("within the limit");
            assert_eq!(decoder.last_id().map(Bytes::len), kept.then_some(id.len()));
        }
    }

    #[test]
    fn an_event_id_is_accepted_only_in_the_form_that_taskgate_gives_out() {
        let id = EventId { session: 0xAB, stream: 3, event: 12 };
        assert_eq!((id.to_string(), EventId::parse("000000ab-3-12")), ("000000ab-3-12".to_owned(), Some(id)));
        for place in ["", "3", "3-", "-12", "03-12", "+3-12", "3-12-1", "99999999999999999999-1", "3-1e1"] {
            assert_eq!(EventId::parse(&format!("000000ab-{place}")), None, "{place:?}");
        }
        for session in ["", "ab", "000000AB", "x00000ab", "1000000ab"] {
            assert_eq!(EventId::parse(&format!("{session}-3-12")), None, "{session:?}");
        }
    }
}
