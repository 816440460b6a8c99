//! The raw `_meta` objects of the last requests: a client sends the same one with each request, and it is looked through
//! once.

use std::cell::RefCell;

/// How many are remembered by each thread.
pub const MOST: usize = 8;
/// The longest that are remembered, in bytes.
pub const LONGEST: usize = 1024;

thread_local! {
    static LAST: RefCell<LastMetas> = const { RefCell::new(LastMetas { metas: Vec::new(), next: 0 }) };
}

struct LastMetas {
    metas: Vec<Box<str>>,
    /// The place in `metas` that the next one takes.
    next: usize,
}

/// Returns the length of the object that a text begins with, if that is one of the last.
pub(super) fn length(text: &[u8]) -> Option<usize> {
    LAST.with_borrow(|last| last.metas.iter().find(|raw| text.starts_with(raw.as_bytes())).map(|raw| raw.len()))
}

/// Remembers a raw object, which has been read as JSON, unless it is longer than [`LONGEST`]. Nothing looks into it from
/// then on to find out where it ends.
pub fn remember(raw: &str) {
    debug_assert!(raw.starts_with('{') && raw.ends_with('}'), "no object: {raw}");
    if raw.len() > LONGEST {
        return;
    }
    LAST.with_borrow_mut(|last| {
        match last.metas.get_mut(last.next) {
            Some(oldest) => *oldest = raw.into(),
            None => last.metas.push(raw.into()),
        }
        last.next = (last.next + 1) % MOST;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_objects_are_recognised_where_a_text_begins_with_them_and_are_bounded() {
        for nth in 0..=MOST {
            remember(&format!("{{\"n\":{nth}}}"));
        }
        assert_eq!(length(br#"{"n":1},"a":2}"#), Some(7));
        assert_eq!(length(br#"{"n":8}"#), Some(7));
        assert_eq!(length(br#"{"n":1 }"#), None);
        assert_eq!(length(br#"{"n":1"#), None);
        assert_eq!(length(br#"{"n":0}"#), None, "it made room");
        let long = format!("{{\"n\":\"{}\"}}", "x".repeat(LONGEST));
        remember(&long);
        assert_eq!(length(long.as_bytes()), None);
    }
}
