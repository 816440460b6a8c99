//! What was agreed with one client, on both sides: owner, revision, the link to its upstream, and what uses it.

mod gave;
mod initialize;
mod listing;
mod outgoing;
mod ring;
mod source;
mod streams;
mod table;
#[cfg(test)]
mod testing;
mod told;
mod translate;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use tokio::{
    sync::{OwnedRwLockReadGuard, RwLock, Semaphore},
    time::Instant,
};
use uuid::Uuid;

pub use gave::{Gave, error_code, gave, own_error};
pub use initialize::{NotOpened, Opened, Opening};
pub use outgoing::{Call, CallOptions};
pub use source::{Next, Source};
pub use streams::{Connection, NotResumed, StreamRoom, Streams};
pub use table::{Full, Room, Sessions, Unused};
#[cfg(test)]
pub(crate) use testing::alone;
pub use told::{Asked, Told, not_asked};
pub use translate::{for_client, with_id};

use crate::{
    config::UpstreamId,
    flow::{Capacity, Outbox},
    identity::Owner,
    limit::Account,
    observe::{Observer, Who, events},
    upstream::{Exchanges, Failure, Inbound, Link, NativeTasks, Upstream},
    wire::{ClientCapabilities, Edits, Message, Method, Version, object::Members, response::cancelled},
};

/// When clients come back whose GET stream has ended because the process stops: a restart takes about that long.
const COME_BACK: Duration = Duration::from_secs(5);
/// How long an upstream may still answer a request that was cancelled before its connection is dropped.
const CANCEL_GRACE: Duration = Duration::from_secs(5);

/// How many messages that expect no answer may still be on their way upstream when their client has been answered.
pub const MAX_LATE: usize = 64;

/// Who serves tasks in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tasks {
    /// Nobody: the revision that was agreed has none.
    Off,
    /// The upstream, which has tasks of its own; everything about them passes.
    Native,
    /// taskgate.
    Served,
    /// The upstream for the tools that it lists with tasks of its own, taskgate for all others.
    Both,
}

impl Tasks {
    /// Returns whether any of them are taskgate's.
    #[must_use]
    pub const fn are_ours(self) -> bool {
        matches!(self, Self::Served | Self::Both)
    }
}

/// A client's session and its link upstream.
#[derive(Debug)]
pub struct Session {
    /// The id in `Mcp-Session-Id`, ours.
    pub id: Uuid,
    /// To whom the session belongs.
    pub owner: Owner,
    /// What the owner has left of its rates.
    pub account: Arc<Account>,
    /// How audit lines name the owner and the session.
    pub who: Arc<Who>,
    /// The upstream, as it was when the session began.
    pub upstream: Arc<Upstream>,
    /// The revision agreed with the client.
    pub version: Version,
    /// Who serves tasks.
    pub tasks: Tasks,
    /// One for each message that may still be on its way upstream when its client has been answered.
    pub late: Arc<Semaphore>,
    inbound: Inbound,
    link: Arc<dyn Link>,
    streams: Arc<Streams>,
    opened: Instant,
    /// Microseconds from `opened` to the last request or the end of the last stream; another one each time.
    last_used: AtomicU64,
    /// Streams that are open and tasks that run: while there are any the session is in use.
    uses: AtomicUsize,
    ended: AtomicBool,
    /// Whether new tasks are let in. Read while one is, so that what is written holds for every task.
    lets_tasks_in: Arc<RwLock<bool>>,
}

/// Keeps a session in use while it lives.
#[derive(Debug)]
pub struct Use(Arc<Session>);

impl Session {
    /// Marks the session as used now, and in use until the returned value is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> Use {
        self.uses.fetch_add(1, Ordering::AcqRel);
        Use(Arc::clone(self))
    }

    /// Returns the right to add a task, which the end of the session waits for; `None` if no more are let in.
    pub async fn let_task_in(&self) -> Option<OwnedRwLockReadGuard<bool>> {
        Some(Arc::clone(&self.lets_tasks_in).read_owned().await).filter(|lets_in| **lets_in)
    }

    /// Lets no more tasks in, if `unneeded` says that the session can end. It is asked while no task is being added.
    pub async fn refuse_tasks(&self, unneeded: impl Future<Output = bool>) -> bool {
        let mut lets_in = self.lets_tasks_in.write().await;
        let refuses = unneeded.await;
        *lets_in &= !refuses;
        refuses
    }

    /// Marks the session as used now.
    pub fn touch(&self) {
        let now = u64::try_from(self.opened.elapsed().as_micros()).unwrap_or(u64::MAX);
        let later = |before: u64| Some(now.max(before.saturating_add(1)));
        let _ = self.last_used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    /// How long the session has not been used; zero while it is in use.
    #[must_use]
    pub fn idle(&self) -> Duration {
        if self.uses.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        self.opened.elapsed().saturating_sub(Duration::from_micros(self.last_used.load(Ordering::Relaxed)))
    }

    /// When the session was used last; `None` while it is in use, also by a call whose client has left.
    fn unused_since(&self) -> Option<u64> {
        let in_use = self.uses.load(Ordering::Acquire) > 0 || self.inbound.exchanges.newest(None).is_some();
        (!in_use).then(|| self.last_used.load(Ordering::Relaxed))
    }

    /// Whether the upstream has ended its side, so that the client has to start anew.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.lost().is_cancelled()
    }

    /// Resolves when the upstream has ended its side.
    pub async fn lost(&self) {
        self.link.lost().cancelled().await;
    }

    /// What the client's GET stream delivers.
    #[must_use]
    pub fn listener(&self) -> &Arc<Outbox<()>> {
        &self.inbound.listener
    }

    /// The streams towards the client.
    #[must_use]
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// The upstream's own tasks.
    #[must_use]
    pub fn native(&self) -> &Arc<NativeTasks> {
        &self.inbound.native
    }

    /// What the client can be asked.
    #[must_use]
    pub fn client(&self) -> ClientCapabilities {
        self.inbound.client
    }

    /// Opens the GET stream upstream, if it is not open.
    pub fn listen_upstream(&self, headers: HeaderMap) {
        self.link.listen(headers);
    }

    /// Passes on a client's notification, or its response to a request of the server. With the end of the handshake
    /// the upstream's GET stream is opened, and kept open as long as the session lives.
    ///
    /// # Errors
    /// [`Failure`] where the upstream did not take it.
    pub async fn forward(&self, message: &Message, headers: HeaderMap) -> Result<(), Failure> {
        let listening = (message.method() == Method::Initialized).then(|| headers.clone());
        self.link.send(message.bytes().clone(), headers).await?;
        if let Some(headers) = listening {
            self.listen_upstream(headers);
        }
        Ok(())
    }

    /// Passes on `notifications/cancelled` under the id that the upstream knows. What names no request in flight is
    /// ignored, a task among them: only `tasks/cancel` cancels a task (section "Cancellation", behavior 3).
    ///
    /// # Errors
    /// [`Failure`] where the upstream did not take it.
    pub async fn cancel(self: &Arc<Self>, message: &Message, headers: HeaderMap) -> Result<(), Failure> {
        let Some(params) = message.params().and_then(|params| Members::parse(params).ok()) else { return Ok(()) };
        let Some(id) = params.get("requestId") else { return Ok(()) };
        let Some(number) = self.inbound.exchanges.of_client(id) else {
            // Somebody who waits for a task, and does not want to any more.
            if !self.streams.cancel(id) {
                self.inbound.observer.emit(events::CancellationIgnored { who: &self.who });
            }
            return Ok(());
        };
        if !self.inbound.exchanges.cancelling(number) {
            // It has been told, and waits to be given up.
            self.inbound.observer.emit(events::CancellationIgnored { who: &self.who });
            return Ok(());
        }
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(id, number.to_string());
        // First, as a message that the server does not take may be given up.
        let session = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(CANCEL_GRACE).await;
            session.inbound.exchanges.cancel(number);
        });
        self.link.send(edits.apply().into_bytes(), headers).await
    }

    /// Cancels a call that no client waits for, and gives it up.
    pub async fn cancel_call(&self, number: u64, reason: &str, headers: HeaderMap) {
        let message = cancelled(&number.to_string(), reason);
        self.inbound.exchanges.cancelling(number);
        // An upstream that cannot be told will find out when the connection goes.
        let _ = tokio::time::timeout(CANCEL_GRACE, self.link.send(message, headers)).await;
        self.inbound.exchanges.cancel(number);
    }

    /// Tells the client's requests that have waited for long that nothing has come yet, and lets go of what nobody has
    /// come back for. To be called every few seconds.
    pub fn tick(&self) {
        self.inbound.exchanges.tell_silence();
        self.streams.sweep();
    }

    /// Answers a request that the upstream has sent in the course of a task.
    ///
    /// # Errors
    /// [`Failure`] where the upstream did not take it.
    pub async fn reply(&self, response: bytes::Bytes, headers: HeaderMap) -> Result<(), Failure> {
        self.link.send(response, headers).await
    }

    /// Queues a message of the upstream for the GET stream.
    pub fn push(&self, message: Message) {
        // No request comes here, so nothing has to be answered.
        let _ = self.inbound.queue(message);
    }

    /// Whether the session has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Ends the connection of the GET stream, when the process stops: its client is to come back later. `false`, and
    /// nothing happens, where the client does not know such pauses.
    pub fn send_away(&self) -> bool {
        if self.streams.primes() {
            self.inbound.listener.pause(COME_BACK);
        }
        self.streams.primes()
    }

    /// Ends the session and its link, whoever uses it, when the process stops.
    pub fn shut_down(&self) {
        self.ended.store(true, Ordering::SeqCst);
        if !self.send_away() {
            self.inbound.listener.end(());
        }
        self.streams.clear();
        self.link.close(HeaderMap::new());
    }

    /// Ends the session. The link upstream stays while tasks of a principal still run on it.
    pub fn end(&self, headers: HeaderMap) {
        self.ended.store(true, Ordering::SeqCst);
        self.inbound.listener.end(());
        self.streams.clear();
        if matches!(self.owner, Owner::Session(_)) || self.uses.load(Ordering::SeqCst) == 0 {
            self.link.close(headers);
        }
    }
}

impl Use {
    /// The session.
    #[must_use]
    pub fn get(&self) -> &Arc<Session> {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.touch();
        let last = self.0.uses.fetch_sub(1, Ordering::SeqCst) == 1;
        if last && self.0.ended.load(Ordering::SeqCst) {
            self.0.link.close(HeaderMap::new());
        }
    }
}

/// What links and exchanges of one session are made of.
fn inbound(
    upstream: &UpstreamId,
    client: ClientCapabilities,
    outbox: &Arc<Capacity>,
    observer: &Arc<Observer>,
) -> Inbound {
    Inbound {
        upstream: upstream.clone(),
        exchanges: Exchanges::new(Arc::clone(outbox), Arc::clone(observer)),
        listener: Arc::new(Outbox::new(outbox)),
        client,
        native: Arc::default(),
        observer: Arc::clone(observer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_used_is_seen_to_have_been_however_short_that_was() {
        let session = alone();
        for _ in 0..1000 {
            let before = session.unused_since();
            drop(session.hold());
            assert!(before.is_some() && session.unused_since() > before);
        }
    }
}
