//! Rewrites what an upstream sends during a request for its client.

use bytes::Bytes;

use super::Call;
use crate::wire::{
    Edits, Kind, Message, Method, Parts, message::echoed_number, object::Members, params::progress_token,
};

/// Returns the message for the client: progress of the call under the client's own token, and everything else
/// unchanged, even progress of a task of the server. Returns `None` for progress that the client has not asked for.
#[must_use]
pub fn for_client(message: &Message, call: &Call) -> Option<Bytes> {
    if message.kind() != Kind::Notification || message.method() != Method::Progress {
        return Some(message.bytes().clone());
    }
    let ours = progress_token(message)?;
    if echoed_number(ours) != Some(call.exchange.number) {
        return Some(message.bytes().clone());
    }
    let mut edits = Edits::of(message.bytes());
    edits.replace_raw(ours, call.progress_token.as_deref()?);
    Some(edits.apply().into_bytes())
}

/// Returns a response under the client's own id.
#[must_use]
pub fn with_id(response: &Message, id: &str) -> Parts {
    let mut edits = Edits::of(response.bytes());
    if let Some(span) = response.id_span() {
        edits.replace(span, id.to_owned());
    } else if let Ok(members) = Members::parse(response.text()) {
        // An error whose id the upstream could not read.
        edits.set(&members, "id", id);
    }
    edits.apply()
}
