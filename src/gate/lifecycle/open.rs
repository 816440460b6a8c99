//! A session's beginning.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;

use super::Lifecycle;
use crate::{
    dialect::tools::instructed,
    gate::delivery::{Delivery, Whole},
    identity::Owner,
    observe::events,
    session::{self, Session, SessionNotOpened, SessionOpening, Source, StreamItem, Tasks},
    upstream::{Failure, Upstream},
    wire::{Message, RpcError},
};

/// The client that a session is opened for.
#[derive(Debug)]
pub(in crate::gate) struct NewClient<'a> {
    /// The upstream that it wants.
    pub upstream: &'a Arc<Upstream>,
    /// The name of its principal.
    pub principal: Option<Arc<str>>,
    /// The owner of the session that it had before: without a principal the new one belongs to that owner, who has its
    /// tasks.
    pub previous: Option<Owner>,
    /// Whether its session may be kept for a later process: it can still name it then.
    pub comes_back: bool,
}

/// A message of the server that is the only one of its stream.
struct Single(Option<Bytes>);

impl Source for Single {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        Poll::Ready(self.0.take().map(StreamItem::Document))
    }
}

impl Lifecycle {
    /// Opens a session with a client's `initialize`.
    pub(in crate::gate) async fn open(
        &self,
        client: NewClient<'_>,
        message: &Message,
        headers: HeaderMap,
    ) -> Result<(Arc<Session>, Delivery), Whole> {
        let NewClient { upstream, principal, previous, comes_back } = client;
        let id = message.id_to_answer();
        let full = |full: session::Full| Whole::error(id, &RpcError::internal(full.to_string()));
        let room = self.room(&upstream.id, principal.as_ref()).await.map_err(full)?;
        let opening = async {
            let opening = SessionOpening {
                upstream,
                principal,
                previous,
                vacancy: self.vacancy(upstream).await.map_err(SessionNotOpened::Failed)?,
                capacity: &self.terms.outbox,
                max_streams: self.terms.max_streams,
                accounts: &self.terms.accounts,
                disk: self.terms.disk.clone().filter(|_| comes_back),
                observer: &self.observer,
            };
            opening.open(message, headers).await
        };
        let opened = self.sessions.unless_refused(opening).await;
        let opened = opened.unwrap_or(Err(SessionNotOpened::Failed(Failure::Stopping))).map_err(|why| match why {
            SessionNotOpened::Invalid(error) => Whole::error(id, &error),
            SessionNotOpened::Upstream(answer) => Whole::Document(answer),
            SessionNotOpened::Failed(failure) => Whole::failed(&self.observer, upstream, None, id, failure),
        })?;
        let session = opened.session;
        if let Err(stopping) = room.fill(Arc::clone(&session)) {
            drop(session.end(HeaderMap::new()));
            return Err(full(stopping));
        }
        // At once: a client that leaves while its session is kept has opened it all the same.
        self.observer.emit(events::SessionOpened {
            who: &session.caller.who,
            version: session.version.as_str(),
            tasks: session.tasks.are_ours(),
        });
        if let Err(why) = session.save(self.engine.now()).await {
            // Its plain calls need no store. It is written before its first task is.
            tracing::warn!(%why, "a session that was opened is not kept yet");
        }
        if session.tasks == Tasks::Native {
            upstream.hints.note_own_tasks(&upstream.id, &self.observer);
        }
        let answer = if session.gets_jobs() { instructed(opened.answer) } else { opened.answer };
        let answer = match session.streams().reserve() {
            Ok(room) if opened.streams => {
                Delivery::Stream { source: Box::new(Single(Some(answer.into_bytes()))), room: Some(room) }
            }
            _ => Whole::Document(answer).into(),
        };
        Ok((session, answer))
    }
}
