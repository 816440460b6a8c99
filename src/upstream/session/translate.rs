//! What an upstream sends during a request, as its client may see it.

use bytes::Bytes;

use super::Call;
use crate::{
    upstream::progress_token,
    wire::{Edits, Kind, Message, Method, Parts, message::echoed_number, object::Members},
};

/// The message for the client: progress of the call under the client's own token, everything else as it is, which may be
/// progress of a task of the server. `None` where the client asked for no progress.
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

/// A response under the client's own id.
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
