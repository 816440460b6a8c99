//! Opens what a pool keeps: finds out the generation of the server, and opens a session with a legacy one.

use std::sync::Arc;

use ::http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::{
    BEHIND, Generation, NoSession, PoolKey, Pooled, ServerFacts, SessionPool,
    hear::hear,
    opening::{INITIALIZED, discovered_facts, facts, initialize},
    room::Room,
};
use crate::{
    observe::events,
    upstream::{Agreed, Failure, Handshake, Introduced, NotAgreed, Server, UpstreamSession},
    wire::{ClientCapabilities, Message, Version},
};

impl SessionPool {
    pub(super) async fn open(
        &self,
        server: &Server,
        key: &PoolKey,
        headers: &HeaderMap,
    ) -> Result<Arc<Pooled>, NoSession> {
        let room = self.room(&key.owner)?;
        let known = self.generation.get();
        let mut introduced = self.introduce(server, key, headers, known).await;
        let ended = matches!(introduced, Err(NotAgreed::Failed(Failure::ProcessEnded(_))));
        // A server that ends at a request before `initialize` is a legacy one. One that refuses what it took before was replaced.
        let again = match known {
            None => ended.then_some(Some(Generation::Legacy)),
            Some(Generation::Legacy) => matches!(introduced, Err(NotAgreed::Refused { .. })).then_some(None),
            Some(Generation::Modern { .. }) => None,
        };
        if let Some(known) = again {
            introduced = self.introduce(server, key, headers, known).await;
        }
        if introduced.is_err() {
            self.generation.forget();
        }
        match introduced.map_err(NoSession::NotAgreed)? {
            Introduced::Legacy(agreed) => self.greeted(agreed, room, headers).await,
            Introduced::Modern { session, answer } => Ok(self.discovered(session, &answer, room)?),
        }
    }

    /// Connects, and finds out the generation of the server unless it is known as a legacy one.
    async fn introduce(
        &self,
        server: &Server,
        key: &PoolKey,
        headers: &HeaderMap,
        known: Option<Generation>,
    ) -> Result<Introduced, NotAgreed> {
        let vacancy = server.vacancy().await.map_err(NotAgreed::Failed)?;
        if vacancy.lacking().is_some() {
            // Its child ends, and leaves its place.
            self.evict(None);
        }
        let handshake = Handshake {
            id: &self.id,
            server,
            client: key.client,
            vacancy,
            capacity: &self.capacity,
            observer: &self.observer,
        };
        let request = initialize(key.client);
        match known {
            Some(Generation::Legacy) => {
                handshake.agree(&request, Version::LATEST, headers).await.map(Introduced::Legacy)
            }
            Some(Generation::Modern { .. }) | None => handshake.introduce(&request, Version::LATEST, headers).await,
        }
    }

    /// Returns whether a server that has refused `initialize` is a modern one.
    pub async fn is_modern_only(&self, server: &Server, headers: &HeaderMap) -> bool {
        if self.generation.get().is_some_and(Generation::is_modern) {
            return true;
        }
        let Ok(vacancy) = server.vacancy().await else { return false };
        let (id, capacity, observer) = (&self.id, &self.capacity, &self.observer);
        let handshake = Handshake { id, server, client: ClientCapabilities::default(), vacancy, capacity, observer };
        let answer = handshake.discover(headers).await;
        let facts = answer.and_then(|answer| discovered_facts(&answer).ok());
        if let Some(facts) = &facts {
            self.generation.set(Generation::of(facts), facts);
        }
        facts.is_some()
    }

    /// Takes in a session with a legacy server.
    async fn greeted(&self, agreed: Agreed, room: Room, headers: &HeaderMap) -> Result<Arc<Pooled>, NoSession> {
        let failed = |failure| NoSession::NotAgreed(NotAgreed::Failed(failure));
        let Agreed { session, answer, .. } = agreed;
        let facts = facts(&answer).map_err(|why| {
            session.close(HeaderMap::new());
            failed(Failure::BadAnswer(why))
        })?;
        self.generation.set(Generation::Legacy, &facts);
        // It ends the session where the server does not take the rest, or the client leaves.
        let pooled = self.pooled(session, facts, Generation::Legacy, room);
        let initialized = Message::parse(INITIALIZED.into());
        let initialized = initialized.map_err(|why| failed(Failure::BadAnswer(why.to_string())))?;
        pooled.session.forward(&initialized, headers.clone()).await.map_err(failed)?;
        Ok(pooled)
    }

    /// Takes in the link to a modern server.
    fn discovered(&self, session: UpstreamSession, answer: &Message, room: Room) -> Result<Arc<Pooled>, NoSession> {
        let facts = discovered_facts(answer).map_err(|why| {
            session.close(HeaderMap::new());
            NoSession::NotAgreed(NotAgreed::Failed(Failure::BadAnswer(why)))
        })?;
        let generation = Generation::of(&facts);
        self.generation.set(generation, &facts);
        Ok(self.pooled(session, facts, generation, room))
    }

    fn pooled(&self, session: UpstreamSession, facts: ServerFacts, generation: Generation, room: Room) -> Arc<Pooled> {
        let session = Arc::new(session);
        let (changes, _) = broadcast::channel(BEHIND);
        let (upstream, observer) = (self.id.clone(), Arc::clone(&self.observer));
        observer.emit(events::PooledSessionOpened { upstream: upstream.as_str() });
        let (listened, listener, told) = (Arc::downgrade(&session), Arc::clone(session.outbox()), changes.clone());
        let subscribed = Mutex::default();
        let pooled = Pooled { session, facts, generation, changes, subscribed, upstream, observer, _room: room };
        tokio::spawn(hear(listened, listener, told));
        Arc::new(pooled)
    }
}
