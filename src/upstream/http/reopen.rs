//! When a stream that has ended is opened again, and by what.

use std::{ops::RangeInclusive, time::Duration};

use http::HeaderValue;

use crate::wire::sse::Decoder;

/// The pause before a stream that has ended is opened again, where the upstream names none.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// The shortest and the longest pause that an upstream may ask for.
pub(super) const RETRY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(30);
/// How long an event id may be that a stream is resumed by, in bytes: it has to fit into a request's head.
const MAX_EVENT_ID: usize = 4 * 1024;

/// The value of `Last-Event-ID` by which a stream is resumed, if it gave one that can be sent.
pub(super) fn resumption(decoder: &Decoder) -> Option<HeaderValue> {
    let id = decoder.last_id().filter(|id| id.len() <= MAX_EVENT_ID)?;
    HeaderValue::from_maybe_shared(id.clone()).ok()
}

/// How long to wait before the stream is opened again.
pub(super) fn pause(decoder: &Decoder) -> Duration {
    decoder.retry().unwrap_or(REOPEN_AFTER).clamp(*RETRY.start(), *RETRY.end())
}
