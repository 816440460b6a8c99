//! What a server of the pool sends that belongs to no call.

use std::{
    future::poll_fn,
    sync::{Arc, Weak},
};

use tokio::sync::broadcast;

use crate::{
    flow::{Item, Outbox},
    upstream::UpstreamSession,
    wire::{Kind, Message, Method, RpcError},
};

/// The largest notification of a change that is told: some of them wait for each subscriber.
const MAX_CHANGE: usize = 64 * 1024;

/// Reads what a server sends that belongs to no call, while its session lives: tells changes, and answers questions,
/// which no client can be asked.
pub(super) async fn hear(
    session: Weak<UpstreamSession>,
    listener: Arc<Outbox<()>>,
    changes: broadcast::Sender<Message>,
) {
    let _attached = listener.attach();
    loop {
        match poll_fn(|cx| listener.poll_next(cx)).await {
            Some(Item::Message(message)) if message.kind() == Kind::Request => {
                let Some(session) = session.upgrade() else { return };
                let reply = if message.method() == Method::Ping {
                    crate::wire::response::pong(message.id_to_answer())
                } else {
                    let why = "no client can be asked outside of a call: send the request on the stream of the call";
                    RpcError::method_not_found(why).to_response(message.id())
                };
                // A server that does not take it goes on without an answer.
                let _ = session.reply(reply, session.headers_of_its_own()).await;
            }
            Some(Item::Message(message)) if message.method().is_change() && message.bytes().len() <= MAX_CHANGE => {
                // The bytes may be a cut of a larger buffer.
                drop(changes.send(message.compact()));
            }
            Some(Item::Message(_) | Item::Silence | Item::Pause(_)) => {}
            Some(Item::End(())) | None => return,
        }
    }
}
