//! A document in parts, so that what is large in it is not copied.

use std::{fmt, ops::Range};

use bytes::{Bytes, BytesMut};

/// From this size on, the untouched parts of a message are shared instead of copied.
pub(super) const SHARE_FROM: usize = 16 * 1024;

/// An edited document: small parts are copied into one, and large untouched parts share the source's memory.
#[derive(Debug, Default)]
pub struct Parts {
    done: Vec<Bytes>,
    tail: BytesMut,
}

impl Parts {
    /// Starts a document with these texts, which about so many bytes follow.
    #[must_use]
    pub fn beginning(front: &[&str], follow: usize) -> Self {
        let size = front.iter().map(|text| text.len()).sum::<usize>() + follow;
        // No more than that for small ones, because the document may be kept.
        let mut parts = Self { done: Vec::new(), tail: BytesMut::with_capacity(size.min(SHARE_FROM)) };
        parts.push_all(front);
        parts
    }

    /// Appends a text.
    pub fn push(&mut self, text: &str) {
        self.tail.extend_from_slice(text.as_bytes());
    }

    /// Appends texts.
    pub fn push_all(&mut self, texts: &[&str]) {
        for text in texts {
            self.push(text);
        }
    }

    pub(super) fn push_slice(&mut self, source: &Bytes, range: Range<usize>) {
        if range.len() < SHARE_FROM {
            self.tail.extend_from_slice(&source[range]);
        } else {
            self.flush();
            self.done.push(source.slice(range));
        }
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            self.done.push(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// Returns the parts in their order, none of them empty.
    #[must_use]
    pub fn into_chunks(mut self) -> Vec<Bytes> {
        self.flush();
        self.done
    }

    /// Returns the document in one piece.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        if self.done.is_empty() {
            return self.tail.freeze();
        }
        self.flush();
        match self.done.len() {
            1 => self.done.swap_remove(0),
            _ => self.done.concat().into(),
        }
    }
}

impl fmt::Write for Parts {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

impl From<Bytes> for Parts {
    fn from(whole: Bytes) -> Self {
        Self { done: vec![whole], tail: BytesMut::new() }
    }
}
