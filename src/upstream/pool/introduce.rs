//! Opens what a pool keeps: finds out the generation of the server, and opens a session with a legacy one.

use std::{sync::Arc, time::Duration};

use ::http::HeaderMap;

use super::{
    Generation, NoSession, PoolKey, Pooled, ServerFacts, SessionPool, Sharing,
    hear::hear,
    opening::{INITIALIZED, discovered_facts, facts, initialize},
    place::Place,
    room::Room,
    slot::Slots,
};
use crate::{
    upstream::{Agreed, Failure, Handshake, Introduced, Kept, KnownTools, NotAgreed, Server, UpstreamSession, Vacancy},
    wire::{ClientCapabilities, Message, Version},
};

/// How long the first call in a session waits for the GET stream at most.
const FIRST_CALL_WAITS: Duration = Duration::from_millis(500);
/// What is wrong where a server does not know a session right after it has opened it. Behind a balancer it is another.
const FORGOTTEN_AT_ONCE: &str = "it does not know the session that it has just opened; the request was not sent to it";

impl SessionPool {
    pub(super) async fn open(
        &self,
        server: &Server,
        key: &PoolKey,
        sharing: Sharing,
        headers: &HeaderMap,
        Place { room, vacancy }: Place,
    ) -> Result<Arc<Pooled>, NoSession> {
        let known = self.generation.get();
        let tools = if sharing == Sharing::Once { self.tools(key) } else { Arc::default() };
        let mut introduced = self.introduce(server, key, headers, known, &tools, vacancy).await;
        let ended = matches!(introduced, Err(NotAgreed::Failed(Failure::ProcessEnded(_))));
        // A server that ends at a request before `initialize` is a legacy one. One that refuses what it took before was
        // replaced.
        let again = match known {
            None => ended.then_some(Some(Generation::Legacy)),
            Some(Generation::Legacy) => matches!(introduced, Err(NotAgreed::Refused { .. })).then_some(None),
            Some(Generation::Modern { .. }) => None,
        };
        if let Some(known) = again {
            // The process before has left its place, perhaps to another call.
            let vacancy = self.vacancy(server).await?;
            introduced = self.introduce(server, key, headers, known, &tools, vacancy).await;
        }
        if introduced.as_ref().is_err_and(may_be_another) {
            self.generation.forget();
        }
        match introduced.map_err(not_agreed)? {
            Introduced::Legacy(agreed) => {
                let pooled = self.greeted(agreed, server, key, room, headers).await?;
                self.generation.set(Generation::Legacy, &pooled.facts);
                Ok(pooled)
            }
            Introduced::Modern { session, answer } => {
                let pooled = self.pooled(session, server, discovered_facts(&answer), Generation::of_modern, room)?;
                // Over HTTP there is nothing that a request could have for itself.
                if sharing != Sharing::Once || !server.is_process() {
                    self.keep(&PoolKey::of_requests(key.owner.clone()), &pooled);
                }
                // From here on requests look for it where it is kept.
                self.generation.set(pooled.generation, &pooled.facts);
                // Those who wait for a place can share it.
                self.unused.notify_waiters();
                Ok(pooled)
            }
        }
    }

    /// Opens a session, also with a server that is modern as well. What is known of its generation stays.
    pub(super) async fn open_session(
        &self,
        server: &Server,
        key: &PoolKey,
        headers: &HeaderMap,
    ) -> Result<Arc<Pooled>, NoSession> {
        let Place { room, vacancy } = self.place(server, key).await?;
        let known = Some(Generation::Legacy);
        let introduced = self.introduce(server, key, headers, known, &Arc::default(), vacancy).await;
        match introduced.map_err(not_agreed)? {
            Introduced::Legacy(agreed) => self.greeted(agreed, server, key, room, headers).await,
            Introduced::Modern { .. } => Err(NoSession::failed(Failure::BadAnswer("it opens no session".to_owned()))),
        }
    }

    /// Connects, and finds out the generation of the server unless it is known as a legacy one.
    async fn introduce(
        &self,
        server: &Server,
        key: &PoolKey,
        headers: &HeaderMap,
        known: Option<Generation>,
        tools: &Arc<KnownTools>,
        vacancy: Vacancy,
    ) -> Result<Introduced, NotAgreed> {
        let handshake = Handshake {
            id: &self.id,
            server,
            client: key.client,
            vacancy,
            pooled: true,
            owner: Some(key.owner.clone()),
            tools: Arc::clone(tools),
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

    /// Returns whether a server, which has answered as a modern one does, is a modern one. Asks the server where that
    /// is not known, and ends no session with it.
    pub async fn turns_out_modern(&self, server: &Server, headers: &HeaderMap) -> bool {
        if self.generation.get().is_some_and(Generation::is_modern) {
            return true;
        }
        let Ok(vacancy) = server.vacancy().await else { return false };
        let (id, capacity, observer) = (&self.id, &self.capacity, &self.observer);
        let (client, tools) = (ClientCapabilities::default(), Arc::default());
        let handshake = Handshake { id, server, client, vacancy, pooled: true, owner: None, tools, capacity, observer };
        let answer = handshake.discover(headers).await;
        let facts = answer.and_then(|answer| discovered_facts(&answer).ok());
        if let Some(facts) = &facts {
            self.generation.set(Generation::of_modern(facts), facts);
        }
        facts.is_some()
    }

    /// Takes in a session with a legacy server. Where the server may ask on its GET stream, that is open before the first
    /// call.
    async fn greeted(
        &self,
        agreed: Agreed,
        server: &Server,
        key: &PoolKey,
        room: Room,
        headers: &HeaderMap,
    ) -> Result<Arc<Pooled>, NoSession> {
        let Agreed { session, answer, .. } = agreed;
        // It ends the session where the server does not take the rest, or the client leaves.
        let session = session.opened_with(headers);
        let pooled = self.pooled(session, server, facts(&answer), |_| Generation::Legacy, room)?;
        let initialized = Message::parse(INITIALIZED.into());
        let initialized = initialized.map_err(|why| NoSession::failed(Failure::BadAnswer(why.to_string())))?;
        pooled.session.forward(&initialized, headers.clone()).await.map_err(|failure| match failure {
            // No call was sent that may have had an effect.
            Failure::SessionLost => NoSession::failed(Failure::BadAnswer(FORGOTTEN_AT_ONCE.to_owned())),
            failure => NoSession::failed(failure),
        })?;
        if asks_apart(server, key) {
            pooled.session.listening(FIRST_CALL_WAITS).await;
        }
        Ok(pooled)
    }

    /// Keeps what was opened for another key, unless that one has its own, or one is being opened.
    pub(super) fn keep(&self, key: &PoolKey, pooled: &Arc<Pooled>) {
        let Ok(used) = Slots::of(&self.slots, key) else { return };
        let Ok(_opening) = used.slot.opening.try_lock() else { return };
        if Slots::lease_shared(&self.slots, key, |_| ()).is_none() {
            if let Some(lost) = used.slot.take_lost() {
                lost.vacate();
            }
            used.slot.share(pooled);
        }
    }

    /// Takes in a session whose server has said this of itself. Ends it where that cannot be read.
    fn pooled(
        &self,
        session: UpstreamSession,
        server: &Server,
        facts: Result<ServerFacts, String>,
        generation: impl FnOnce(&ServerFacts) -> Generation,
        room: Room,
    ) -> Result<Arc<Pooled>, NoSession> {
        let session = if server.is_process() { session.notifying(&self.unused) } else { session };
        let session = Arc::new(session);
        let bad = |why| NoSession::failed(Failure::BadAnswer(why));
        let facts = facts.map_err(bad).and_then(|facts| self.slots.lock().note(&session).map(|()| facts));
        let facts = facts.inspect_err(|_| session.close(session.headers_of_its_own()))?;
        let (listened, listener) = (Arc::downgrade(&session), Arc::clone(session.outbox()));
        let generation = generation(&facts);
        let pooled = Pooled::new(session, facts, generation, room, self.id.clone(), Arc::clone(&self.observer));
        tokio::spawn(hear(listened, listener, pooled.changes.clone()));
        Ok(pooled)
    }
}

/// Returns whether a server may ask the clients of a key on the GET stream of their session. Many servers drop what
/// they ask while there is no such stream.
fn asks_apart(server: &Server, key: &PoolKey) -> bool {
    server.has_get_stream() && key.client.any()
}

/// Returns whether a handshake may have failed because the server is another one than before, and not for its caller's
/// credential or a limit.
fn may_be_another(why: &NotAgreed) -> bool {
    match why {
        NotAgreed::Failed(Failure::Http(error)) => !error.is_authorization(),
        NotAgreed::TooMany(_) | NotAgreed::Failed(Failure::Limit(_)) => false,
        NotAgreed::Refused { .. } | NotAgreed::Failed(_) => true,
    }
}

fn not_agreed(why: NotAgreed) -> NoSession {
    NoSession::NotAgreed(Arc::new(why))
}
