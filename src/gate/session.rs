//! A session's beginning, and what a client sends in it that expects no answer, whatever the transport.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::oneshot;

use super::{
    Gate,
    answer::{Answer, Whole},
    refuse::Refusal,
};
use crate::{
    dialect::legacy::MaybeAnswer,
    identity::Owner,
    observe::events,
    route::{Route, route},
    session::{self, MAX_LATE, Session, SessionNotOpened, SessionOpening, Source, StreamItem, Tasks},
    upstream::{Failure, HttpError, Upstream},
    wire::{Message, RpcError},
};

/// How long a client waits for what the server says to a message that expects no answer. What is refused is refused at once;
/// a server that takes its time must not hold the client up.
const PROMPTLY: Duration = Duration::from_secs(1);

/// A message of the server that is the only one of its stream.
struct Single(Option<Bytes>);

impl Source for Single {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        Poll::Ready(self.0.take().map(StreamItem::Document))
    }
}

/// What became of a message that expects no answer.
pub(super) enum Accepted {
    /// The upstream has it, or gets it, or cannot be given it, which the client could not change.
    Yes,
    /// The upstream's refusal of who sends it.
    Unauthorized(Box<HttpError>),
}

impl Gate {
    /// Opens a session with a client's `initialize`.
    pub(super) async fn open(
        &self,
        upstream: &Arc<Upstream>,
        principal: Option<Arc<str>>,
        message: &Message,
        headers: HeaderMap,
    ) -> Result<(Arc<Session>, Answer), Whole> {
        self.open_again(upstream, (principal, None), message, headers).await
    }

    /// As [`Gate::open`], for a client who had a session before: without a principal the new one belongs to `previous`, who
    /// has its tasks.
    pub(super) async fn open_again(
        &self,
        upstream: &Arc<Upstream>,
        (principal, previous): (Option<Arc<str>>, Option<Owner>),
        message: &Message,
        headers: HeaderMap,
    ) -> Result<(Arc<Session>, Answer), Whole> {
        let id = message.id_to_answer();
        let full = |full: session::Full| Whole::error(id, &RpcError::internal(full.to_string()));
        let room = self.room(&upstream.id, principal.as_ref()).await.map_err(full)?;
        let opening = async {
            let opening = SessionOpening {
                upstream,
                principal,
                previous,
                vacancy: self.vacancy(upstream).await.map_err(SessionNotOpened::Failed)?,
                capacity: &self.outbox,
                max_streams: self.max_streams,
                accounts: &self.accounts,
                observer: &self.observer,
            };
            opening.open(message, headers).await
        };
        let opened = self.sessions.unless_refused(opening).await;
        let opened = opened.unwrap_or(Err(SessionNotOpened::Failed(Failure::Stopping))).map_err(|why| match why {
            SessionNotOpened::Invalid(error) => Whole::error(id, &error),
            SessionNotOpened::Upstream(answer) => Whole::Document(answer),
            SessionNotOpened::Failed(failure) => self.failed(upstream, None, id, failure),
        })?;
        let session = opened.session;
        if let Err(stopping) = room.fill(Arc::clone(&session)) {
            session.end(HeaderMap::new());
            return Err(full(stopping));
        }
        if session.tasks == Tasks::Native {
            upstream.hints.keeps_tasks(&upstream.id, &self.observer);
        }
        self.observer.emit(events::SessionOpened {
            who: &session.caller.who,
            version: session.version.as_str(),
            tasks: session.tasks.are_ours(),
        });
        let answer = match session.streams().reserve() {
            Ok(room) if opened.streams => {
                Answer::Stream(Box::new(Single(Some(opened.answer.into_bytes()))), Some(room))
            }
            _ => Whole::Document(opened.answer).into(),
        };
        Ok((session, answer))
    }

    /// Takes a notification, or a response to a request of the server.
    pub(super) async fn accept(
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
        if session.is_lost() {
            return Err(self.lost(session).await);
        }
        let (sender, observer) = (Arc::clone(session), Arc::clone(&self.observer));
        let (waits, left) = oneshot::channel();
        // A client that disconnects now has sent its message all the same.
        let mut sent = tokio::spawn(async move {
            let mut sending = std::pin::pin!(async {
                if cancelled {
                    sender.cancel(&message, headers).await
                } else {
                    sender.upstream_session.forward(&message, headers).await
                }
            });
            let room = tokio::select! {
                sent = &mut sending => return sent,
                room = left => room.or_else(|_| Arc::clone(&sender.late).try_acquire_owned()),
            };
            let sent = match room {
                Ok(_room) => sending.await,
                Err(_) => Err(Failure::Limit(format!("limit reached: {MAX_LATE} messages of the session are late"))),
            };
            if let Err(failure) = &sent {
                let (who, cause) = (&*sender.caller.who, failure.cause());
                observer.emit(events::ExchangeFailed { upstream: who.upstream(), who: Some(who), task: None, cause });
            }
            sent
        });
        let promptly = tokio::time::timeout(PROMPTLY, &mut sent).await;
        let sent = match (promptly, Arc::clone(&session.late).try_acquire_owned()) {
            (Ok(sent), _) => sent,
            (Err(_), Ok(late)) => match waits.send(late) {
                Ok(()) => return Ok(Accepted::Yes),
                // It has just been sent.
                Err(_) => sent.await,
            },
            // So many are late already that this one is waited for.
            (Err(_), Err(_)) => sent.await,
        };
        match sent.unwrap_or(Err(Failure::Abandoned)) {
            Err(Failure::SessionLost | Failure::ProcessEnded(_)) => return Err(self.lost(session).await),
            Err(Failure::Http(error)) if error.is_authorization() => return Ok(Accepted::Unauthorized(error)),
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
