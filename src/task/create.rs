//! A task-augmented `tools/call` (section "Creating Tasks"): permit, ttl, store, acknowledgement, the upstream call.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{OwnedRwLockReadGuard, Semaphore, oneshot},
    time::Instant,
};
use uuid::Uuid;

use super::{Engine, Lasting, State, Task, clock::millis, outcome, reply::view, runner::Run};
use crate::{
    config::Tool,
    limit::{Admission, ToolId},
    observe::events,
    session::Session,
    upstream::excerpt,
    wire::{Message, Parts, RpcError, headers_cost, legacy::RequestedTtl, message::result_response},
};

/// How many poll intervals a client has to collect a result.
const POLLS_TO_COLLECT: u32 = 10;
/// How many questions of one call may be being answered in the client's place at once.
const MAX_REPLIES: usize = 16;
/// What a call that waits takes besides its request and its headers, in bytes.
const CALL: usize = 4 * 1024;
const QUEUED: &str = "Queued: waits for its turn, because as many calls run as may run at once.";

/// A task that is acknowledged as soon as `answer` is sent.
#[derive(Debug)]
pub struct Created {
    /// The response with the `CreateTaskResult`.
    pub answer: Parts,
    /// Dropped when the answer is on its way, or cannot be sent: then the call starts.
    pub start: oneshot::Sender<()>,
}

/// What is to run as a task.
#[derive(Debug)]
pub struct Wanted {
    /// The tool's name.
    pub name: Arc<str>,
    /// Its policy.
    pub tool: Arc<Tool>,
    /// What the client asks for as ttl.
    pub ttl: RequestedTtl,
    /// Whether the client is told of changes of the task's state.
    pub announced: bool,
}

impl Engine {
    /// Creates the task for a `tools/call`.
    ///
    /// # Errors
    /// The limit that is reached, or that the process stops.
    pub async fn create(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: Message,
        headers: HeaderMap,
        wanted: Wanted,
    ) -> Result<Created, RpcError> {
        let Wanted { name, tool, ttl: requested, announced } = wanted;
        // From here on the session is not idle, and its link stays.
        let in_use = session.hold();
        let owner = &session.owner;
        // Names are the client's, and of any length; those with one beginning share their turns.
        let tool_name: Arc<str> = if excerpt(&name) == *name { name } else { excerpt(&name).into() };
        let bytes = CALL + request.bytes().len() + headers_cost(&headers);
        let max = (tool.max_running, tool.max_queued);
        let tool_id = ToolId { upstream: session.upstream.id.clone(), name: Arc::clone(&tool_name) };
        let admitted = self.turns.admit(owner, tool_id, max, bytes);
        let admission = admitted.map_err(|limited| {
            let reason = limited.name();
            self.observer.emit(events::TaskRefused { who: &session.who, tool: &tool_name, reason });
            RpcError::internal(format!("limit reached for the tool {tool_name:?}: {limited}"))
        })?;
        // The end of the session waits for the task from here on, and finds it.
        let letting_in = session.let_task_in().await.ok_or_else(session_ended)?;
        let queued = matches!(admission, Admission::Queued(_));
        let (lifetime, now) = (Lifetime::of(&tool, requested, queued), self.clock.now());
        let task = Task {
            id: Uuid::new_v4(),
            owner: session.owner.clone(),
            tool: Arc::clone(&tool_name),
            state: State::Working,
            status_message: queued.then(|| QUEUED.into()),
            created_at: now.wall,
            last_updated_at: now.wall,
            ttl: millis(lifetime.ttl),
            keep: millis(lifetime.keep),
            shortens: requested != RequestedTtl::Default,
            poll_interval: millis(tool.poll_interval),
            expires: now.steady.saturating_add(millis(lifetime.ttl)),
            version: 0,
        };
        let id = task.id;
        let result = view(&task).to_create_result(tool.immediate_response.as_deref());
        let answer = result_response(request.id().unwrap_or("null"), &result).into();
        // What waits is kept for as long as that takes.
        let request = if queued { request.compact() } else { request };
        let run = Run {
            engine: Arc::clone(self),
            session: in_use,
            id,
            headers: Arc::new(headers),
            tool,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            created: Instant::now(),
            patience: lifetime.patience,
        };
        let adding = Adding { task, run, request, admission, announced, letting_in };
        // Whether its client waits for that or not, it is a task or none.
        let start = Lasting::new(adding.add()).await?;
        Ok(Created { answer, start })
    }

    /// Ends a task that may have been added, and was not acknowledged.
    async fn undo(&self, task: &Task) {
        let end = outcome::failed("The task was not acknowledged, and its call was not sent".to_owned());
        // No change is what is there in the end, or a task that says so.
        let _ = self.change_at_last(&task.owner, task.id, |_| Some(end.clone())).await;
    }
}

/// A task on its way into the store.
struct Adding {
    task: Task,
    run: Run,
    request: Message,
    admission: Admission,
    announced: bool,
    letting_in: OwnedRwLockReadGuard<bool>,
}

impl Adding {
    /// Adds the task, and leaves its call to a task of its own, which begins when the returned sender is dropped.
    async fn add(self) -> Result<oneshot::Sender<()>, RpcError> {
        let Self { task, run, request, admission, announced, letting_in } = self;
        let (engine, session) = (Arc::clone(&run.engine), Arc::clone(run.session.get()));
        let (id, tool, queued) = (task.id, Arc::clone(&task.tool), matches!(admission, Admission::Queued(_)));
        let refused = |reason| engine.observer.emit(events::TaskRefused { who: &session.who, tool: &tool, reason });
        // Registered first, so that whatever ends the task finds the call that it has to stop.
        let Some(stopped) = engine.register(&task, &session, announced) else {
            refused("stopping");
            return Err(RpcError::internal("taskgate is stopping and takes no new tasks; try again when it is back"));
        };
        match engine.store.insert(task.clone()).await {
            Ok(Ok(())) => {}
            Ok(Err(limit)) => {
                engine.deregister(id);
                refused(limit.name());
                return Err(RpcError::internal(format!("limit reached: {limit}")));
            }
            Err(unavailable) => {
                engine.deregister(id);
                refused("store");
                let error = engine.unavailable(&unavailable);
                let engine = Arc::clone(&engine);
                tokio::spawn(async move { engine.undo(&task).await });
                return Err(error);
            }
        }
        engine.observer.emit(events::TaskCreated { who: &session.who, task: id, tool: &tool, queued });
        drop(letting_in);
        let (start, started) = oneshot::channel();
        tokio::spawn(run.run(request, started, admission, stopped));
        Ok(start)
    }
}

/// How long a task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lifetime {
    /// From its creation on, while it waits and runs.
    ttl: Duration,
    /// From its end on.
    keep: Duration,
    /// How long it may wait for its turn: after that its ttl would not cover the call.
    patience: Duration,
}

impl Lifetime {
    /// Returns what the client asks for, within what the operator allows, and at least what the call needs: its timeout
    /// and the time to collect, and as long as its timeout to wait for its turn if it is `queued`.
    fn of(tool: &Tool, requested: RequestedTtl, queued: bool) -> Self {
        let wanted = match requested {
            RequestedTtl::Default => tool.ttl,
            RequestedTtl::For(wanted) => wanted.min(tool.max_ttl),
            RequestedTtl::Unlimited => tool.max_ttl,
        };
        let collecting = tool.poll_interval * POLLS_TO_COLLECT;
        let needed = tool.timeout + collecting;
        let ttl = wanted.max(if queued { needed + tool.timeout } else { needed });
        Self { ttl, keep: wanted.max(collecting), patience: ttl.saturating_sub(needed) }
    }
}

fn session_ended() -> RpcError {
    RpcError::invalid_request("the session has ended; initialize a new one")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifetime(requested: RequestedTtl, queued: bool) -> [u64; 3] {
        let Lifetime { ttl, keep, patience } = Lifetime::of(&Tool::default(), requested, queued);
        [ttl, keep, patience].map(|duration| duration.as_secs())
    }

    #[test]
    fn a_ttl_covers_the_timeout_while_the_call_waits_and_runs_and_is_what_was_asked_for_afterwards() {
        let asked = |seconds| RequestedTtl::For(Duration::from_secs(seconds));
        let (hour, day) = (3600, 24 * 3600);
        // The default timeout is an hour, and ten polls take 20 s.
        assert_eq!(lifetime(asked(60), false), [hour + 20, 60, 0]);
        assert_eq!(lifetime(asked(1), false), [hour + 20, 20, 0]);
        assert_eq!(lifetime(RequestedTtl::Default, false), [hour + 20, 15 * 60, 0]);
        assert_eq!(lifetime(asked(2 * hour), false), [2 * hour, 2 * hour, hour - 20]);
        assert_eq!(lifetime(RequestedTtl::Unlimited, false), [day, day, 23 * hour - 20]);
        // One that waits may do so for as long as it may run, or for as long as its ttl allows.
        assert_eq!(lifetime(asked(60), true), [2 * hour + 20, 60, hour]);
        assert_eq!(lifetime(asked(day + 1), true), [day, day, 23 * hour - 20]);
    }
}
