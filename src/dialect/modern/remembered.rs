//! The `_meta` objects that came last: a client sends the same one with each request, and it is read once.

use std::cell::RefCell;

use super::meta::RequestMeta;
use crate::wire::last_metas::{self, LONGEST, MOST};

thread_local! {
    static LAST: RefCell<Remembered> = const { RefCell::new(Remembered { metas: Vec::new(), next: 0 }) };
}

struct Remembered {
    /// Each raw, with what was read in it.
    metas: Vec<(Box<str>, RequestMeta)>,
    /// The place in `metas` that the next one takes.
    next: usize,
}

/// Returns what was read in this raw `_meta`, if that was found to be valid lately.
pub(super) fn recall(raw: &str) -> Option<RequestMeta> {
    LAST.with_borrow(|last| last.metas.iter().find(|(other, _)| **other == *raw).map(|(_, meta)| meta.clone()))
}

/// Remembers what was read in a raw `_meta`, which is valid.
pub(super) fn remember(raw: &str, meta: &RequestMeta) {
    // What a legacy server gets of it, such as a progress token, is another with each request.
    if raw.len() > LONGEST || meta.for_legacy.is_some() {
        return;
    }
    // It keeps the text too, since what reads messages knows nothing of what it means.
    last_metas::remember(raw);
    LAST.with_borrow_mut(|last| {
        let remembered = (raw.into(), meta.clone());
        match last.metas.get_mut(last.next) {
            Some(oldest) => *oldest = remembered,
            None => last.metas.push(remembered),
        }
        last.next = (last.next + 1) % MOST;
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ClientCapabilities;

    fn meta(tasks: bool, for_legacy: Option<&str>) -> RequestMeta {
        let client = ClientCapabilities::default();
        RequestMeta { client, tasks, log_level: None, for_legacy: for_legacy.map(Into::into) }
    }

    #[test]
    fn what_was_read_in_the_last_metas_is_recalled_by_all_of_their_bytes_and_is_bounded() {
        for nth in 0..=MOST {
            remember(&format!("{{\"n\":{nth}}}"), &meta(nth % 2 == 1, None));
        }
        assert_eq!(recall(r#"{"n":1}"#), Some(meta(true, None)));
        assert_eq!(recall(r#"{"n":8}"#), Some(meta(false, None)));
        assert_eq!(recall(r#"{"n":1} "#), None);
        assert_eq!(recall(r#"{"n":0}"#), None, "it made room");
        let (token, long) = (r#"{"progressToken":1}"#, format!("{{\"n\":\"{}\"}}", "x".repeat(LONGEST)));
        remember(token, &meta(false, Some(token)));
        remember(&long, &meta(false, None));
        assert_eq!((recall(token), recall(&long)), (None, None));
    }
}
