//! The sessions of clients: what was agreed with each client, the streams towards it, and its session with the server.

mod caller;
mod initialize;
mod kept;
mod resume;
mod ring;
mod saved;
mod source;
mod streams;
mod table;
#[cfg(test)]
mod testing;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::HeaderMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};
use uuid::Uuid;

pub use caller::Caller;
pub use initialize::{OpenedSession, SessionNotOpened, SessionOpening};
pub use resume::NotResumed;
pub use saved::{SavedSession, SessionRestoring};
pub use source::{Source, StreamItem};
pub use streams::{Connection, StreamRoom, Streams};
pub use table::{Full, SessionRoom, Sessions, UnusedSession};
#[cfg(test)]
pub(crate) use testing::{alone, of};

use kept::WrittenForm;

use crate::{
    config::RequiredTools,
    disk::{Disk, SessionRemoval, SessionWrites},
    flow::{ByteRoom, Outbox},
    identity::OwnerKind,
    observe::{Observer, events},
    upstream::{Failure, NativeTasks, UpstreamGuard, UpstreamSession},
    wire::{Message, Version, params::requested},
};

/// How long a client waits before it reconnects a GET stream that the end of the process interrupts: about a restart.
const RECONNECT_AFTER: Duration = Duration::from_secs(5);

/// How many bytes of messages that expect no answer may still be on their way upstream once their client has been
/// answered. Each counts as [`LATE`] at least, so that they are 64 at most.
pub const MAX_LATE: usize = 64 * LATE;
/// What a message that is late takes at least, in bytes.
pub const LATE: usize = 16 * 1024;

/// Who serves tasks in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tasks {
    /// Neither side: the revision that was agreed has no tasks.
    Off,
    /// The upstream, which has tasks of its own; everything about them passes.
    Native,
    /// taskgate.
    Served,
    /// The upstream for the tools that it lists with tasks of its own, taskgate for all others.
    Both,
}

impl Tasks {
    /// Returns whether the server has tasks of its own.
    #[must_use]
    pub const fn are_native(self) -> bool {
        matches!(self, Self::Native | Self::Both)
    }

    /// Returns whether taskgate serves tasks.
    #[must_use]
    pub const fn are_ours(self) -> bool {
        matches!(self, Self::Served | Self::Both)
    }
}

/// A client's session, and the session with the server that it holds.
#[derive(Debug)]
pub struct Session {
    /// The id that taskgate gave it, in `Mcp-Session-Id`.
    pub id: Uuid,
    /// The client and its owner.
    pub caller: Arc<Caller>,
    /// The session with the server.
    pub upstream_session: Arc<UpstreamSession>,
    /// The revision agreed with the client.
    pub version: Version,
    /// Who serves tasks.
    pub tasks: Tasks,
    /// Whether the client has declared tasks.
    pub declares_tasks: bool,
    /// The room that is left of [`MAX_LATE`].
    pub late: ByteRoom,
    streams: Arc<Streams>,
    ended: AtomicBool,
    /// Whether new tasks are admitted. Locked for reading while a task is added, so that a refusal holds for every
    /// task.
    admits_tasks: Arc<RwLock<bool>>,
    /// Where the session is kept for a later process; `None` where it ends with this one.
    disk: Option<Disk>,
    /// What is written of it there.
    written: Mutex<Option<WrittenForm>>,
    /// What that file may have of it.
    writes: SessionWrites,
    observer: Arc<Observer>,
}

/// Keeps a session, and its session with the server, in use while it lives.
#[derive(Debug)]
pub struct SessionGuard {
    session: Arc<Session>,
    _upstream: UpstreamGuard,
}

/// The right to add a task to a session, which the end of the session waits for.
#[derive(Debug)]
pub struct TaskAdmission(OwnedRwLockReadGuard<bool>);

impl Session {
    /// Marks the session as in use until the returned guard is dropped.
    #[must_use]
    pub fn hold(self: &Arc<Self>) -> SessionGuard {
        SessionGuard { session: Arc::clone(self), _upstream: self.upstream_session.hold() }
    }

    /// Returns the right to add a task; `None` if no more are admitted.
    pub async fn admit_task(&self) -> Option<TaskAdmission> {
        Some(TaskAdmission(Arc::clone(&self.admits_tasks).read_owned().await)).filter(|admits| *admits.0)
    }

    /// Admits no more tasks if `unneeded`, which runs while no task is being added, says that the session can end.
    /// Returns whether it does.
    pub async fn refuse_tasks(&self, unneeded: impl Future<Output = bool>) -> bool {
        let mut admits = self.admits_tasks.write().await;
        let refuses = unneeded.await;
        *admits &= !refuses;
        refuses
    }

    /// Returns whether the session itself is the owner of its tasks, so that they end with it.
    #[must_use]
    pub fn owns_tasks(&self) -> bool {
        matches!(self.caller.owner.kind(), OwnerKind::Session(_))
    }

    /// Returns whether plain calls of the client may become jobs: it has declared no tasks.
    #[must_use]
    pub fn gets_jobs(&self) -> bool {
        !self.declares_tasks && self.caller.upstream.policy.has_jobs(self.required_tools())
    }

    /// Returns what becomes of plain calls of the tools that have to be tasks.
    #[must_use]
    pub fn required_tools(&self) -> RequiredTools {
        // With `Both` the tool may be one that the server runs as a task itself, and then the server may take the call.
        if self.tasks == Tasks::Served { RequiredTools::Refused } else { RequiredTools::CalledPlainly }
    }

    /// Returns how long the session has not been used; zero while it is in use.
    #[must_use]
    pub fn idle(&self) -> Duration {
        self.upstream_session.idle()
    }

    /// Returns whether the server has ended its side, so that the client has to start anew.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.upstream_session.is_lost()
    }

    /// Returns the queue of what the client's GET stream delivers.
    #[must_use]
    pub fn outbox(&self) -> &Arc<Outbox<()>> {
        self.upstream_session.outbox()
    }

    /// Returns the streams towards the client.
    #[must_use]
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Returns the server's own tasks.
    #[must_use]
    pub fn native(&self) -> &Arc<NativeTasks> {
        self.upstream_session.native()
    }

    /// Passes on `notifications/cancelled` under the id that the server knows, and ignores one that names no request in
    /// flight. It cancels no task: only `tasks/cancel` does (section "Cancellation", behavior 3).
    ///
    /// # Errors
    /// [`Failure`] where the server did not take it.
    pub async fn cancel(&self, message: &Message, headers: HeaderMap) -> Result<(), Failure> {
        let Some(id) = requested(message) else { return Ok(()) };
        let cancelled = match self.upstream_session.request_of_client(id) {
            Some(number) => self.upstream_session.cancel_request(number, message, id, headers).await?,
            // It may be a request that waits for a task. The task goes on.
            None => self.streams.cancel(id).then_some(()),
        };
        if cancelled.is_none() {
            self.observer.emit(events::CancellationIgnored { who: &self.caller.who });
        }
        Ok(())
    }

    /// Tells the client's requests that have waited for long that nothing has come yet, and drops streams whose client
    /// has not come back. Has to be called every few seconds.
    pub fn tick(&self) {
        self.upstream_session.tell_silence();
        self.streams.sweep();
    }

    /// Returns whether the session has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // Acquire pairs with the stores in `shut_down` and `end`.
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the connection of the GET stream, as the process stops, and has the client reconnect later. Returns whether
    /// it did: clients of some revisions do not know such pauses.
    pub fn send_away(&self) -> bool {
        if self.streams.primes() {
            self.outbox().pause(RECONNECT_AFTER);
        }
        self.streams.primes()
    }

    /// Ends the session and its link, even while it is in use, as the process stops. A session that is kept goes on in
    /// the next process.
    pub fn shut_down(&self) {
        // Release pairs with `has_ended`, which the desk asks under its lock.
        self.ended.store(true, Ordering::Release);
        if !self.send_away() {
            self.outbox().end(());
        }
        self.streams.clear();
        if self.is_kept() {
            self.upstream_session.keep();
        }
        self.upstream_session.close(HeaderMap::new());
    }

    /// Ends the session, and returns its removal from the file if it is kept in one. Its link stays while tasks of a
    /// principal still run on it.
    #[must_use]
    pub fn end(&self, headers: HeaderMap) -> Option<SessionRemoval> {
        // Release pairs with `has_ended`, as in `shut_down`.
        self.ended.store(true, Ordering::Release);
        let removal = self.forget();
        self.outbox().end(());
        self.streams.clear();
        if self.owns_tasks() {
            self.upstream_session.close(headers);
        } else {
            self.upstream_session.close_when_unused(headers);
        }
        removal
    }
}

impl SessionGuard {
    /// Returns the session.
    #[must_use]
    pub fn get(&self) -> &Arc<Session> {
        &self.session
    }
}
