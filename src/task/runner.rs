//! The call behind a task, from its turn to its outcome, detached from every connection of the client.

use std::{panic::AssertUnwindSafe, pin::pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{
    CallSession, Change, Engine, TaskId, TaskWriter, calls::Stop, desk::AskingCall, input::QuestionOrigin, pace::Pace,
    state::GIVEN_UP, status_message,
};
use crate::{
    config::Tool,
    flow::Item,
    identity::{Owner, OwnerKind},
    limit::{Admission, ToolId, ToolLimits},
    observe::events,
    session::Caller,
    upstream::{Call, CallOutcome, Failure, Next, Round, ServerEvent, UpstreamGuard},
    wire::Message,
};

/// What an answer may be larger than the result inside it, in bytes.
pub(super) const ENVELOPE: usize = 64 * 1024;
/// The longest request that is kept while the server may refuse it, in bytes.
pub(super) const MAX_KEPT: usize = 64 * 1024;
/// How long a call waits at most until the answer that acknowledges its task is on its way.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a reader may take for the messages of a call before its end. Messages that wait longer may be dropped.
const LAST_MESSAGES_TIMEOUT: Duration = Duration::from_millis(100);

/// Runs the call of one task.
#[derive(Debug)]
pub(super) struct Runner {
    pub engine: Arc<Engine>,
    pub caller: Arc<Caller>,
    pub session: CallSession,
    /// Whether its request is one for a modern server, and not for a session.
    pub modern: bool,
    pub id: TaskId,
    pub headers: Arc<HeaderMap>,
    /// Writes for the streams of the task's client.
    pub writer: &'static dyn TaskWriter,
    /// Its tool.
    pub tool_id: ToolId,
    /// The settings of its tool.
    pub tool: Arc<Tool>,
    /// Bounds the questions that are being answered in the client's place.
    pub replies: Arc<Semaphore>,
    pub created: Instant,
    /// How long it may wait for its turn after its creation.
    pub patience: Duration,
    /// Whether the client is told of changes of the task's state.
    pub announced: bool,
    /// When this process has taken the task over, where an earlier one has created it.
    pub restored: Option<Instant>,
}

/// The call of a task, as it runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) call: Call,
    /// The session that it runs in.
    pub(super) session: UpstreamGuard,
    /// Its request, while the server may still refuse it.
    pub(super) request: Option<Message>,
}

/// How far a call is when it begins to be followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beginning {
    /// When the call began.
    pub(super) since: Instant,
    /// The last progress that was told.
    pub(super) progress: f64,
    /// Whether an earlier process has begun it.
    pub(super) resumed: bool,
}

impl Runner {
    /// Runs the call. `started` resolves when the task has been acknowledged, or with an error where the sender is
    /// dropped; `stopped` resolves when its call has to stop.
    pub(super) async fn run(
        mut self,
        request: Message,
        started: oneshot::Receiver<()>,
        admission: Admission,
        mut stopped: oneshot::Receiver<Stop>,
    ) {
        let in_queue = matches!(admission, Admission::Queued(_)).then(|| InQueue(Arc::clone(&self.engine)));
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            begun = started => if begun.is_err() && self.is_cancelled_by_leaving() {
                // Others do not wait for the store with it, and no session is opened for it.
                drop((admission, in_queue));
                self.session = CallSession::Later;
                return self.end_unacknowledged().await;
            },
            // A client that does not take the answer must not keep the turn from others.
            () = tokio::time::sleep(ACKNOWLEDGE_TIMEOUT), if !self.is_cancelled_by_leaving() => {}
        }
        let waited = in_queue.is_some() || self.restored.is_some();
        let turn = tokio::select! {
            biased;
            _ = &mut stopped => return,
            turn = self.turn(admission) => turn,
        };
        drop(in_queue);
        // Held until the exchange has ended, and nothing carries it.
        let _permit = match turn {
            Ok(permit) => permit,
            Err(why) => return self.finish(status_message::failed(&why), Some(&why)).await,
        };
        let running = tokio::select! {
            biased;
            _ = &mut stopped => return,
            running = AssertUnwindSafe(self.begin(request, waited)).catch_unwind() => running,
        };
        let running = match running.unwrap_or(Err(Failure::OwnFault)) {
            Ok(running) => running,
            Err(failure) => {
                let (end, why) = if self.restored.is_some() && !matches!(failure, Failure::OwnFault) {
                    let why = status_message::not_sent(&failure.to_string());
                    (status_message::failed(&why), Some(why))
                } else {
                    status_message::ended(CallOutcome::of(Err(failure), self.tool.max_result))
                };
                return self.finish(end, why.as_deref()).await;
            }
        };
        self.attend(running, stopped, Beginning { since: Instant::now(), progress: f64::NEG_INFINITY, resumed: false })
            .await;
    }

    /// Follows a call to its end, its timeout, or until it is stopped.
    pub(super) async fn attend(
        &self,
        mut running: Running,
        mut stopped: oneshot::Receiver<Stop>,
        Beginning { since, progress, resumed }: Beginning,
    ) {
        self.engine.calls.begin(self.id, since);
        let following = async { CallOutcome::of(self.follow(&mut running, progress).await, self.tool.max_result) };
        tokio::select! {
            outcome = AssertUnwindSafe(following).catch_unwind() => {
                let Ok(outcome) = outcome else {
                    // Otherwise the task would stay `working` until it expires.
                    return self.give_up(&mut running, &Failure::OwnFault.to_string()).await;
                };
                // When an answer that is resumed came is not known.
                if !resumed {
                    self.record_run_time(&outcome, since.elapsed());
                }
                let (end, why) = status_message::ended(if resumed { not_resumed(outcome) } else { outcome });
                let finishing = self.finish(end, why.as_deref());
                if running.call.exchange.is_over() {
                    return finishing.await;
                }
                // taskgate has given it up, and the server goes on with it.
                let why = "taskgate has given the call up";
                tokio::join!(Box::pin(finishing), Box::pin(self.cancel(&mut running, why)));
            }
            stop = &mut stopped => match stop {
                Ok(Stop::Cancel(why, _stopping)) => self.cancel(&mut running, why).await,
                Ok(Stop::Leave(_stopping)) => running.session.get().keep(),
                Err(_) => self.cancel(&mut running, "the process stops").await,
            },
            () = tokio::time::sleep_until(since + self.tool.timeout) => {
                self.give_up(&mut running, &status_message::timed_out(self.tool.timeout)).await;
            }
        }
    }

    /// Returns how many calls of its tool may run and wait.
    pub(super) fn limits(&self) -> ToolLimits {
        ToolLimits { running: self.tool.max_running, queued: self.tool.max_queued }
    }

    /// Returns the pace at which its client is to poll the task, which is kept for so many milliseconds after its end.
    pub(super) fn pace(&self, kept: u64) -> Pace {
        Pace::new(&self.tool, kept, self.engine.tool_times.of(&self.tool_id), &self.caller.account, self.created)
    }

    /// Notes how long the call took, if its server ended it.
    fn record_run_time(&self, outcome: &CallOutcome, took: Duration) {
        let tool_times = &self.engine.tool_times;
        match outcome {
            CallOutcome::Result { .. } | CallOutcome::TooLarge { .. } => tool_times.record(&self.tool_id, took),
            CallOutcome::ErrorResult { .. } | CallOutcome::Error { .. } => {
                tool_times.record_failure(&self.tool_id, took);
            }
            CallOutcome::Nothing { .. } => {}
        }
    }

    /// Handles what the server says, until the call's end. Boxes what is rare: most of the time a call waits.
    async fn follow(&self, running: &mut Running, mut progress: f64) -> Result<Message, Failure> {
        let mut noting = pin!(self.note_points(running));
        loop {
            let item = tokio::select! {
                biased;
                item = running.call.exchange.next() => item,
                never = &mut noting => match never {},
            };
            match item {
                Some(Item::Message(message)) => {
                    // It runs.
                    running.request = None;
                    let event = running.session.get().event(&running.call, &message);
                    Box::pin(self.handle(&running.session, &message, event, &mut progress)).await;
                }
                // The link resumes a call that the server interrupts.
                Some(Item::Silence | Item::Pause(_)) => {
                    if running.call.exchange.streams() {
                        running.request = None;
                    }
                }
                Some(Item::End(Err(Failure::SessionLost))) => {
                    Box::pin(self.begin_again(running)).await?;
                    noting.set(self.note_points(running));
                }
                Some(Item::End(ending)) => {
                    let response = ending?.whole().await?;
                    match running.session.get().next(&running.call, response, self.caller.client)? {
                        Next::Ended(response) if running.session.get().is_modern() => return Ok(response),
                        Next::Ended(response) => return Ok(self.writer.answer_in_session(response)),
                        Next::Asks(round) => Box::pin(self.go_on(running, round)).await?,
                    }
                }
                None => return Err(Failure::Abandoned),
            }
        }
    }

    /// Asks the client what the server wants to know before the call goes on, and sends the server the answers.
    async fn go_on(&self, running: &mut Running, mut round: Round) -> Result<(), Failure> {
        running.request = None;
        if !round.questions.is_empty() {
            self.note_question();
        }
        let questions = std::mem::take(&mut round.questions);
        self.engine.ask(self.origin(&running.session), &questions).await;
        round.answered().await?;
        // If the task has no known owner, anyone with its id can answer: that must not change whose credential the call
        // has.
        let may_renew = !matches!(self.owner().kind(), OwnerKind::Anyone { .. });
        running.session.get().retry(&mut running.call, &round, may_renew, self.max_answer())
    }

    /// Notes that the call waits for its client, so that how long it runs tells little.
    fn note_question(&self) {
        self.engine.calls.note_question(self.id);
        self.engine.tool_times.record_question(&self.tool_id);
    }

    /// Returns where the questions of the call come from.
    fn origin(&self, session: &UpstreamGuard) -> QuestionOrigin<'_> {
        let (caller, upstream_session) = (Arc::clone(&self.caller), Arc::clone(session.get()));
        let call = AskingCall { task: self.id, caller, upstream_session };
        let (input_timeout, headers) = (self.tool.input_timeout, &self.headers);
        QuestionOrigin { call, headers, writer: self.writer, input_timeout, replies: &self.replies }
    }

    /// Handles one event. `last` is the greatest progress so far.
    async fn handle(&self, session: &UpstreamGuard, message: &Message, event: ServerEvent, last: &mut f64) {
        let listener = self.session.listener(session);
        match event {
            // Progress shows in the task, and reaches the client under its own token: only if it grows, as it must
            // (section "Progress Flow"), and only until the task has ended.
            ServerEvent::Progress { progress, text, for_client } if progress > *last => {
                *last = progress;
                if let (true, Some(for_client)) = (self.set_status_message(text).await, for_client) {
                    self.engine.desk.progress(self.id, &for_client);
                }
            }
            ServerEvent::Progress { .. } => {}
            ServerEvent::Nothing => self.engine.observer.emit(events::MessageUnreadable),
            ServerEvent::Asks(asked) => {
                self.note_question();
                self.engine.ask(self.origin(session), &[(message.clone(), asked)]).await;
            }
            ServerEvent::AnsweredHere(reply) => self.engine.reply_at_once(&self.origin(session), reply).await,
            ServerEvent::Withdraws(raw_id) => self.engine.close_withdrawn(self.owner(), self.id, &raw_id).await,
            ServerEvent::Changes => listener.push(message.clone()),
            ServerEvent::Says if self.engine.desk.tell(self.id, message) => {}
            ServerEvent::Says => match self.writer.tied(self.id, message) {
                Some(tied) => listener.push(tied),
                None => self.engine.observer.emit(events::MessageUnreadable),
            },
        }
    }

    /// Sets the task's text for a person. Returns whether it did: a task that has ended stays as it is.
    pub(super) async fn set_status_message(&self, text: String) -> bool {
        let text: Arc<str> = text.into();
        let changed = self.engine.change(self.owner(), self.id, |_| Some(Change::Message(Arc::clone(&text)))).await;
        matches!(changed, Ok(Some(_)))
    }

    /// Returns whether a client that leaves before the acknowledgement cancels its call: one without a session does
    /// (revision 2026-07-28, "Cancellation"). In a session the sender is dropped with the answer that carried it.
    fn is_cancelled_by_leaving(&self) -> bool {
        self.caller.session.is_none() && self.restored.is_none()
    }

    /// Ends the task without a word, as its client does not know of it.
    pub(super) async fn end_unacknowledged(&self) {
        self.engine.calls.mark_told(self.id);
        self.engine.finish(self.owner(), self.id, Change::give_up(), Some(GIVEN_UP)).await;
    }

    /// Ends the task as [`Engine::finish`] does.
    async fn finish(&self, change: Change, why: Option<&str>) {
        // The last messages of the call come before its end, and none after it.
        if let Some(outbox) = self.engine.desk.outbox(self.id) {
            let _ = tokio::time::timeout(LAST_MESSAGES_TIMEOUT, outbox.emptied()).await;
        }
        self.engine.finish(self.owner(), self.id, change, why).await;
    }

    /// Fails the task, and cancels the call in the server, even if the store does not take the end.
    async fn give_up(&self, running: &mut Running, why: &str) {
        tokio::join!(Box::pin(self.finish(status_message::failed(why), Some(why))), self.cancel(running, why));
    }

    /// Cancels the call in the server.
    async fn cancel(&self, running: &mut Running, why: &str) {
        running.session.get().cancel_call(&mut running.call, why, HeaderMap::clone(&self.headers)).await;
    }

    pub(super) fn owner(&self) -> &Owner {
        &self.caller.owner
    }
}

/// Returns the outcome of a call that was resumed: one that gave nothing may have had its effect.
fn not_resumed(outcome: CallOutcome) -> CallOutcome {
    match outcome {
        CallOutcome::Nothing { why, cause } => CallOutcome::Nothing { why: status_message::not_resumed(&why), cause },
        outcome => outcome,
    }
}

/// Counts a task as queued while it lives.
struct InQueue(Arc<Engine>);

impl Drop for InQueue {
    fn drop(&mut self) {
        self.0.observer.emit(events::TaskLeftQueue);
    }
}
