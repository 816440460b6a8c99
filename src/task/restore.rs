//! What a start makes of the tasks that an earlier process has left: calls that wait are sent in their turn, answers
//! are resumed, and what can do neither fails.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all, stream};
use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::Instant,
};
use uuid::Uuid;

use super::{
    CallSession, Change, Engine, State, Task, TaskWriter,
    calls::Stage,
    create::{CALL_OVERHEAD, MAX_REPLIES},
    links::{LinkKey, Links},
    pace::Pace,
    runner::{Beginning, Runner, Running},
    saved::{CallForm, CallHead, CallNote},
    status_message,
    store::{Unavailable, Unfinished},
    ttl,
};
use crate::{
    config::{self, UpstreamId},
    flow::Capacity,
    identity::{Owner, OwnerKind},
    limit::{Accounts, Admission, ToolId},
    observe::{Who, events},
    session::{Caller, Sessions},
    upstream::{BrokenCall, Resumption, Upstream, UpstreamSession},
    wire::{Message, headers_cost},
};

/// How long a start waits until the store has the ends of the tasks that cannot go on, and the deadlines of those that
/// can.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// How many owners' tasks are removed at once.
const AT_ONCE: usize = 256;

/// What tasks of an earlier process need of this one.
#[derive(Debug)]
pub struct Restoring<'a> {
    /// The upstreams that are configured.
    pub upstreams: &'a [Arc<Upstream>],
    /// The sessions of clients, restored before.
    pub sessions: &'a Sessions,
    /// The sessions that stay in the file, as their upstreams are not configured.
    pub set_aside: &'a HashMap<Uuid, UpstreamId>,
    /// The writers of all dialects.
    pub writers: &'a [&'static dyn TaskWriter],
    /// What each owner has left of its rates.
    pub accounts: &'a Accounts,
    /// What may wait for readers.
    pub capacity: &'a Arc<Capacity>,
}

/// How many tasks of an earlier process a start has found that had not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// They wait for their turns again.
    pub waiting: usize,
    /// Their answers are resumed.
    pub resumed: usize,
    /// They have failed.
    pub failed: usize,
}

/// A task that goes on, with what goes on.
struct LeftTask {
    task: Task,
    head: CallHead,
    headers: HeaderMap,
    caller: Arc<Caller>,
    writer: &'static dyn TaskWriter,
}

/// Why a task cannot go on.
struct CannotGoOn {
    why: String,
    /// Whether its request may have been sent.
    was_sent: bool,
}

/// What is left of the call of a task.
enum LeftCall {
    /// It was not sent.
    Waiting(Message),
    /// It was sent in this session, and its answer can be resumed.
    Sent(Arc<UpstreamSession>, BrokenCall, u64),
}

impl LeftTask {
    /// Returns the session with the server that its client's session has.
    fn own(&self, with: &Restoring<'_>) -> Option<Arc<UpstreamSession>> {
        let session = with.sessions.get(self.head.session?, |session| session.caller.owner == self.task.owner)?;
        Some(Arc::clone(&session.get().upstream_session))
    }
}

impl Engine {
    /// Goes on with the tasks that an earlier process has left. Called once, before clients are served.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn restore(self: &Arc<Self>, with: &Restoring<'_>) -> Result<Restored, Unavailable> {
        let (mut restored, mut links, orphans) = (Restored::default(), Links::default(), self.orphans(with).await?);
        let (mut waiting, mut changing) = (Vec::new(), Vec::new());
        let now = self.ledger.clock.steady();
        for Unfinished { task, call, note } in self.ledger.store.unfinished().await? {
            // It is removed as any that has expired, or with all of its owner.
            if task.expires <= now || orphans.contains(&task.owner) {
                continue;
            }
            let (left, request) = match Self::left(&task, call.as_ref().map(|call| &*call.0), with) {
                Ok(left) => left,
                Err(CannotGoOn { why, was_sent }) => {
                    tracing::error!(task = %task.id, why, "a task cannot go on");
                    let told =
                        if was_sent { status_message::INTERRUPTED.to_owned() } else { status_message::not_sent(&why) };
                    restored.failed += 1;
                    changing.push(self.fail(task, None, told));
                    continue;
                }
            };
            let how = match request {
                Some(_) if left.head.withheld => Err(status_message::WITHHELD),
                Some(request) => Ok(LeftCall::Waiting(request)),
                None => self.sent(&left, note.as_deref(), with, &mut links),
            };
            match how {
                Ok(LeftCall::Waiting(request)) => waiting.push((left, request)),
                Ok(LeftCall::Sent(session, broken, sent)) => {
                    restored.resumed += 1;
                    let own = left.own(with);
                    let left = self.prolong(left, Some(sent), &mut changing);
                    self.resume(left, own.as_ref(), &session, broken, sent);
                }
                Err(why) => {
                    tracing::error!(task = %left.task.id, why, "a task cannot go on");
                    restored.failed += 1;
                    changing.push(self.fail(left.task, Some(left.caller), why.to_owned()));
                }
            }
        }
        // After those that run, in the order of their creation.
        for (left, request) in waiting {
            restored.waiting += 1;
            let left = self.prolong(left, None, &mut changing);
            self.wait_again(left, request, with);
        }
        for session in links.of_calls() {
            session.close_when_unused(HeaderMap::new());
        }
        // Many are removed in one batch.
        stream::iter(orphans).for_each_concurrent(AT_ONCE, |owner| async move { self.end_owner(&owner).await }).await;
        let _ = tokio::time::timeout(WRITE_TIMEOUT, join_all(changing)).await;
        Ok(restored)
    }

    /// Returns who has tasks, finished ones included, and how many, as a start finds them.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn owners(&self) -> Result<Vec<(Owner, usize)>, Unavailable> {
        self.ledger.store.owners().await
    }

    /// Returns the owners whose tasks no client can ask for, whether they have ended or not: their sessions are gone.
    async fn orphans(&self, with: &Restoring<'_>) -> Result<HashSet<Owner>, Unavailable> {
        let is_there = |id| with.set_aside.contains_key(&id) || with.sessions.get(id, |_| true).is_some();
        let is_orphan = |owner: &Owner| matches!(*owner.kind(), OwnerKind::Session(id) if !is_there(id));
        let owners = self.owners().await?.into_iter();
        Ok(owners.map(|(owner, _)| owner).filter(is_orphan).collect())
    }

    /// Reads what is left of a task, with the request if that was not sent.
    fn left(task: &Task, call: Option<&[u8]>, with: &Restoring<'_>) -> Result<(LeftTask, Option<Message>), CannotGoOn> {
        // It may have been sent, as far as can be read.
        let unreadable = |why| CannotGoOn { why, was_sent: true };
        let form = call.ok_or_else(|| "nothing of its call was saved".to_owned()).and_then(CallForm::read);
        let CallForm { head, request } = form.map_err(unreadable)?;
        let was_sent = head.sent.is_some();
        let cannot = |why| CannotGoOn { why, was_sent };
        let headers = head.headers().map_err(cannot)?;
        let writer = with.writers.iter().find(|writer| writer.name() == head.dialect);
        let writer = *writer.ok_or_else(|| cannot(format!("its dialect {:?} is unknown", head.dialect)))?;
        let upstream = with.upstreams.iter().find(|upstream| upstream.id.as_str() == head.upstream);
        let upstream =
            upstream.ok_or_else(|| cannot(format!("the upstream {:?} is not configured any more", head.upstream)))?;
        let session = head.session.and_then(|id| with.sessions.get(id, |session| session.caller.owner == task.owner));
        let caller = match session {
            Some(session) => Arc::clone(&session.get().caller),
            None => Arc::new(Caller {
                owner: task.owner.clone(),
                who: Who::restored(&head.who.owner, &head.who.session, &upstream.id),
                account: with.accounts.of(&task.owner),
                upstream: Arc::clone(upstream),
                client: head.client,
                session: head.session,
            }),
        };
        Ok((LeftTask { task: task.clone(), head, headers, caller, writer }, request))
    }

    /// Finds the session of a call that was sent, and where its answer goes on.
    ///
    /// # Errors
    /// Why it cannot be resumed.
    fn sent(
        &self,
        left: &LeftTask,
        note: Option<&[u8]>,
        with: &Restoring<'_>,
        links: &mut Links,
    ) -> Result<LeftCall, &'static str> {
        let interrupted = status_message::INTERRUPTED;
        let CallHead { sent: Some(sent), server: Some(server), withheld, .. } = &left.head else {
            return Err(interrupted);
        };
        let note = note.ok_or(interrupted)?;
        let note = CallNote::read(note).map_err(|why| {
            tracing::error!(task = %left.task.id, why, "a call cannot be resumed");
            interrupted
        })?;
        let (Some(link), Some(event)) = (server.link.clone(), note.event) else { return Err(interrupted) };
        if *withheld {
            return Err(status_message::NOT_RESUMED_WITHHELD);
        }
        if left.caller.upstream.server.is_elsewhere(&link) {
            return Err(status_message::NOT_RESUMED_ELSEWHERE);
        }
        let own = left.own(with);
        let key = LinkKey::new(left.task.owner.clone(), link, left.head.session);
        let session = links.find(key, note.number, own.as_ref(), || {
            let (upstream, pooled) = (&left.caller.upstream, left.head.session.is_none());
            let session = UpstreamSession::restore(upstream, server, pooled, with.capacity, &self.observer);
            session.listen(left.headers.clone());
            session
        });
        if session.is_lost() {
            return Err(interrupted);
        }
        let resumption =
            Resumption { number: note.number, event: event.into(), headers: left.headers.clone(), max_answer: 0 };
        Ok(LeftCall::Sent(session, BrokenCall { resumption, progress_token: note.token.map(Into::into) }, *sent))
    }

    /// Follows the rest of the answer to a call that was sent at `sent`.
    fn resume(
        self: &Arc<Self>,
        left: LeftTask,
        own: Option<&Arc<UpstreamSession>>,
        session: &Arc<UpstreamSession>,
        mut broken: BrokenCall,
        sent: u64,
    ) {
        let since = self.instant(sent);
        let call_session = match own {
            // What the server says reaches the client in its own session, which is in use as long.
            Some(own) if !Arc::ptr_eq(own, session) => CallSession::Apart(own.hold()),
            _ => CallSession::Own(session.hold()),
        };
        let (task, runner) = self.runner(left, call_session);
        let pace = runner.pace(task.keep);
        let Some(stopped) = self.register(&task, &runner.caller, runner.announced, pace) else { return };
        // The point of the process before is on the disk.
        self.calls.set_stage(task.id, Stage::Resumable);
        self.calls.set_since(task.id, runner.created);
        self.calls.begin(task.id, since);
        let queued = false;
        self.observer.emit(events::TaskRestored { who: &runner.caller.who, task: task.id, tool: &task.tool, queued });
        let permit = self.turns.resume(&task.owner, runner.tool_id.clone(), runner.limits());
        broken.resumption.max_answer = runner.max_answer();
        let (engine, session) = (Arc::clone(self), session.hold());
        tokio::spawn(async move {
            if task.state == State::InputRequired {
                // What was asked is asked again.
                engine.settle(&task.owner, task.id).await;
            }
            match session.get().resume(broken) {
                Ok(call) => {
                    let running = Running { call, session, request: None };
                    let beginning = Beginning { since, progress: f64::NEG_INFINITY, resumed: true };
                    runner.attend(running, stopped, beginning).await;
                }
                Err(too_many) => {
                    let why = status_message::not_resumed(&too_many.to_string());
                    engine.finish(&task.owner, task.id, status_message::failed(&why), Some(&why)).await;
                }
            }
            drop(permit);
        });
    }

    /// Gives a task the time that its call needs by the settings of this process; `sent` is when the call was sent.
    fn prolong(self: &Arc<Self>, left: LeftTask, sent: Option<u64>, changing: &mut Vec<JoinHandle<()>>) -> LeftTask {
        let (task, now) = (&left.task, self.ledger.clock.now());
        let change = ttl::prolonged(left.caller.upstream.policy.tool(&task.tool), task, sent, now.steady);
        if !task.gains_by(&change) {
            return left;
        }
        let Ok(longer) = task.after(&change, now) else { return left };
        let (engine, owner, id) = (Arc::clone(self), task.owner.clone(), task.id);
        // On its own, as the store may take longer than the start.
        changing.push(tokio::spawn(async move {
            let change = |task: &Task| task.gains_by(&change).then(|| change.clone());
            // A task that has ended meanwhile needs no more time.
            let _ = engine.change_when_available(&owner, id, change).await;
        }));
        LeftTask { task: longer, ..left }
    }

    /// Has a call wait for its turn again.
    fn wait_again(self: &Arc<Self>, left: LeftTask, request: Message, with: &Restoring<'_>) {
        let own = left.own(with).map(|own| own.hold());
        let session = match (own, left.caller.upstream.sessions) {
            (Some(own), config::Sessions::Owner) => CallSession::Own(own),
            (Some(own), config::Sessions::Request) => CallSession::Apart(own),
            (None, _) => CallSession::Later,
        };
        let bytes = CALL_OVERHEAD + request.bytes().len() + headers_cost(&left.headers);
        let announced = left.head.announced;
        let (task, runner) = self.runner(left, session);
        let admission = self.turns.admit_again(&task.owner, runner.tool_id.clone(), runner.limits(), bytes);
        let pace = runner.pace(task.keep);
        let Some(stopped) = self.register(&task, &runner.caller, announced, pace) else { return };
        self.calls.set_since(task.id, runner.created);
        self.calls.set_stage(task.id, Stage::Waiting);
        let queued = matches!(admission, Admission::Queued(_));
        self.observer.emit(events::TaskRestored { who: &runner.caller.who, task: task.id, tool: &task.tool, queued });
        // It has been acknowledged.
        let (_, started) = oneshot::channel();
        tokio::spawn(runner.run(request, started, admission, stopped));
    }

    /// Returns the runner of a task.
    fn runner(self: &Arc<Self>, left: LeftTask, session: CallSession) -> (Task, Runner) {
        let LeftTask { task, head, headers, caller, writer } = left;
        let tool = caller.upstream.policy.tool(&task.tool);
        let runner = Runner {
            engine: Arc::clone(self),
            session,
            modern: head.modern,
            id: task.id,
            headers: Arc::new(headers),
            writer,
            replies: Arc::new(Semaphore::new(MAX_REPLIES)),
            created: self.created(&task),
            patience: ttl::patience(tool, Duration::from_millis(task.ttl)),
            announced: head.announced,
            restored: Some(Instant::now()),
            tool_id: ToolId { upstream: caller.upstream.id.clone(), name: Arc::clone(&task.tool) },
            tool: Arc::clone(tool),
            caller,
        };
        (task, runner)
    }

    /// Fails a task that cannot go on.
    fn fail(self: &Arc<Self>, task: Task, caller: Option<Arc<Caller>>, why: String) -> JoinHandle<()> {
        let engine = Arc::clone(self);
        // On its own, as the store may take longer than the start.
        tokio::spawn(async move {
            let change: Change = status_message::failed(&why);
            // No stream is open yet on which it could be announced.
            if let Some(caller) = caller
                && engine.register(&task, &caller, false, Pace::Fixed(task.poll_interval)).is_some()
            {
                engine.calls.set_since(task.id, engine.created(&task));
                let (who, task, tool) = (&*caller.who, task.id, &*task.tool);
                engine.observer.emit(events::TaskRestored { who, task, tool, queued: false });
            }
            engine.finish(&task.owner, task.id, change, Some(&why)).await;
        })
    }

    /// Returns when a task was created.
    fn created(&self, task: &Task) -> Instant {
        self.instant(task.expires.saturating_sub(task.ttl))
    }

    /// Returns the moment at which the clock of tasks showed `unix`.
    fn instant(&self, unix: u64) -> Instant {
        let now = Instant::now();
        let ago = Duration::from_millis(self.ledger.clock.steady().saturating_sub(unix));
        // A process's clock need not reach back that far.
        now.checked_sub(ago).unwrap_or(now)
    }
}
