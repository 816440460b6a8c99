//! The connections that are open: how many there may be, and which of them have to end.
//!
//! Nothing here has a timer of its own: [`Connections::sweep`] looks at all of them, so that a request costs a few
//! locks without contention.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{task::AbortHandle, time::Instant};

use crate::observe::{Observer, events};

/// How long an HTTP/1.1 connection may stay without a request after it has had one.
const KEEP_ALIVE: Duration = Duration::from_mins(1);
/// How long a client may take to make room for more of its answer. The system tells of larger parts only.
pub(super) const READS_WITHIN: Duration = Duration::from_mins(5);
/// The part of the connections that wait for a further request which is closed when there is no room: a flood must not
/// cost a walk over all of them for each connection that comes.
const GIVES_WAY: usize = 16;

/// What a connection may cost before it has sent a request.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Most connections at once.
    pub max_connections: usize,
    /// How long the head of a request may take to arrive; the first one from the beginning of the connection on.
    pub head_timeout: Duration,
    /// The largest head of a request, in bytes.
    pub max_head: usize,
}

/// The open connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    table: Mutex<OpenConnections>,
    observer: Arc<Observer>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// In the order in which they came.
    open: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    activity: Arc<Activity>,
    /// `None` while it is being spawned.
    task: Option<AbortHandle>,
}

/// What one connection is doing.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// Whether a whole request has ever come.
    proven: bool,
    /// Requests whose answers have not left.
    answering: usize,
    /// Those of them whose bodies are still to come.
    arriving: usize,
    /// Whether the client has to read before more can be written: hyper has taken an answer that has not left.
    stuck: bool,
    /// Whether the newest request over HTTP/1.1 has a body that was not read whole.
    unread: bool,
}

/// What a connection does while no request is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No head has come yet, or only a part of it.
    New,
    /// Every request has been answered.
    Idle {
        /// Whether the next thing that comes is the head of a request.
        http1: bool,
    },
    /// A part of a further head has come.
    Head,
    /// The connection is being closed.
    Over,
}

/// A request that is being answered. Kept with the answer until that has left.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) activity: Arc<Activity>,
    http1: bool,
}

/// A request whose body is still to come.
#[derive(Debug)]
pub(super) struct Arriving {
    activity: Arc<Activity>,
    arrived: bool,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits, observer: Arc<Observer>) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default(), observer })
    }

    /// Has `spawn` serve one more connection. Where there is no room, the one gives way that has been the longest
    /// without ever sending a whole request, else one that waits for a further request.
    ///
    /// # Errors
    /// Gives `stream` back where all are in use.
    pub(super) fn open<T>(
        self: &Arc<Self>,
        stream: T,
        spawn: impl FnOnce(ConnectionGuard, T) -> AbortHandle,
    ) -> Result<(), T> {
        let activity = Arc::<Activity>::default();
        let id = {
            let mut table = self.table.lock();
            if table.open.len() >= self.limits.max_connections && !self.cut(table.make_room()) {
                return Err(stream);
            }
            let id = table.next;
            table.next += 1;
            // Before it is spawned, so that a connection that ends at once finds itself.
            table.open.insert(id, OpenConnection { activity: Arc::clone(&activity), task: None });
            id
        };
        self.observer.emit(events::ConnectionOpened);
        let task = spawn(ConnectionGuard { activity, connections: Arc::clone(self), id }, stream);
        match self.table.lock().open.get_mut(&id) {
            Some(open) => open.task = Some(task),
            // It has ended, or was closed meanwhile.
            None => task.abort(),
        }
        Ok(())
    }

    /// Closes the connections that give way first, when the system has no more room. Returns whether there were any.
    pub(super) fn make_room(&self) -> bool {
        self.cut(self.table.lock().make_room())
    }

    fn cut(&self, count: usize) -> bool {
        if count > 0 {
            self.observer.emit(events::ConnectionsCut { reason: "max_connections", count });
        }
        count > 0
    }

    /// Returns how long to wait between two sweeps.
    pub(super) fn pace(&self) -> Duration {
        (self.limits.head_timeout / 10).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Closes the connections on which the head of a request, or a further request, did not come in time.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        let late = |state: &State, allowed| {
            let allowed = if state.stuck && state.proven { READS_WITHIN } else { allowed };
            state.answering == 0 && now.saturating_duration_since(state.since) >= allowed
        };
        let mut table = self.table.lock();
        // Over HTTP/2 hyper's pings tell whether the client is there.
        table.close_all(|state| state.phase == (Phase::Idle { http1: true }) && late(state, KEEP_ALIVE));
        let half_open = |state: &State| matches!(state.phase, Phase::New | Phase::Head);
        let count = table.close_all(|state| half_open(state) && late(state, self.limits.head_timeout));
        drop(table);
        if count > 0 {
            self.observer.emit(events::ConnectionsCut { reason: "head_timeout", count });
        }
    }

    /// Closes the connections that have no request to answer, and whose answers have left.
    pub(super) fn close_unused(&self) {
        self.table.lock().close_all(|state| state.answering == 0 && !state.stuck);
    }
}

impl OpenConnections {
    fn close_all(&mut self, over: impl Fn(&State) -> bool) -> usize {
        self.open.extract_if(.., |_, open| open.close_if(&over)).count()
    }

    /// Closes the connections that give way first, and returns how many.
    fn make_room(&mut self) -> usize {
        // The first that came has been the longest without a request.
        if let Some((&id, _)) =
            self.open.iter().find(|(_, open)| open.close_if(|state| !state.proven && state.is_unused()))
        {
            self.open.remove(&id);
            return 1;
        }
        let waiting = |(id, open): (&u64, &OpenConnection)| {
            let state = *open.activity.0.lock();
            // One whose client does not read must not keep out all others.
            state.is_unused().then_some(((state.stuck, state.phase != Phase::Head), state.since, *id))
        };
        let mut waiting: Vec<_> = self.open.iter().filter_map(waiting).collect();
        waiting.sort_unstable();
        waiting.truncate(waiting.len().div_ceil(GIVES_WAY));
        // A request may have come just now.
        let give_way = |(_, _, id): ((bool, bool), Instant, u64)| {
            let closed = self.open.get(&id).is_some_and(|open| open.close_if(State::is_unused));
            closed.then(|| self.open.remove(&id))
        };
        waiting.into_iter().filter_map(give_way).count()
    }
}

impl OpenConnection {
    /// Closes the connection if `over` says so. No request can come in between.
    fn close_if(&self, over: impl Fn(&State) -> bool) -> bool {
        let mut state = self.activity.0.lock();
        let over = over(&state);
        if over {
            state.phase = Phase::Over;
            // One that is being spawned is aborted then.
            if let Some(task) = &self.task {
                task.abort();
            }
        }
        over
    }
}

impl State {
    /// Returns whether the connection has no whole request to answer.
    fn is_unused(&self) -> bool {
        self.answering == self.arriving
    }

    fn enter(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

impl Default for Activity {
    fn default() -> Self {
        let (phase, since) = (Phase::New, Instant::now());
        Self(Mutex::new(State { phase, since, proven: false, answering: 0, arriving: 0, stuck: false, unread: false }))
    }
}

impl Activity {
    /// Notes that something has come from the client.
    pub(super) fn came(&self) {
        let mut state = self.0.lock();
        if state.answering == 0 && state.phase == (Phase::Idle { http1: true }) {
            state.enter(Phase::Head);
        }
    }

    /// Notes that the client has to read before more can be written, or that it has read.
    pub(super) fn stuck(&self, stuck: bool) {
        let mut state = self.0.lock();
        state.stuck = stuck;
        if matches!(state.phase, Phase::Idle { .. } | Phase::Head) {
            state.since = Instant::now();
        }
    }

    /// Returns whether the newest request over HTTP/1.1 has a body that was not read whole.
    pub(super) fn has_unread(&self) -> bool {
        self.0.lock().unread
    }

    #[cfg(test)]
    pub(super) fn is_stuck(&self) -> bool {
        self.0.lock().stuck
    }

    #[cfg(test)]
    pub(super) fn is_over(&self) -> bool {
        self.0.lock().phase == Phase::Over
    }

    /// Notes that a head has come, perhaps with a body to follow. Returns `None` where the connection is being closed.
    pub(super) fn begin(self: &Arc<Self>, http1: bool, body: bool) -> Option<Answering> {
        let mut state = self.0.lock();
        if state.phase == Phase::Over {
            return None;
        }
        state.answering += 1;
        state.proven |= !body;
        state.unread = http1 && body;
        Some(Answering { activity: Arc::clone(self), http1 })
    }

    /// Notes that the body of a request is to come.
    pub(super) fn arriving(self: &Arc<Self>) -> Arriving {
        self.0.lock().arriving += 1;
        Arriving { activity: Arc::clone(self), arrived: false }
    }
}

impl Arriving {
    /// Notes that the body has come. Returns `false` where the connection is being closed, and the request must do
    /// nothing.
    pub(super) fn arrived(mut self) -> bool {
        self.arrived = true;
        let mut state = self.activity.0.lock();
        state.arriving -= 1;
        state.proven = true;
        state.unread = false;
        state.phase != Phase::Over
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.arrived {
            self.activity.0.lock().arriving -= 1;
        }
    }
}

impl Answering {
    /// Returns whether the connection carries other answers at the same time.
    pub(super) fn shares_connection(&self) -> bool {
        !self.http1
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let mut state = self.activity.0.lock();
        state.answering -= 1;
        if state.answering == 0 && state.phase != Phase::Over {
            state.enter(Phase::Idle { http1: self.http1 });
        }
    }
}

/// A connection that is being served. Dropped at its end, it makes room for another one.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    pub(super) activity: Arc<Activity>,
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionGuard {
    /// Returns what holds for the connection.
    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.connections.limits
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.table.lock().open.remove(&self.id);
        self.connections.observer.emit(events::ConnectionEnded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(max_connections: usize) -> Arc<Connections> {
        let limits = ConnectionLimits { max_connections, head_timeout: Duration::from_secs(1), max_head: 1 << 16 };
        Connections::new(limits, Arc::default())
    }

    #[tokio::test]
    async fn a_connection_that_ends_while_it_is_spawned_makes_room() {
        let connections = connections(1);
        for _ in 0..2 {
            let ends = |guard, ()| {
                drop(guard);
                tokio::spawn(async {}).abort_handle()
            };
            assert_eq!(connections.open((), ends), Ok(()));
            assert!(connections.table.lock().open.is_empty());
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_closed_while_it_is_spawned_ends() {
        let connections = connections(1);
        let mut task = None;
        let stays = |guard, ()| {
            let spawned = tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(guard);
            });
            connections.close_unused();
            let abort = spawned.abort_handle();
            task = Some(spawned);
            abort
        };
        assert_eq!(connections.open((), stays), Ok(()));
        assert!(task.expect("it was spawned").await.is_err_and(|end| end.is_cancelled()));
        assert!(connections.table.lock().open.is_empty());
    }
}
