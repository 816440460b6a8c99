//! A task-augmented `tools/call` (section "Creating Tasks"): permit, store, acknowledgement, then the upstream call.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};
use uuid::Uuid;

use super::{Engine, State, Task, engine::now, reply::view, runner::Run};
use crate::{
    config::Tool,
    identity::Owner,
    limit::Admission,
    observe::events,
    session::Session,
    upstream::excerpt,
    wire::{Message, Parts, RpcError, headers_cost, legacy::RequestedTtl, message::result_response},
};

/// How many poll intervals a client has to collect the result of a call that used up its timeout.
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
pub struct Wanted<'a> {
    /// The tool's name.
    pub name: Arc<str>,
    /// Its policy.
    pub tool: &'a Tool,
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
        wanted: Wanted<'_>,
    ) -> Result<Created, RpcError> {
        let Wanted { name, tool, ttl: requested, announced } = wanted;
        let (owner, upstream) = (&session.owner, session.upstream);
        // Names are the client's, and of any length; those with one beginning share their turns.
        let tool_name: Arc<str> = if excerpt(&name).len() < name.len() { excerpt(&name).into() } else { name };
        let bytes = CALL + request.bytes().len() + headers_cost(&headers);
        let max = (tool.max_running, tool.max_queued);
        let admitted = self.turns.admit(owner, (upstream, &tool_name), max, bytes);
        let admission = admitted.map_err(|limited| {
            let reason = limited.name();
            self.observer.emit(events::TaskRefused { who: &session.who, tool: &tool_name, reason });
            RpcError::internal(format!("limit reached for the tool {tool_name:?}: {limited}"))
        })?;
        let queued = matches!(admission, Admission::Queued(_));
        let (ttl, created) = (ttl(tool, requested), now());
        let task = Task {
            id: Uuid::new_v4(),
            owner: session.owner.clone(),
            tool: Arc::clone(&tool_name),
            state: State::Working,
            status_message: queued.then(|| QUEUED.into()),
            created_at: created,
            last_updated_at: created,
            ttl: millis(ttl),
            poll_interval: millis(tool.poll_interval),
            expires: Instant::now() + ttl,
            version: 0,
        };
        let id = task.id;
        let result = view(&task).to_create_result(tool.immediate_response.as_deref());
        let answer = result_response(request.id().unwrap_or("null"), &result).into();
        let give_up = task.expires - collect_time(tool);
        // Registered first, so that whoever ends the session finds the call that it has to stop.
        let Some(stopped) = self.register(&task, session, announced) else {
            self.observer.emit(events::TaskRefused { who: &session.who, tool: &tool_name, reason: "stopping" });
            return Err(RpcError::internal("taskgate is stopping and takes no new tasks; try again when it is back"));
        };
        if let Err(limit) = self.store.insert(task).await {
            self.deregister(id);
            self.observer.emit(events::TaskRefused { who: &session.who, tool: &tool_name, reason: limit.name() });
            return Err(RpcError::internal(format!("limit reached: {limit}")));
        }
        self.observer.emit(events::TaskCreated { who: &session.who, task: id, tool: &tool_name, queued });
        if session.has_ended() && matches!(session.owner, Owner::Session(_)) {
            // It ended while this task came about, so its end may not have seen the task.
            self.end_owner(&session.owner).await;
            return Err(RpcError::invalid_request("the session has ended; initialize a new one"));
        }
        // What waits is kept for as long as that takes.
        let request = if queued { request.compact() } else { request };
        let (start, started) = oneshot::channel();
        let run = Run {
            engine: Arc::clone(self),
            session: session.hold(),
            id,
            headers: Arc::new(headers),
            timeout: tool.timeout,
            input_timeout: tool.input_timeout,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            max_result: tool.max_result,
            give_up,
        };
        tokio::spawn(run.run(request, started, admission, stopped));
        Ok(Created { answer, start })
    }
}

/// What the client asks for, within what the tool needs and the operator allows.
fn ttl(tool: &Tool, requested: RequestedTtl) -> Duration {
    let wanted = match requested {
        RequestedTtl::Default => tool.ttl,
        RequestedTtl::For(wanted) => wanted.min(tool.max_ttl),
        RequestedTtl::Unlimited => tool.max_ttl,
    };
    wanted.max(tool.timeout.saturating_add(collect_time(tool)))
}

fn collect_time(tool: &Tool) -> Duration {
    tool.poll_interval * POLLS_TO_COLLECT
}

/// Whole milliseconds, rounded up.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}
