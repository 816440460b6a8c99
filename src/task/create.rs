//! The beginning of a task: a permit, a place in the store, the acknowledgement, then the upstream call.

use std::{fmt, sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{
    AskedTtl, CallSession, Engine, LastingWork, Outlook, Task, TaskWriter, UNAVAILABLE, calls::Stage, runner::Runner,
    status_message, store::KeptLimit, ttl::Lifetime,
};
use crate::{
    config::Tool,
    limit::{Admission, Limited, Permit, ToolId, ToolLimits},
    observe::events,
    session::{Caller, TaskAdmission},
    wire::{Message, headers_cost},
};

/// How many questions of one call may be being answered in the client's place at once.
pub const MAX_REPLIES: usize = 16;
/// What a call that waits takes besides its request and its headers, in bytes.
pub(super) const CALL_OVERHEAD: usize = 4 * 1024;

/// A task that was created, and whose client is yet to be told.
#[derive(Debug)]
pub struct CreatedTask {
    /// The task.
    pub task: Task,
    /// What its client is told of its time.
    pub outlook: Outlook,
    /// Starts the call when it is sent to: the acknowledgement is on its way. Dropped, it starts the call of a client
    /// with a session, and cancels that of a client without one, which has left.
    pub start: oneshot::Sender<()>,
}

/// Why no task was created.
#[derive(Debug)]
pub enum NotCreated {
    /// A limit on what runs and waits, and the tool that was called.
    Turns(Arc<str>, Limited),
    /// A limit on what is kept.
    Kept(KeptLimit),
    /// The process stops.
    Stopping,
    /// The store does not answer now.
    Unavailable,
}

impl fmt::Display for NotCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(tool, limited) => write!(f, "limit reached for the tool {tool:?}: {limited}"),
            Self::Kept(limit) => write!(f, "limit reached: {limit}"),
            Self::Stopping => f.write_str("taskgate is stopping and takes no new tasks; try again when it is back"),
            Self::Unavailable => f.write_str(UNAVAILABLE),
        }
    }
}

/// A call of a tool that is to be sent to the server, and the end-to-end headers that it came with.
#[derive(Debug)]
pub struct ToolCall {
    /// The request.
    pub message: Message,
    /// The headers.
    pub headers: HeaderMap,
    /// Whether the request is one for a modern server, and not for a session.
    pub modern: bool,
}

/// How a call is to run as a task.
#[derive(Debug)]
pub struct NewTask {
    /// The tool's name.
    pub name: Arc<str>,
    /// Its policy.
    pub tool: Arc<Tool>,
    /// What the client asks for as ttl.
    pub ttl: AskedTtl,
    /// Whether the client is told of changes of the task's state.
    pub announced: bool,
    /// Writes for the client's streams.
    pub writer: &'static dyn TaskWriter,
    /// The right to add a task to the client's session. The session's end waits until the store has the task. `None`
    /// for clients without sessions.
    pub admission: Option<TaskAdmission>,
}

impl Engine {
    /// Creates the task for a call of `caller`, which runs in `session`: at once with a `turn` that it has already, and
    /// when it is its turn without one.
    ///
    /// # Errors
    /// [`NotCreated`]
    pub async fn create(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        session: CallSession,
        call: ToolCall,
        new_task: NewTask,
        turn: Option<Permit>,
    ) -> Result<CreatedTask, NotCreated> {
        let ToolCall { message: request, headers, modern } = call;
        let NewTask { name, tool, ttl: asked_ttl, announced, writer, admission: task_admission } = new_task;
        let tool_id = ToolId::of(&caller.upstream.id, &name);
        let tool_name = self.tool_times.shared_name(&tool_id);
        let bytes = CALL_OVERHEAD + request.bytes().len() + headers_cost(&headers);
        let limits = ToolLimits { running: tool.max_running, queued: tool.max_queued };
        let admitted = match turn {
            Some(permit) => Ok(Admission::Now(permit)),
            None => self.turns.admit(&caller.owner, tool_id.clone(), limits, bytes),
        };
        let admission = admitted.map_err(|limited| {
            let reason = limited.name();
            self.observer.emit(events::TaskRefused { who: &caller.who, tool: &tool_name, reason });
            NotCreated::Turns(Arc::clone(&tool_name), limited)
        })?;
        let queued = matches!(admission, Admission::Queued(_));
        let (lifetime, now) = (Lifetime::of(&tool, asked_ttl, queued), self.ledger.clock.now());
        let task = Task {
            status_message: queued.then(|| status_message::QUEUED.into()),
            shortens: asked_ttl != AskedTtl::Default,
            ..Task::new(caller.owner.clone(), Arc::clone(&tool_name), &tool, &lifetime, now)
        };
        let id = task.id;
        // A request that waits must not keep the buffer that it was read into.
        let request = if queued { request.compact() } else { request };
        let runner = Runner {
            engine: Arc::clone(self),
            caller: Arc::clone(caller),
            session,
            modern,
            id,
            headers: Arc::new(headers),
            writer,
            tool_id,
            tool,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            created: Instant::now(),
            patience: lifetime.patience,
            announced,
            restored: None,
        };
        let insertion = Insertion { task: task.clone(), runner, request, admission, task_admission };
        // Inserted wholly or not at all, even if the client leaves meanwhile.
        let start = LastingWork::new(insertion.insert()).await?;
        let outlook = self.outlook(&task);
        Ok(CreatedTask { task, outlook, start })
    }
}

/// A task on its way into the store.
struct Insertion {
    task: Task,
    runner: Runner,
    request: Message,
    admission: Admission,
    task_admission: Option<TaskAdmission>,
}

impl Insertion {
    /// Inserts the task, and leaves its call to the runner, which the returned sender starts.
    async fn insert(self) -> Result<oneshot::Sender<()>, NotCreated> {
        let Self { task, runner, request, admission, task_admission } = self;
        let (engine, caller) = (Arc::clone(&runner.engine), Arc::clone(&runner.caller));
        let (id, tool, queued) = (task.id, Arc::clone(&task.tool), matches!(admission, Admission::Queued(_)));
        let mut pace = runner.pace(task.keep);
        if !queued {
            pace.begin(Instant::now());
        }
        let stopped = runner.register(&task, pace)?;
        let saved = match runner.session.open() {
            Some(session) if !queued => runner.saved_sent(Duration::ZERO, Some(session.get())),
            _ => {
                engine.calls.set_stage(id, Stage::Waiting);
                runner.saved_waiting(&request)
            }
        };
        runner.insert(&task, saved, || status_message::failed(status_message::NOT_ACKNOWLEDGED)).await?;
        engine.observer.emit(events::TaskCreated { who: &caller.who, task: id, tool: &tool, queued });
        drop(task_admission);
        let (start, started) = oneshot::channel();
        // Boxed: the runtime would move a large future several times.
        tokio::spawn(Box::pin(runner.run(request, started, admission, stopped)));
        Ok(start)
    }
}
