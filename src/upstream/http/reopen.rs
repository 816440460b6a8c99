//! When a stream that has ended is opened again, and at which event.

use std::time::Duration;

use http::HeaderValue;

use crate::wire::sse::Decoder;

/// The pause before a stream that has ended is opened again, where the upstream names none.
const REOPEN_AFTER: Duration = Duration::from_secs(1);
/// The shortest pause that an upstream may ask for.
const SHORTEST: Duration = Duration::from_millis(100);
/// The longest pause between fruitless attempts, unless the upstream asks for a longer one.
const LONGEST: Duration = Duration::from_secs(30);

/// Returns the value of `Last-Event-ID` by which a stream is resumed, if the server gave one that can be sent.
pub(super) fn resumption(decoder: &Decoder) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(decoder.last_id()?.clone()).ok()
}

/// Returns how long to wait before the stream is opened again: at least as long as the upstream asks (section "Sending
/// Messages to the Server" 6).
pub(super) fn pause(decoder: &Decoder) -> Duration {
    decoder.retry().unwrap_or(REOPEN_AFTER).max(SHORTEST)
}

/// Returns how long to wait before a silent answer is asked for again. The server has to notice that the earlier stream
/// has ended: its notice must not end the new one.
pub(super) fn after_silence(decoder: &Decoder) -> Duration {
    pause(decoder).max(REOPEN_AFTER)
}

/// Returns the pause of [`pause`], longer after each fruitless attempt.
pub(super) fn backed_off(decoder: &Decoder, fruitless: u32) -> Duration {
    let pause = pause(decoder);
    pause.saturating_mul(1 << fruitless.min(5)).min(LONGEST.max(pause))
}
