//! What `statusMessage` says, and why a task has failed: in the server's own words where it has any.

use std::{sync::Arc, time::Duration};

use super::{Change, End, KeptLimit};
use crate::{
    upstream::{CallOutcome, own_error},
    wire::excerpt,
};

/// Of a task whose call waits for its turn.
pub(super) const QUEUED: &str = "Queued: waits for its turn, because as many calls run as may run at once.";
/// Of a task whose call has waited and has its turn.
pub(super) const RUNNING: &str = "Running.";
/// Of a task that was not acknowledged.
pub(super) const NOT_ACKNOWLEDGED: &str = "The task was not acknowledged, and its call was not sent";
/// Of a task whose call ran when the process ended.
pub(super) const INTERRUPTED: &str = "the process of taskgate ended while the call ran; the call may or may not have had \
    its effect, and it was not sent again";
/// Of a task whose call ran when the process ended, and cannot be resumed without its credentials.
pub(super) const NOT_RESUMED_WITHHELD: &str = "the process of taskgate ended while the call ran; the call may or may not \
    have had its effect, and it was not sent again; its answer could not be resumed, as its credentials were not kept: the \
    store has no key";
/// Of a task whose call ran when the process ended, in a session with a server elsewhere.
pub(super) const NOT_RESUMED_ELSEWHERE: &str = "the process of taskgate ended while the call ran; the call may or may not \
    have had its effect, and it was not sent again; its answer could not be resumed, as its upstream has another url now";
/// Of a task whose call waited when the process ended, and cannot be sent without its credentials.
pub(super) const WITHHELD: &str = "taskgate was restarted while the call waited for its turn, and the call was not sent: \
    its credentials were not kept, as the store has no key; call again";

/// Returns why a call failed whose answer could not be resumed.
pub(super) fn not_resumed(why: &str) -> String {
    format!("{INTERRUPTED}; its answer could not be resumed: {why}")
}

/// Returns why a call failed that waited when the process ended, and that was not sent.
pub(super) fn not_sent(why: &str) -> String {
    format!("taskgate was restarted while the call waited for its turn, and the call was not sent: {why}; call again")
}

/// Returns the change that ends the task of a call, and for the log why the task failed, unless what the call gave says
/// so.
pub(super) fn ended(outcome: CallOutcome) -> (Change, Option<String>) {
    let short = |text: &str| Arc::from(excerpt(text));
    match outcome {
        CallOutcome::Result { raw } => (Change::End(End::Result { raw, is_error: false }, None), None),
        CallOutcome::ErrorResult { raw, text } => {
            let text = short(text.as_deref().unwrap_or("the tool reported an error"));
            (Change::End(End::Result { raw, is_error: true }, Some(text)), None)
        }
        CallOutcome::Error { raw, text } => {
            let text = short(&text.map_or_else(|| String::from_utf8_lossy(&raw), Into::into));
            (Change::End(End::Error { raw }, Some(text)), None)
        }
        CallOutcome::TooLarge { max_result } => {
            let cause = format!("the result is larger than max_result = {max_result} bytes");
            (failed(&format!("limit reached: {cause}")), Some(cause))
        }
        CallOutcome::Nothing { why, cause } => (failed(&why), Some(cause)),
    }
}

/// Returns the change that fails a task whose server gave no answer.
pub(super) fn failed(why: &str) -> Change {
    Change::End(End::Error { raw: own_error(why) }, Some(why.into()))
}

/// Returns why a call's turn has not come, after it waited for `patience`. `full` is the limit that its owner has
/// reached.
pub(super) fn no_turn(patience: Duration, timeout: Duration, full: Option<KeptLimit>) -> String {
    let [patience, timeout] = [patience, timeout].map(humantime::format_duration);
    let waited = format!("limit reached: the task waited for its turn for {patience}");
    match full {
        Some(limit) => format!("{waited}; {limit}"),
        None => format!(
            "{waited}, and its ttl leaves the call no more than its timeout = {timeout}; call again later, or ask for a \
             longer ttl"
        ),
    }
}

/// Returns why a call that has run for its `timeout` failed.
pub(super) fn timed_out(timeout: Duration) -> String {
    format!("timeout = {} is over and the call was cancelled", humantime::format_duration(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(outcome: CallOutcome) -> Option<String> {
        let (Change::End(_, text), _) = ended(outcome) else { panic!("no end") };
        text.map(|text| text.to_string())
    }

    #[test]
    fn a_failure_is_told_in_the_words_of_the_server_shortened_or_else_in_those_of_taskgate() {
        let raw = bytes::Bytes::from_static(br#"{"code":-1}"#);
        let own = || Some("no disk".to_owned());
        assert_eq!(text(CallOutcome::Result { raw: raw.clone() }), None);
        assert_eq!(text(CallOutcome::ErrorResult { raw: raw.clone(), text: own() }), own());
        let without = text(CallOutcome::ErrorResult { raw: raw.clone(), text: None });
        assert_eq!(without.as_deref(), Some("the tool reported an error"));
        assert_eq!(text(CallOutcome::Error { raw: raw.clone(), text: own() }), own());
        assert_eq!(text(CallOutcome::Error { raw: raw.clone(), text: None }).as_deref(), Some(r#"{"code":-1}"#));
        let long = text(CallOutcome::Error { raw, text: Some("x".repeat(1000)) });
        assert_eq!(long.map(|text| text.len()), Some(500));
        let (change, why) = ended(CallOutcome::TooLarge { max_result: 5 });
        let why = why.expect("for the log");
        assert_eq!(why, "the result is larger than max_result = 5 bytes");
        assert!(matches!(change, Change::End(_, Some(text)) if *text == *format!("limit reached: {why}")));
    }
}
