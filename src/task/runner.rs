//! The call behind a task, from its turn to its outcome, detached from every connection of the client.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{Change, Engine, TaskId, TaskWriter, calls::Stop, desk::AskingCall, input::QuestionOrigin, status_message};
use crate::{
    config::Tool,
    flow::Item,
    identity::Owner,
    limit::{Admission, Permit},
    observe::events,
    session::Caller,
    upstream::{Call, CallOptions, CallOutcome, Exchange, Failure, Purpose, ServerEvent, UpstreamGuard},
    wire::Message,
};

/// What an answer may be larger than the result inside it, in bytes.
const ENVELOPE: usize = 64 * 1024;
/// How long a call waits at most until the answer that acknowledges its task is on its way.
const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a reader may take for the messages of a call before its end. Messages that wait longer may be dropped.
const LAST_MESSAGES_TIMEOUT: Duration = Duration::from_millis(100);
/// How long the connection of a call that was cancelled may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long after a call its cancellation is sent at the earliest.
const HEAD_START: Duration = Duration::from_millis(100);

/// Runs the call of one task.
#[derive(Debug)]
pub(super) struct Runner {
    pub engine: Arc<Engine>,
    pub caller: Arc<Caller>,
    pub upstream_session: UpstreamGuard,
    pub id: TaskId,
    pub headers: Arc<HeaderMap>,
    /// Writes for the streams of the task's client.
    pub writer: &'static dyn TaskWriter,
    /// The settings of its tool.
    pub tool: Arc<Tool>,
    /// Bounds the questions that are being answered in the client's place.
    pub replies: Arc<Semaphore>,
    pub created: Instant,
    /// How long it may wait for its turn after its creation.
    pub patience: Duration,
    /// Whether the client is told of changes of the task's state.
    pub announced: bool,
    /// Whether an earlier process has created the task.
    pub restored: bool,
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
    /// Runs the call. `started` resolves when the task has been acknowledged, `stopped` when its call has to stop.
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
            // An error is the usual case: the sender is dropped with the answer that carried it.
            _ = started => {}
            // A client that does not take the answer must not keep the turn from others.
            () = tokio::time::sleep(ACKNOWLEDGE_TIMEOUT) => {}
        }
        let begun = tokio::select! {
            biased;
            _ = &mut stopped => return,
            begun = self.begin(admission) => begun,
        };
        drop(in_queue);
        // Held until the exchange has ended.
        let _permit = match begun {
            Ok(permit) => permit,
            Err(why) => return self.finish(status_message::failed(&why), Some(&why)).await,
        };
        let max_answer = self.max_answer();
        let options = CallOptions { purpose: Purpose::Background, max_answer, relay: false, native: false };
        let call = match self.upstream_session.get().call(&request, HeaderMap::clone(&self.headers), options) {
            Ok(call) => call,
            Err(error) => return self.finish(status_message::failed(&error.message), Some(&error.message)).await,
        };
        // While the call runs, only the message that goes upstream is kept.
        drop(request);
        self.attend(call, stopped, Beginning { since: Instant::now(), progress: f64::NEG_INFINITY, resumed: false })
            .await;
    }

    /// Returns the largest answer to take, in bytes.
    pub(super) fn max_answer(&self) -> usize {
        self.tool.max_result.saturating_add(ENVELOPE)
    }

    /// Follows a call to its end, its timeout, or until it is stopped.
    pub(super) async fn attend(
        self,
        mut call: Call,
        mut stopped: oneshot::Receiver<Stop>,
        Beginning { since, progress, resumed }: Beginning,
    ) {
        let noting = self.note_points(&call);
        tokio::select! {
            ending = self.follow(&mut call, progress) => {
                let outcome = CallOutcome::of(ending, self.tool.max_result);
                let (end, why) = status_message::ended(if resumed { not_resumed(outcome) } else { outcome });
                self.finish(end, why.as_deref()).await;
            }
            stop = &mut stopped => match stop.unwrap_or(Stop::Cancel("the process stops")) {
                Stop::Cancel(why) => self.cancel(&mut call.exchange, since, why).await,
                Stop::Leave(left) => {
                    self.upstream_session.get().keep();
                    drop(left);
                }
            },
            () = tokio::time::sleep_until(since + self.tool.timeout) => {
                let why = status_message::timed_out(self.tool.timeout);
                // The call is cancelled even if the store does not take the end.
                tokio::join!(
                    self.finish(status_message::failed(&why), Some(&why)),
                    self.cancel(&mut call.exchange, since, &why),
                );
            }
            never = noting => match never {},
        }
    }

    /// Waits for the turn, and notes that the call is sent: a later process must not send it again.
    ///
    /// # Errors
    /// Why it is not sent.
    async fn begin(&mut self, admission: Admission) -> Result<Permit, String> {
        let late = self.restored && self.created.elapsed() > self.patience;
        let (permit, queued) = match admission {
            _ if late => (None, false),
            Admission::Now(permit) => (Some(permit), false),
            Admission::Queued(waiting) => {
                let turn = tokio::time::timeout_at(self.created + self.patience, waiting.turn()).await;
                (turn.ok().flatten(), true)
            }
        };
        let permit = permit.ok_or_else(|| self.no_turn())?;
        if self.restored {
            self.find_session().await?;
        }
        // A task that has ended meanwhile needs no turn, and stays as it is.
        if !(queued || self.restored) || self.note_sent().await { Ok(permit) } else { Err(self.no_turn()) }
    }

    /// Returns why the call has had no turn.
    fn no_turn(&self) -> String {
        let full = self.engine.ledger.store.full(self.owner());
        status_message::no_turn(self.patience, self.tool.timeout, full)
    }

    /// Handles what the server says, until the call's end.
    async fn follow(&self, call: &mut Call, mut progress: f64) -> Result<Message, Failure> {
        loop {
            match call.exchange.next().await {
                Some(Item::Message(message)) => {
                    let event = self.upstream_session.get().event(call, &message);
                    self.handle(&message, event, &mut progress).await;
                }
                // The link resumes a call that the server interrupts.
                Some(Item::Silence | Item::Pause(_)) => {}
                Some(Item::End(ending)) => return ending?.whole().await,
                None => return Err(Failure::Abandoned),
            }
        }
    }

    /// Handles one event. `last` is the greatest progress so far.
    async fn handle(&self, message: &Message, event: ServerEvent, last: &mut f64) {
        let upstream_session = self.upstream_session.get();
        let origin = || {
            let (caller, upstream_session) = (Arc::clone(&self.caller), Arc::clone(upstream_session));
            let call = AskingCall { task: self.id, caller, upstream_session };
            let (input_timeout, headers) = (self.tool.input_timeout, &self.headers);
            QuestionOrigin { call, headers, writer: self.writer, input_timeout, replies: &self.replies }
        };
        match event {
            // Progress shows in the task, and reaches the client under its own token: only if it grows, as it must (section
            // "Progress Flow"), and only until the task has ended.
            ServerEvent::Progress { progress, text, for_client } if progress > *last => {
                *last = progress;
                if let (true, Some(for_client)) = (self.set_status_message(text).await, for_client) {
                    self.engine.desk.progress(self.id, &for_client);
                }
            }
            ServerEvent::Progress { .. } | ServerEvent::Nothing => {}
            ServerEvent::Asks(asked) => self.engine.ask(origin(), message, asked).await,
            ServerEvent::AnsweredHere(reply) => self.engine.reply_at_once(origin(), reply).await,
            ServerEvent::Withdraws(raw_id) => self.engine.close_withdrawn(self.owner(), self.id, &raw_id).await,
            ServerEvent::Changes => upstream_session.push(message.clone()),
            ServerEvent::Says if self.engine.desk.tell(self.id, message) => {}
            ServerEvent::Says => match self.writer.tied(self.id, message) {
                Some(tied) => upstream_session.push(tied),
                None => self.engine.observer.emit(events::MessageUnreadable),
            },
        }
    }

    /// Sets the task's text for a person. Returns whether it did: a task that has ended stays as it is.
    async fn set_status_message(&self, text: String) -> bool {
        let text: Arc<str> = text.into();
        let changed = self.engine.change(self.owner(), self.id, |_| Some(Change::Message(Arc::clone(&text)))).await;
        matches!(changed, Ok(Some(_)))
    }

    /// Ends the task as [`Engine::finish`] does.
    async fn finish(&self, change: Change, why: Option<&str>) {
        // The last messages of the call come before its end, and none after it.
        if let Some(outbox) = self.engine.desk.outbox(self.id) {
            let _ = tokio::time::timeout(LAST_MESSAGES_TIMEOUT, outbox.emptied()).await;
        }
        self.engine.finish(self.owner(), self.id, change, why).await;
    }

    /// Cancels the call in the server.
    async fn cancel(&self, exchange: &mut Exchange, since: Instant, why: &str) {
        // The call itself may still have to be sent.
        exchange.detach();
        // On two connections the cancellation could overtake the call, and a server ignores one for an unknown request.
        tokio::time::sleep_until(since + HEAD_START).await;
        self.upstream_session.get().cancel_call(exchange.number, why, HeaderMap::clone(&self.headers)).await;
        // The permit is dropped only after this: the next call must not meet this one.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, exchange.gone()).await;
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
