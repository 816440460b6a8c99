//! Relays a response while it arrives: exchanges its id, and neither reads nor copies the rest.
//!
//! This is for large answers only. Small ones are read whole, which also checks that they are valid JSON.

use std::{fmt, ops::Range};

use bytes::Bytes;

/// Exchanges the top-level `id` of one JSON object, however it is cut into chunks.
#[derive(Debug)]
pub struct Relay {
    /// The number under which the upstream knows the request.
    ours: u64,
    /// The raw id under which the client knows it; taken when it has been written.
    theirs: Option<Bytes>,
    depth: usize,
    /// Whether a top-level value is being read, and not a key.
    value: bool,
    position: Position,
    /// The top-level key or the id's value, as far as it has been read; at most [`LONGEST`] bytes.
    word: Vec<u8>,
}

/// More bytes than any key or number that matters has.
const LONGEST: usize = 32;

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    /// Before the object.
    Start,
    /// Between tokens.
    Between,
    /// In a top-level key.
    Key,
    /// Behind a top-level key.
    AfterKey,
    /// In another string.
    Text,
    /// Behind a backslash in a key or another string.
    Escape { key: bool },
    /// In the id's value, white space around it included.
    Id,
    /// Behind the object.
    End,
}

/// The bytes are not the expected response.
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign;

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer is not the response to the request")
    }
}

impl std::error::Error for Foreign {}

impl Relay {
    /// Puts the raw id `theirs` in the place of `ours`.
    #[must_use]
    pub fn new(ours: u64, theirs: Bytes) -> Self {
        Self { ours, theirs: Some(theirs), depth: 0, value: false, position: Position::Start, word: Vec::new() }
    }

    /// Takes in `chunk` and appends to `out` what passes on, without empty parts. Behind the id everything passes
    /// unread.
    ///
    /// # Errors
    /// [`Foreign`] if this cannot be the response; then nothing more may pass.
    pub fn push(&mut self, chunk: &Bytes, out: &mut Vec<Bytes>) -> Result<(), Foreign> {
        let mut at = 0;
        while at < chunk.len() && !self.has_exchanged() {
            let (in_id, from) = (self.position == Position::Id, at);
            while at < chunk.len() && in_id == (self.position == Position::Id) {
                at = self.step(chunk, at)?;
            }
            match in_id {
                false => pass(chunk, from..at, out),
                true if self.position != Position::Id => out.push(self.exchange()?),
                true => {}
            }
        }
        pass(chunk, at..chunk.len(), out);
        Ok(())
    }

    /// Returns whether the id has been exchanged already.
    #[must_use]
    pub fn has_exchanged(&self) -> bool {
        self.theirs.is_none()
    }

    /// Notes that nothing more comes.
    ///
    /// # Errors
    /// [`Foreign`] if there was no id.
    pub fn end(&self) -> Result<(), Foreign> {
        if self.has_exchanged() { Ok(()) } else { Err(Foreign) }
    }

    /// Reads at least one byte of `chunk`, or only changes the position. Returns where the next byte stands.
    fn step(&mut self, chunk: &[u8], at: usize) -> Result<usize, Foreign> {
        let byte = chunk[at];
        match self.position {
            Position::Start => match byte {
                b'{' => {
                    self.depth = 1;
                    self.position = Position::Between;
                }
                byte if byte.is_ascii_whitespace() => {}
                _ => return Err(Foreign),
            },
            Position::Between => return Ok(self.between(chunk, at)),
            Position::Key | Position::Text => return Ok(self.string(chunk, at)),
            Position::Escape { key } => self.position = if key { Position::Key } else { Position::Text },
            Position::AfterKey => {
                if byte == b':' {
                    self.value = true;
                    self.position = if self.word == b"id" { Position::Id } else { Position::Between };
                    self.word.clear();
                } else if !byte.is_ascii_whitespace() {
                    return Err(Foreign);
                }
            }
            Position::Id => match byte {
                // The byte stays, to be read at the position behind the value.
                b',' | b'}' => {
                    self.position = Position::Between;
                    return Ok(at);
                }
                _ if self.word.len() < LONGEST => self.word.push(byte),
                _ => return Err(Foreign),
            },
            Position::End => return Err(Foreign),
        }
        Ok(at + 1)
    }

    fn between(&mut self, chunk: &[u8], at: usize) -> usize {
        match chunk[at] {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    self.position = Position::End;
                }
            }
            b',' if self.depth == 1 => self.value = false,
            b'"' => self.position = if self.depth == 1 && !self.value { Position::Key } else { Position::Text },
            _ => {}
        }
        at + 1
    }

    fn string(&mut self, chunk: &[u8], mut at: usize) -> usize {
        let key = self.position == Position::Key;
        loop {
            let end = memchr::memchr2(b'"', b'\\', &chunk[at..]).map_or(chunk.len(), |offset| at + offset);
            if key {
                let room = LONGEST.saturating_sub(self.word.len());
                self.word.extend_from_slice(&chunk[at..end.min(at + room)]);
            }
            match chunk.get(end) {
                None => return end,
                Some(b'"') => {
                    self.position = if key { Position::AfterKey } else { Position::Between };
                    return end + 1;
                }
                Some(_) => {
                    // The backslash is kept, so that no key with an escape equals "id".
                    self.word.extend((key && self.word.len() < LONGEST).then_some(b'\\'));
                    if end + 1 == chunk.len() {
                        self.position = Position::Escape { key };
                        return chunk.len();
                    }
                    at = end + 2;
                }
            }
        }
    }

    /// Returns the client's id, if the value that was read is the number of the request.
    fn exchange(&mut self) -> Result<Bytes, Foreign> {
        let value = std::str::from_utf8(&self.word).map_err(|_| Foreign)?.trim();
        if super::message::echoed_number(value) != Some(self.ours) {
            return Err(Foreign);
        }
        self.word.clear();
        self.theirs.take().ok_or(Foreign)
    }
}

fn pass(chunk: &Bytes, range: Range<usize>, out: &mut Vec<Bytes>) {
    if !range.is_empty() {
        out.push(chunk.slice(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(chunks: &[&str], ours: u64) -> Result<String, Foreign> {
        let mut relay = Relay::new(ours, Bytes::from_static(b"\"mine\""));
        let mut out = Vec::new();
        for chunk in chunks {
            relay.push(&Bytes::copy_from_slice(chunk.as_bytes()), &mut out)?;
        }
        relay.end()?;
        Ok(String::from_utf8(out.concat()).expect("text"))
    }

    #[test]
    fn the_id_is_exchanged_wherever_it_stands_and_nothing_else() {
        for (before, after) in [
            (r#"{"id":7,"result":{"id":7}}"#, r#"{"id":"mine","result":{"id":7}}"#),
            (r#" {"result":[{"id":1}],"x":"id","id" : "7" } "#, r#" {"result":[{"id":1}],"x":"id","id" :"mine"} "#),
            (r#"{"a":"\"id\":8,","b\"":{},"id":7}"#, r#"{"a":"\"id\":8,","b\"":{},"id":"mine"}"#),
            (r#"{"\\id":8,"id":7}"#, r#"{"\\id":8,"id":"mine"}"#),
        ] {
            assert_eq!(relay(&[before], 7).as_deref(), Ok(after), "{before}");
        }
    }

    #[test]
    fn only_the_beginning_of_a_key_is_kept() {
        for key in ["x".repeat(1000), "\\\\".repeat(1000), "x\\\"".repeat(1000)] {
            let mut relay = Relay::new(7, Bytes::new());
            relay.push(&format!("{{\"{key}").into(), &mut Vec::new()).expect("no end yet");
            assert!(relay.word.len() <= LONGEST, "{} bytes", relay.word.len());
        }
    }

    #[test]
    fn a_document_that_is_not_the_response_is_refused() {
        for foreign in [
            r#"{"id":8,"result":{}}"#,
            r#"{"id":null,"error":{}}"#,
            r#"{"id":{},"result":{}}"#,
            r#"{"result":{}}"#,
            r#"{"result":{}}{"id":7}"#,
            r#"[{"id":7}]"#,
            "",
        ] {
            assert_eq!(relay(&[foreign], 7), Err(Foreign), "{foreign}");
        }
    }
}
