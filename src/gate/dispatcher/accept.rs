//! What a client sends in a session that expects no answer, whatever the transport.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::sync::oneshot;

use super::Dispatcher;
use crate::{
    dialect::legacy::MaybeAnswer,
    flow::{ByteRoom, TakenBytes},
    gate::refuse::Refusal,
    observe::events,
    route::{Route, route},
    session::{LATE, MAX_LATE, Session},
    upstream::{Failure, HttpError},
    wire::{Kind, Message, headers_cost},
};

/// How long a client waits for the server's word on a message that expects no answer. A refusal comes at once; a slow
/// server must not hold the client up.
const PROMPTLY: Duration = Duration::from_secs(1);

/// How many bytes of messages may be late in all sessions together.
pub(super) const MAX_LATE_TOTAL: usize = 64 * MAX_LATE;

/// What is said of a message that there was no such room for.
const LATE_LIMIT: &str = "limit reached: messages that the server has not taken yet have 1 MiB in this session, or 64 MiB in \
    all; the message was given up, as its client has left";
const _: () = assert!(MAX_LATE == 1 << 20 && MAX_LATE_TOTAL == 64 << 20);

/// Takes the room for a message that is late: on its way upstream though its client has been answered, or has left. What is
/// larger than the room may have all of it.
fn late_room(session: &Session, of_all: &ByteRoom, bytes: usize) -> Option<[TakenBytes; 2]> {
    let bytes = bytes.max(LATE);
    Some([session.late.take_at_any_size(bytes)?, of_all.take_at_any_size(bytes)?])
}

/// What became of a message that expects no answer.
pub(in crate::gate) enum Accepted {
    /// The upstream has it, or gets it, or cannot be given it, which the client could not change.
    Yes,
    /// The upstream's refusal of the sender.
    Unauthorized(Box<HttpError>),
}

impl Dispatcher {
    /// Takes a notification, or a response to a request of the server.
    pub(in crate::gate) async fn accept(
        &self,
        session: &Arc<Session>,
        message: Message,
        headers: HeaderMap,
    ) -> Result<Accepted, Refusal> {
        let cancelled = match route(&message, session.tasks, &session.caller.upstream.policy) {
            Route::Refuse(error) => return Err(Refusal::unfit(error)),
            route => matches!(route, Route::Cancelled),
        };
        let message = match self.legacy.answer(session, message, &headers).await {
            MaybeAnswer::Taken => return Ok(Accepted::Yes),
            MaybeAnswer::Other(message) => message,
        };
        // A call that goes on may have asked: an answer is for the server to refuse, which ends that call.
        let was_lost = session.is_lost();
        if was_lost && message.kind() != Kind::Response {
            return Err(self.lifecycle.lost(session).await);
        }
        let (sender, of_all, observer) = (Arc::clone(session), self.late.clone(), Arc::clone(&self.observer));
        let bytes = message.bytes().len() + headers_cost(&headers);
        let (waits, mut left) = oneshot::channel();
        // A client that disconnects now has sent its message all the same.
        let mut sent = tokio::spawn(async move {
            let mut sending = std::pin::pin!(async {
                if cancelled {
                    sender.cancel(&message, headers).await
                } else {
                    sender.upstream_session.forward(&message, headers).await
                }
            });
            let waited_for = tokio::select! {
                biased;
                room = &mut left => Err(room),
                sent = &mut sending => Ok(sent),
            };
            // From here on the client waits for the answer; it may have handed over the room, or have left, just before.
            left.close();
            let sent = match waited_for {
                Ok(sent) if left.try_recv().is_err() => return sent,
                Ok(sent) => sent,
                Err(room) => match room.ok().or_else(|| late_room(&sender, &of_all, bytes)) {
                    Some(_room) => sending.await,
                    None => Err(Failure::Limit(LATE_LIMIT.into())),
                },
            };
            if let Err(failure) = &sent {
                let (who, cause) = (&*sender.caller.who, failure.cause());
                observer.emit(events::ExchangeFailed { upstream: who.upstream(), who: Some(who), task: None, cause });
            }
            sent
        });
        let promptly = tokio::time::timeout(PROMPTLY, &mut sent).await;
        let sent = match promptly {
            Ok(sent) => sent,
            Err(_) => match late_room(session, &self.late, bytes) {
                Some(room) => match waits.send(room) {
                    Ok(()) => return Ok(Accepted::Yes),
                    // It has just been sent.
                    Err(_) => sent.await,
                },
                // So many are late already that this one is waited for.
                None => sent.await,
            },
        };
        match sent.unwrap_or(Err(Failure::Abandoned)) {
            Err(Failure::SessionLost | Failure::ProcessEnded(_)) => return Err(self.lifecycle.lost(session).await),
            Err(Failure::Http(error)) if error.is_authorization() => return Ok(Accepted::Unauthorized(error)),
            Err(_) if was_lost => return Err(self.lifecycle.lost(session).await),
            // Clients give up the whole session over an error for a message that expects no answer.
            Err(failure) => {
                let (who, cause) = (&*session.caller.who, failure.cause());
                let upstream = who.upstream();
                self.observer.emit(events::ExchangeFailed { upstream, who: Some(who), task: None, cause });
            }
            Ok(()) => {}
        }
        Ok(Accepted::Yes)
    }
}
