//! One child for all sessions. taskgate initialises the child itself, and keeps its sessions apart.

mod belongings;
mod callers;
mod dispatcher;
mod given_up;
mod link;
mod questions;
mod registry;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use self::link::SharedLink;
use self::{dispatcher::Dispatcher, link::SeatGuard, registry::Registry};
use super::{
    child::Child,
    children::Children,
    share::{MessageClass, TASKGATE},
};
use crate::{
    upstream::{Failure, Inbound},
    wire::{
        Message, Version,
        message::Outcome,
        modern::{Discovered, discovered, own_params},
    },
};

/// How long a child without sessions is kept.
pub(super) const LINGER: Duration = Duration::from_secs(30);
/// How long a child may take to answer `initialize`.
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(1);

/// The one child of all sessions, while there are any.
#[derive(Debug)]
pub(super) struct SharedChild {
    children: Arc<Children>,
    /// The latest child, which may be about to end.
    current: Mutex<Option<SharedRun>>,
    /// Cancelled when the process stops.
    stopping: CancellationToken,
    /// How long a child without sessions is kept.
    linger: Duration,
}

/// A child that is started, runs or ends.
#[derive(Clone, Debug)]
struct SharedRun {
    dispatcher: Arc<Dispatcher>,
    /// The child once it was initialised, or why it was not.
    begun: watch::Receiver<Option<Result<InitializedChild, Failure>>>,
    /// Cancelled when the child is gone.
    gone: CancellationToken,
}

/// A child after its handshake.
#[derive(Clone, Debug)]
struct InitializedChild {
    child: Arc<Child>,
    /// Its answer to `initialize`, which a modern server refuses.
    greeting: Message,
}

/// Ends the child when this is dropped, so that the child ends with its keeper in any case.
struct StopOnDrop(Arc<Child>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

impl SharedChild {
    pub(super) fn new(children: Arc<Children>, linger: Duration) -> Self {
        Self { children, current: Mutex::default(), stopping: CancellationToken::new(), linger }
    }

    /// Links a session to the child, which is started if there is none.
    ///
    /// # Errors
    /// [`Failure`] if it cannot be started, or does not answer `initialize`.
    pub(super) async fn connect(&self, inbound: Inbound) -> Result<SharedLink, Failure> {
        let (seat_guard, mut begun) = self.join(inbound);
        let begun = begun.wait_for(Option::is_some).await.ok().and_then(|begun| begun.clone());
        // The keeper is gone.
        let InitializedChild { child, greeting } = begun.unwrap_or(Err(Failure::Stopping))?;
        Ok(SharedLink { seat_guard, child, greeting })
    }

    fn join(&self, inbound: Inbound) -> (SeatGuard, watch::Receiver<Option<Result<InitializedChild, Failure>>>) {
        let mut current = self.current.lock();
        if let Some(running) = &*current
            && let Some(seat) = running.dispatcher.registry.lock().join(inbound.clone())
        {
            return (SeatGuard { dispatcher: Arc::clone(&running.dispatcher), seat, inbound }, running.begun.clone());
        }
        let mut registry = Registry::new();
        let seat = registry.join(inbound.clone()).unwrap_or_default();
        let dispatcher = Arc::new(Dispatcher::new(registry, Arc::clone(&inbound.observer)));
        let (begin, begun) = watch::channel(None);
        let gone = CancellationToken::new();
        let running = SharedRun { dispatcher: Arc::clone(&dispatcher), begun: begun.clone(), gone };
        let previous = current.replace(running.clone());
        let keeper = Keeper { children: Arc::clone(&self.children), running, begin, linger: self.linger };
        let keeping = self.stopping.clone().run_until_cancelled_owned(keeper.keep(previous));
        self.children.roster.tasks.spawn(keeping);
        (SeatGuard { dispatcher, seat, inbound }, begun)
    }

    /// Ends the child.
    pub(super) fn stop(&self) {
        self.stopping.cancel();
    }
}

/// Looks after one child from before its start to its end.
struct Keeper {
    children: Arc<Children>,
    running: SharedRun,
    begin: watch::Sender<Option<Result<InitializedChild, Failure>>>,
    linger: Duration,
}

impl Keeper {
    async fn keep(self, previous: Option<SharedRun>) {
        // A shared server often holds something that only one process can hold.
        if let Some(previous) = previous {
            previous.gone.cancelled().await;
        }
        let dispatcher = &self.running.dispatcher;
        let _gone = self.running.gone.clone().drop_guard();
        let starting = async {
            let vacancy = self.children.vacancy().await?;
            self.children.start(vacancy, Arc::clone(dispatcher) as _, Arc::clone(&dispatcher.observer)).await
        };
        let child = match starting.await {
            Ok(child) => child,
            Err(failure) => return self.failed(failure),
        };
        let kept = StopOnDrop(Arc::clone(&child));
        let greeted = tokio::time::timeout(INITIALIZE_TIMEOUT, async {
            let greeting = self.greet(&child).await?;
            let agreed = matches!(greeting.outcome(), Some((Outcome::Result, _)));
            Ok((agreed || self.is_modern(&child).await?, greeting))
        });
        match greeted.await {
            Ok(Ok((true, greeting))) => {
                self.begin.send_replace(Some(Ok(InitializedChild { child: Arc::clone(&child), greeting })));
                tokio::select! {
                    () = dispatcher.deserted(self.linger) => {}
                    () = child.ended().cancelled() => {}
                }
            }
            Ok(Ok((false, refusal))) => {
                // The clients get this answer too.
                dispatcher.registry.lock().close(&Failure::Abandoned);
                self.begin.send_replace(Some(Ok(InitializedChild { child: Arc::clone(&child), greeting: refusal })));
            }
            Ok(Err(failure)) => self.failed(failure),
            Err(_) => self.failed(Failure::TimedOut(INITIALIZE_TIMEOUT)),
        }
        drop(kept);
        child.ended().cancelled().await;
    }

    fn failed(&self, failure: Failure) {
        self.running.dispatcher.registry.lock().close(&failure);
        self.begin.send_replace(Some(Err(failure)));
    }

    /// Returns whether a child that has refused `initialize` is a server of the modern generation, which needs none.
    async fn is_modern(&self, child: &Arc<Child>) -> Result<bool, Failure> {
        let (number, answered) = self.running.dispatcher.registry.lock().greet();
        let params = own_params(None);
        let probe = format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"server/discover","params":{params}}}"#);
        child.tell(TASKGATE, MessageClass::Notice, probe.into())?;
        let answer = answered.await.unwrap_or(Err(Failure::Abandoned))?;
        let is_modern = matches!(discovered(&answer), Discovered::Modern);
        if is_modern {
            child.set_modern();
            self.running.dispatcher.is_modern.store(true, Ordering::Relaxed);
        }
        Ok(is_modern)
    }

    /// Performs the handshake. taskgate agrees on a revision with the child, and each session on one with its client.
    async fn greet(&self, child: &Arc<Child>) -> Result<Message, Failure> {
        let mut offer = Version::LATEST;
        loop {
            let (number, answered) = self.running.dispatcher.registry.lock().greet();
            child.tell(TASKGATE, MessageClass::Notice, initialize(number, offer))?;
            let answer = answered.await.unwrap_or(Err(Failure::Abandoned))?;
            let Some((Outcome::Error, error)) = answer.outcome() else {
                child.initialized();
                let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
                child.tell(TASKGATE, MessageClass::Notice, Bytes::from_static(initialized))?;
                return Ok(answer);
            };
            match Version::supported_below(error, offer) {
                Some(lower) => offer = lower,
                None => return Ok(answer),
            }
        }
    }
}

/// Writes the `initialize` of a client that supports every request, because one of taskgate's clients may.
fn initialize(number: u64, offer: Version) -> Bytes {
    let capabilities =
        json!({ "roots": { "listChanged": true }, "sampling": {}, "elicitation": { "form": {}, "url": {} } });
    let client = json!({ "name": "taskgate", "version": env!("CARGO_PKG_VERSION") });
    let params = json!({ "protocolVersion": offer.as_str(), "capabilities": capabilities, "clientInfo": client });
    json!({ "jsonrpc": "2.0", "id": number, "method": "initialize", "params": params }).to_string().into()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use crate::{
        config::Process,
        flow::{Capacity, Outbox},
        observe::Observer,
        upstream::{Exchanges, Link},
        wire::ClientCapabilities,
    };

    use super::*;

    const LINGER: Duration = Duration::from_millis(300);
    /// Answers `initialize`, which has the next number after the session's.
    const SERVER: &str = r#"read -r line
        echo '{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}'
        cat >/dev/null"#;

    fn shared() -> SharedChild {
        let args = ["-c", SERVER].map(str::to_owned).to_vec();
        let children = Children::new("/mcp".into(), "sh".to_owned(), args, Process::default());
        SharedChild::new(children, LINGER)
    }

    fn inbound() -> Inbound {
        let observer = Arc::<Observer>::default();
        let capacity = Capacity::new(1 << 20, 1 << 20);
        let listener = Arc::new(Outbox::new(&capacity));
        let exchanges = Exchanges::new(capacity, Arc::clone(&observer));
        let (upstream, client) = ("/mcp".into(), ClientCapabilities::default());
        Inbound {
            upstream,
            pooled: false,
            owner: None,
            exchanges,
            listener,
            client,
            native: Arc::default(),
            tools: Arc::default(),
            listening: CancellationToken::new(),
            observer,
        }
    }

    #[tokio::test]
    async fn a_child_is_stopped_some_time_after_its_last_session() {
        let shared = shared();
        let (first, second) = (shared.connect(inbound()).await.unwrap(), shared.connect(inbound()).await.unwrap());
        let child = Arc::clone(&first.child);
        assert!(Arc::ptr_eq(&child, &second.child));
        first.close(http::HeaderMap::new());
        let since = Instant::now();
        second.close(http::HeaderMap::new());
        child.ended().cancelled().await;
        assert!(since.elapsed() >= LINGER, "{:?}", since.elapsed());
        // And the next session starts another one.
        let third = shared.connect(inbound()).await.unwrap();
        assert!(!Arc::ptr_eq(&child, &third.child));
        third.close(http::HeaderMap::new());
        third.child.ended().cancelled().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_is_deserted_when_no_session_has_come_back_in_time() {
        let dispatcher = Dispatcher::new(Registry::new(), Arc::default());
        let first = dispatcher.registry.lock().join(inbound()).expect("open");
        let coming_and_going = async {
            tokio::time::sleep(LINGER * 5).await;
            dispatcher.registry.lock().leave(first);
            tokio::time::sleep(LINGER / 2).await;
            let second = dispatcher.registry.lock().join(inbound()).expect("still open");
            tokio::time::sleep(LINGER * 5).await;
            dispatcher.registry.lock().leave(second);
            tokio::time::Instant::now()
        };
        let (left, ()) = tokio::join!(coming_and_going, dispatcher.deserted(LINGER));
        assert_eq!(left.elapsed(), LINGER);
        assert_eq!(dispatcher.registry.lock().join(inbound()), None);
    }
}
