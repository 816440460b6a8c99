//! A task-augmented `tools/call` (section "Creating Tasks"): permit, ttl, store, acknowledgement, the upstream call.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

use super::{Engine, Now, State, Task, reply::view, runner::Run, state::millis};
use crate::{
    config::Tool,
    limit::Admission,
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
        // From here on the session is not idle, and its link stays.
        let in_use = session.hold();
        let (owner, upstream) = (&session.owner, session.upstream);
        // Names are the client's, and of any length; those with one beginning share their turns.
        let tool_name: Arc<str> = if excerpt(&name) == *name { name } else { excerpt(&name).into() };
        let bytes = CALL + request.bytes().len() + headers_cost(&headers);
        let max = (tool.max_running, tool.max_queued);
        let admitted = self.turns.admit(owner, (upstream, &tool_name), max, bytes);
        let admission = admitted.map_err(|limited| {
            let reason = limited.name();
            self.observer.emit(events::TaskRefused { who: &session.who, tool: &tool_name, reason });
            RpcError::internal(format!("limit reached for the tool {tool_name:?}: {limited}"))
        })?;
        // The end of the session waits for the task from here on, and finds it.
        let letting_in = session.let_task_in().await.ok_or_else(session_ended)?;
        let queued = matches!(admission, Admission::Queued(_));
        let (lifetime, created) = (Lifetime::of(tool, requested, queued), Now::read());
        let task = Task {
            id: Uuid::new_v4(),
            owner: session.owner.clone(),
            tool: Arc::clone(&tool_name),
            state: State::Working,
            status_message: queued.then(|| QUEUED.into()),
            created_at: created.unix,
            last_updated_at: created.unix,
            ttl: millis(lifetime.ttl),
            keep: lifetime.keep,
            shortens: requested != RequestedTtl::Default,
            poll_interval: millis(tool.poll_interval),
            expires: created.instant + lifetime.ttl,
            version: 0,
        };
        let id = task.id;
        let result = view(&task).to_create_result(tool.immediate_response.as_deref());
        let answer = result_response(request.id().unwrap_or("null"), &result).into();
        // Registered first, so that whoever ends the task finds the call that it has to stop.
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
        drop(letting_in);
        // What waits is kept for as long as that takes.
        let request = if queued { request.compact() } else { request };
        let (start, started) = oneshot::channel();
        let run = Run {
            engine: Arc::clone(self),
            session: in_use,
            id,
            headers: Arc::new(headers),
            timeout: tool.timeout,
            input_timeout: tool.input_timeout,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            max_result: tool.max_result,
            created: created.instant,
            patience: lifetime.patience,
        };
        tokio::spawn(run.run(request, started, admission, stopped));
        Ok(Created { answer, start })
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
