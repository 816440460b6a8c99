//! A session's beginning, and what a client sends in it that expects no answer, whatever the transport.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;

use super::{
    Gate,
    answer::{Answer, Whole},
    refuse::Refusal,
};
use crate::{
    observe::events,
    route::{Route, route},
    session::{self, Next, NotOpened, Opening, Session, Source},
    task::Answered,
    upstream::{Failure, HttpError},
    wire::{Message, RpcError},
};

/// A message of the server that is the only one of its stream.
struct Single(Option<Bytes>);

impl Source for Single {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Next>> {
        Poll::Ready(self.0.take().map(Next::Document))
    }
}

/// What became of a message that expects no answer.
pub(super) enum Accepted {
    /// The upstream has it, or nobody can do anything about it.
    Yes,
    /// The upstream's refusal of who sends it.
    Unauthorized(Box<HttpError>),
}

impl Gate {
    /// Opens a session with a client's `initialize`.
    pub(super) async fn open(
        &self,
        upstream: usize,
        principal: Option<Arc<str>>,
        message: &Message,
        headers: HeaderMap,
    ) -> Result<(Arc<Session>, Answer), Whole> {
        let id = message.id().unwrap_or("null");
        let full = |full: session::Full| Whole::error(id, &RpcError::internal(full.to_string()));
        let room = self.sessions.room(upstream, principal.as_ref()).map_err(full)?;
        let configured = &self.upstreams[upstream];
        let opening = Opening {
            server: &configured.server,
            upstream,
            native: configured.native,
            principal,
            outbox: &self.outbox,
            max_streams: self.max_streams,
            accounts: &self.accounts,
            observer: &self.observer,
        };
        let opened = self.sessions.unless_refused(opening.open(message, headers)).await;
        let opened = opened.unwrap_or(Err(NotOpened::Failed(Failure::Stopping))).map_err(|why| match why {
            NotOpened::Invalid(error) => Whole::error(id, &error),
            NotOpened::Upstream(answer) => Whole::Document(answer),
            NotOpened::Failed(failure) => self.failed(id, failure),
        })?;
        let session = opened.session;
        if let Err(stopping) = room.fill(Arc::clone(&session)) {
            session.end(HeaderMap::new());
            return Err(full(stopping));
        }
        self.observer.emit(events::SessionOpened {
            path: &configured.path,
            version: session.version.as_str(),
            tasks: session.tasks == session::Tasks::Served,
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
        let message = match self.engine.answer(session, message, &headers).await {
            Answered::Taken => return Ok(Accepted::Yes),
            Answered::NotAQuestion(message) => message,
        };
        if session.is_lost() {
            return Err(self.lost(session).await);
        }
        let policy = &self.upstreams[session.upstream].policy;
        let cancelled = matches!(route(&message, session.tasks, policy), Route::Cancelled);
        let sender = Arc::clone(session);
        // A client that disconnects now has sent its message all the same.
        let sent = tokio::spawn(async move {
            if cancelled { sender.cancel(&message, headers).await } else { sender.forward(&message, headers).await }
        });
        match sent.await.unwrap_or(Err(Failure::Abandoned)) {
            Err(Failure::SessionLost | Failure::ProcessEnded(_)) => return Err(self.lost(session).await),
            Err(Failure::Http(error)) if error.is_authorization() => return Ok(Accepted::Unauthorized(error)),
            // Clients give up the whole session over an error for a message that expects no answer.
            Err(failure) => self.observer.emit(events::ExchangeFailed { failure: &failure }),
            Ok(()) => {}
        }
        Ok(Accepted::Yes)
    }
}
