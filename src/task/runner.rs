//! The call behind a task, from its turn to its outcome, detached from every connection of the client.

use std::{sync::Arc, time::Duration};

use http::HeaderMap;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{Change, Engine, TaskId, TaskWriter, desk::AskingCall, input::QuestionOrigin, ledger::NotChanged, outcome};
use crate::{
    config::Tool,
    flow::Item,
    identity::Owner,
    limit::{Admission, Permit},
    observe::events,
    session::Caller,
    upstream::{Call, CallEnd, CallOptions, Exchange, Failure, Purpose, ServerEvent, UpstreamGuard},
    wire::Message,
};

/// What an answer may be larger than the result inside it, in bytes.
const ENVELOPE: usize = 64 * 1024;
/// When the answer that acknowledged a task is taken to be on its way at the latest.
const ACKNOWLEDGED: Duration = Duration::from_secs(1);
/// How long a reader may take for what a call told before its end; what is left then is not told any more.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long the connection of a call that was cancelled may take to go.
const GONE: Duration = Duration::from_secs(1);
/// What a call gets before its cancellation is sent after it.
const HEAD_START: Duration = Duration::from_millis(100);

/// Everything that one call needs.
#[derive(Debug)]
pub(super) struct Runner {
    pub engine: Arc<Engine>,
    pub caller: Arc<Caller>,
    pub upstream_session: UpstreamGuard,
    pub id: TaskId,
    pub headers: Arc<HeaderMap>,
    /// That of the client that wants the task.
    pub writer: &'static dyn TaskWriter,
    /// The settings of its tool.
    pub tool: Arc<Tool>,
    /// Bounds what is answered in the client's place.
    pub replies: Arc<Semaphore>,
    pub created: Instant,
    /// How long it may wait for its turn from then on.
    pub patience: Duration,
}

impl Runner {
    /// Runs the call. `started` resolves when the task has been acknowledged, `stopped` when nobody wants it any more.
    pub(super) async fn run(
        self,
        request: Message,
        started: oneshot::Receiver<()>,
        admission: Admission,
        mut stopped: oneshot::Receiver<&'static str>,
    ) {
        let in_queue = matches!(admission, Admission::Queued(_)).then(|| InQueue(Arc::clone(&self.engine)));
        tokio::select! {
            biased;
            _ = &mut stopped => return,
            // An error is the usual case: the sender is dropped with the answer that carried it.
            _ = started => {}
            // A client that does not take the answer must not keep the turn from others.
            () = tokio::time::sleep(ACKNOWLEDGED) => {}
        }
        let turn = tokio::select! {
            biased;
            _ = &mut stopped => return,
            turn = self.turn(admission) => turn,
        };
        drop(in_queue);
        // Held until the exchange is over.
        let Some(_permit) = turn else {
            let why = self.no_turn();
            return self.finish(outcome::failed(&why), Some(&why)).await;
        };
        let max_answer = self.tool.max_result.saturating_add(ENVELOPE);
        let options = CallOptions { purpose: Purpose::Background, max_answer, relay: false, native: false };
        let mut call = match self.upstream_session.get().call(&request, HeaderMap::clone(&self.headers), options) {
            Ok(call) => call,
            Err(error) => return self.finish(outcome::failed(&error.message), Some(&error.message)).await,
        };
        // Only what goes upstream is kept while the call runs.
        drop(request);
        let since = Instant::now();
        tokio::select! {
            ending = self.follow(&mut call) => {
                let (end, why) = outcome::of(CallEnd::of(ending, self.tool.max_result));
                self.finish(end, why.as_deref()).await;
            }
            why = &mut stopped => self.cancel(&mut call.exchange, since, why.unwrap_or("the process stops")).await,
            () = tokio::time::sleep_until(since + self.tool.timeout) => {
                let timeout = humantime::format_duration(self.tool.timeout);
                let why = format!("timeout = {timeout} is over and the call was cancelled");
                // The server is told whether the store takes the end or not.
                tokio::join!(
                    self.finish(outcome::failed(&why), Some(&why)),
                    self.cancel(&mut call.exchange, since, &why),
                );
            }
        }
    }

    /// Waits for the turn, as long as the ttl leaves the call its timeout.
    async fn turn(&self, admission: Admission) -> Option<Permit> {
        let waiting = match admission {
            Admission::Now(permit) => return Some(permit),
            Admission::Queued(waiting) => waiting,
        };
        let permit = tokio::time::timeout_at(self.created + self.patience, waiting.turn()).await.ok().flatten()?;
        let told = self.engine.change(self.owner(), self.id, |_| Some(Change::Message("Running.".into()))).await;
        // A task that has ended meanwhile needs no turn. Where the store does not answer it has not ended.
        matches!(told, Ok(Some(_)) | Err(NotChanged::Unavailable(_))).then_some(permit)
    }

    /// Why the turn has not come.
    fn no_turn(&self) -> String {
        let [patience, timeout] = [self.patience, self.tool.timeout].map(humantime::format_duration);
        let waited = format!("limit reached: the task waited for its turn for {patience}");
        match self.engine.ledger.store.full(self.owner()) {
            Some(limit) => format!("{waited}; {limit}"),
            None => format!(
                "{waited}, and its ttl leaves the call no more than its timeout = {timeout}; call again later, or ask for \
                 a longer ttl"
            ),
        }
    }

    /// Takes in what the server says until the end.
    async fn follow(&self, call: &mut Call) -> Result<Message, Failure> {
        let mut progress = f64::NEG_INFINITY;
        loop {
            match call.exchange.next().await {
                Some(Item::Message(message)) => {
                    let event = self.upstream_session.get().event(call, &message);
                    self.take(&message, event, &mut progress).await;
                }
                // A call that the server interrupts is resumed without anything to do here.
                Some(Item::Silence | Item::Pause(_)) => {}
                Some(Item::End(ending)) => return ending?.whole().await,
                None => return Err(Failure::Abandoned),
            }
        }
    }

    async fn take(&self, message: &Message, event: ServerEvent, last: &mut f64) {
        let upstream_session = self.upstream_session.get();
        let origin = || {
            let (caller, upstream_session) = (Arc::clone(&self.caller), Arc::clone(upstream_session));
            let call = AskingCall { task: self.id, caller, upstream_session };
            let (input_timeout, headers) = (self.tool.input_timeout, &self.headers);
            QuestionOrigin { call, headers, writer: self.writer, input_timeout, replies: &self.replies }
        };
        match event {
            // Progress shows in the task, and reaches the client under its own token: only where it grows, as it must
            // (section "Progress Flow"), and never once the task has ended.
            ServerEvent::Progress { progress, text, theirs } if progress > *last => {
                *last = progress;
                if let (true, Some(theirs)) = (self.tell(text).await, theirs) {
                    self.engine.desk.progress(self.id, &theirs);
                }
            }
            ServerEvent::Progress { .. } | ServerEvent::Nothing => {}
            ServerEvent::Asks(asked) => self.engine.ask(origin(), message, asked).await,
            ServerEvent::AnsweredHere(reply) => self.engine.reply_at_once(origin(), reply).await,
            ServerEvent::Withdraws(theirs) => self.engine.withdrawn(self.owner(), self.id, &theirs).await,
            ServerEvent::Changes => upstream_session.push(message.clone()),
            ServerEvent::Says if self.engine.desk.tell(self.id, message) => {}
            ServerEvent::Says => match self.writer.tied(self.id, message) {
                Some(unheard) => upstream_session.push(unheard),
                None => self.engine.observer.emit(events::MessageUnreadable),
            },
        }
    }

    /// Whether the task still runs.
    async fn tell(&self, text: String) -> bool {
        let text: Arc<str> = text.into();
        let told = self.engine.change(self.owner(), self.id, |_| Some(Change::Message(Arc::clone(&text)))).await;
        matches!(told, Ok(Some(_)))
    }

    async fn finish(&self, change: Change, why: Option<&str>) {
        // What the call told last comes before its end, and nothing after it.
        if let Some(outbox) = self.engine.desk.outbox(self.id) {
            let _ = tokio::time::timeout(LAST_WORDS, outbox.emptied()).await;
        }
        self.engine.finish(self.owner(), self.id, change, why).await;
    }

    async fn cancel(&self, exchange: &mut Exchange, since: Instant, why: &str) {
        // The call itself may still have to be sent.
        exchange.detach();
        // Two requests on two connections can overtake each other, and a server ignores what it does not know yet.
        tokio::time::sleep_until(since + HEAD_START).await;
        self.upstream_session.get().cancel_call(exchange.number, why, HeaderMap::clone(&self.headers)).await;
        // The turn is given back behind this: the next call must not meet this one.
        let _ = tokio::time::timeout(GONE, exchange.gone()).await;
    }

    fn owner(&self) -> &Owner {
        &self.caller.owner
    }
}

/// Counts a task as queued while it lives.
struct InQueue(Arc<Engine>);

impl Drop for InQueue {
    fn drop(&mut self) {
        self.0.observer.emit(events::TaskLeftQueue);
    }
}
