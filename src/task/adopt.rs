//! A call that was begun plainly and becomes a task while it runs.

use std::sync::Arc;

use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{
    CallSession, Change, Engine, NewTask, NotCreated, Outlook, Task,
    calls::Stop,
    create::MAX_REPLIES,
    runner::{Beginning, MAX_KEPT, Runner, Running},
    ttl::Lifetime,
};
use crate::{
    config::Tool,
    limit::{Admission, Permit, ToolId, ToolLimits},
    observe::events,
    session::Caller,
    upstream::{Call, UpstreamGuard},
    wire::Message,
};

/// A call that runs, as far as a task needs to know it.
#[derive(Debug)]
pub struct Adoption {
    /// Its turn, held since it began, and kept for another try where this one comes to nothing.
    pub permit: Permit,
    /// When it began.
    pub since: Instant,
    /// The last progress that was told.
    pub progress: f64,
    /// That progress in words.
    pub text: Option<String>,
    /// The end-to-end headers that its request came with.
    pub headers: HeaderMap,
    /// Its request, while the server may still refuse it.
    pub request: Option<Message>,
}

/// A task that is in the store, and whose call is still to be followed.
#[derive(Debug)]
pub struct Adopted {
    /// The task.
    pub task: Task,
    /// What its client is told of its time.
    pub outlook: Outlook,
    runner: Runner,
    permit: Permit,
    stopped: oneshot::Receiver<Stop>,
    beginning: Beginning,
    request: Option<Message>,
}

impl Engine {
    /// Returns the time of the clock that is never set, in milliseconds.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.ledger.clock.steady()
    }

    /// Returns the right to run a call at once; `None` where it would have to wait.
    #[must_use]
    pub fn permit_now(&self, caller: &Caller, name: &str, tool: &Tool) -> Option<Permit> {
        let tool_id = ToolId::of(&caller.upstream.id, name);
        let limits = ToolLimits { running: tool.max_running, queued: 0 };
        match self.turns.admit(&caller.owner, tool_id, limits, 0) {
            Ok(Admission::Now(permit)) => Some(permit),
            Ok(Admission::Queued(_)) | Err(_) => None,
        }
    }

    /// Puts a task for a call of `caller` that runs in `session` into the store. Either its call has to be given to
    /// [`Adopted::follow`], or the task to `Adopted::give_up`: nothing else ends it.
    ///
    /// # Errors
    /// [`NotCreated`], and the call can go on as it is.
    pub async fn adopt(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        session: CallSession,
        new_task: NewTask,
        adoption: Adoption,
    ) -> Result<Adopted, NotCreated> {
        let NewTask { name, tool, ttl: requested, announced, writer, admission: _admission } = new_task;
        let Adoption { permit, since, progress, text, headers, request } = adoption;
        let tool_id = ToolId::of(&caller.upstream.id, &name);
        let tool_name = self.tool_times.shared_name(&tool_id);
        let (lifetime, now) = (Lifetime::of(&tool, requested, false), self.ledger.clock.now());
        let task = Task {
            status_message: text.map(Arc::from),
            ..Task::new(caller.owner.clone(), Arc::clone(&tool_name), &tool, &lifetime, now)
        };
        let runner = Runner {
            engine: Arc::clone(self),
            caller: Arc::clone(caller),
            modern: session.open().is_some_and(|session| session.get().is_modern()),
            session,
            id: task.id,
            headers: Arc::new(headers),
            writer,
            tool_id,
            tool,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            created: since,
            patience: lifetime.patience,
            announced,
            restored: None,
        };
        let stopped = runner.register(&task, runner.pace(task.keep))?;
        self.calls.begin(task.id, since);
        let saved = runner.saved_sent(since.elapsed(), runner.session.open().map(UpstreamGuard::get));
        runner.insert(&task, saved, Change::give_up).await?;
        self.observer.emit(events::TaskCreated { who: &caller.who, task: task.id, tool: &tool_name, queued: false });
        let (outlook, beginning) = (self.outlook(&task), Beginning { since, progress, resumed: false });
        let request = request.filter(|request| request.bytes().len() <= MAX_KEPT);
        Ok(Adopted { task, outlook, runner, permit, stopped, beginning, request })
    }
}

impl Adopted {
    /// Ends the task without a word: its call is answered or cancelled without it, and its client does not know of it.
    pub(super) async fn give_up(self) {
        self.runner.end_unacknowledged().await;
    }

    /// Leaves the call, which runs in `session`, to a task of its own. Its progress may have grown while the task was
    /// made.
    pub fn follow(self, call: Call, session: UpstreamGuard, progress: f64, text: Option<String>) {
        let Self { runner, permit, stopped, mut beginning, request, .. } = self;
        // The server may have begun to answer while the task was made, and then refuses it no more.
        let request = request.filter(|_| !call.exchange.streams());
        let running = Running { call, session, request };
        // Before its client is told of it.
        drop(runner.note_points(&running));
        tokio::spawn(async move {
            if progress > beginning.progress {
                beginning.progress = progress;
                runner.set_status_message(text.unwrap_or_default()).await;
            }
            runner.attend(running, stopped, beginning).await;
            // Held until the exchange is over.
            drop(permit);
        });
    }
}
