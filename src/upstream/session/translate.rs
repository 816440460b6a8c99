//! Rewrites what an upstream sends during a request for its client.

use bytes::Bytes;

use super::Call;
use crate::{
    upstream::HttpError,
    wire::{
        Edits, Kind, Message, Method, Parts,
        message::{Outcome, echoed_number},
        object::Members,
        params::progress_token,
    },
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

/// Returns a server's refusal of a credential as the answer to the client's request, where it is a JSON-RPC error.
#[must_use]
pub fn refusal_with_id(mut refusal: Box<HttpError>, id: &str) -> Box<HttpError> {
    // Any other body says nothing of a request.
    if let Ok(response) = Message::of_server(refusal.body.clone())
        && matches!(response.outcome(), Some((Outcome::Error, _)))
    {
        refusal.body = with_id(&response, id).into_bytes();
    }
    refusal
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
