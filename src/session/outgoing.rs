//! A client's request on its way upstream: our number in the place of its id and its progress token, the rest as it was.

use http::HeaderMap;

use super::Session;
use crate::{
    upstream::{Exchange, Outgoing, Purpose, TooMany},
    wire::{Edits, Message, object::Members},
};

/// A request in flight on behalf of a client.
#[derive(Debug)]
pub struct Call {
    /// What comes back.
    pub exchange: Exchange,
    /// The raw progress token that the client gave.
    pub progress_token: Option<Box<str>>,
}

/// What may differ between calls.
#[derive(Clone, Copy, Debug)]
pub struct CallOptions {
    /// A client's open request, or a task.
    pub purpose: Purpose,
    /// The largest answer to take, in bytes.
    pub max_answer: usize,
    /// Whether a large answer may be handed over while it arrives.
    pub relay: bool,
}

impl Session {
    /// Starts a client's request upstream. For a task, `params.task` is left out.
    ///
    /// # Errors
    /// [`TooMany`]
    pub fn call(&self, message: &Message, headers: HeaderMap, options: CallOptions) -> Result<Call, TooMany> {
        let client_id = match options.purpose {
            Purpose::Foreground => message.id(),
            Purpose::Background => None,
        };
        let mut exchange = self.inbound.exchanges.begin(client_id, options.purpose)?;
        let number = exchange.number;
        let mut edits = Edits::of(message.bytes());
        if let Some(id) = message.id_span() {
            edits.replace(id, number.to_string());
        }
        let params = message.params().filter(|params| needs_reading(params, options.purpose));
        let params = params.and_then(|params| Members::parse(params).ok());
        let mut progress_token = None;
        if let Some(params) = params {
            let meta = params.object("_meta");
            if let Some(token) = meta.as_ref().and_then(|meta| meta.get("progressToken")) {
                edits.replace_raw(token, number.to_string());
                progress_token = Some(token.into());
            } else if options.purpose == Purpose::Background {
                // A client that only polls sees progress too.
                match &meta {
                    Some(meta) => edits.set(meta, "progressToken", &number.to_string()),
                    None => edits.set(&params, "_meta", &format!(r#"{{"progressToken":{number}}}"#)),
                }
            }
            if options.purpose == Purpose::Background {
                edits.remove(&params, "task");
            }
        }
        let message = edits.apply().into_bytes();
        let CallOptions { max_answer, relay, .. } = options;
        exchange.carry(self.link.request(Outgoing { number, message, headers, max_answer, relay }));
        Ok(Call { exchange, progress_token })
    }
}

/// Whether `params` may hold something to change; an escape could hide the key.
fn needs_reading(params: &str, purpose: Purpose) -> bool {
    let holds = |needle: &str| memchr::memmem::find(params.as_bytes(), needle.as_bytes()).is_some();
    purpose == Purpose::Background || holds("progressToken") || holds("\\u")
}
