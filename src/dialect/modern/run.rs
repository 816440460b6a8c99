//! A request under way at a server: what the server says goes to the client, what it asks comes back as an answer
//! of its own, and a call that takes long becomes a task.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    Answer, ClientRequest, Modern, Refused,
    adoptable::{Adoptable, Becoming},
    hosts,
    input::input_responses,
    lacks::Lacks,
    onward::call_options,
    parked::Retry,
    pieces::{PieceWriter, pieces},
    request_state::Shown,
    translate,
};
use crate::{
    dialect::tools::Heartbeat,
    flow::Item,
    limit::{KeptBytes, Permit},
    observe::events,
    session::Caller,
    task::Adopted,
    upstream::{Call, Exchange, ExchangeEnd, Failure, Generation, Lease, ToServer, UpstreamSession},
    wire::{Message, Method, Parts, RpcError, object::Members, params::given_token},
};

/// Why a state of an earlier process is not good any more.
const EARLIER_PROCESS: &str = "the call that params.requestState names has ended with a restart of \
    taskgate while it waited for this answer; it may or may not have had an effect; send the request again without it";
/// How long a call that has asked waits for further questions, so that the client gets them together.
const GATHERS: Duration = Duration::from_millis(25);
/// How long a client waits at least for the first word before its answer becomes a stream, whose heartbeats keep it
/// open. What notices a silence looks every few seconds ([`crate::upstream::SessionPool::tell_silence`]).
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// A question of the server that its client has not answered.
#[derive(Debug)]
pub(super) struct Question {
    /// The key in `inputRequests`.
    pub(super) key: String,
    pub(super) request: Message,
    /// Counts what it takes.
    pub(super) _kept: KeptBytes,
}

/// One request, its call, and where its answer goes.
pub(super) struct Run {
    pub(super) modern: Arc<Modern>,
    pub(super) request: Box<ClientRequest>,
    pub(super) lease: Lease,
    pub(super) call: Call,
    /// [`hosts::asked_at`]
    pub(super) asked_at: u64,
    pub(super) adoptable: Option<Adoptable>,
    /// The right to run of a call that may become a task: it runs, whether it becomes one or not.
    pub(super) _permit: Option<Permit>,
    /// When the call becomes a task if it has not ended.
    pub(super) adopt_at: Instant,
    /// How long a call with the right to run may take, whether it becomes a task or not, and when that is over.
    pub(super) timeout: Option<(Duration, Instant)>,
    /// The try to make a task of it.
    pub(super) becoming: Option<Becoming>,
    /// Progress in the server's place.
    pub(super) heartbeat: Option<Heartbeat>,
    /// When it was sent.
    pub(super) since: Instant,
    pub(super) progress: f64,
    /// What a person may be told of the progress.
    pub(super) text: Option<String>,
    pub(super) questions: Vec<Question>,
    /// What the server asked for and the client has not declared.
    pub(super) lacks: Lacks,
    /// Whether the server may ask in the course of it.
    pub(super) asks: bool,
    pub(super) sent_again: bool,
    pub(super) to: PieceWriter,
    /// Bounds the answers to questions that are on their way to the server; made with the first one.
    pub(super) replies: Option<Arc<Semaphore>>,
}

/// Returns what a server has said, or says next.
async fn next(said: &mut Option<Item<ExchangeEnd>>, exchange: &mut Exchange) -> Option<Item<ExchangeEnd>> {
    match said.take() {
        Some(said) => Some(said),
        None => exchange.next().await,
    }
}

/// Why a run does not go on.
pub(super) enum Over {
    /// It has been answered, or its client has left and knows it.
    Done,
    /// Its client has left.
    Left,
    /// It is a task, whose call the engine follows.
    Adopted(Box<Adopted>),
}

impl Modern {
    /// Sends a request in a session. `asks`: the server may ask something in the course of it.
    pub(super) async fn start(
        &self,
        request: &ClientRequest,
        lease: &Lease,
        asks: bool,
        may_be_task: bool,
    ) -> Result<Call, RpcError> {
        if let Some(level) = request.meta.log_level {
            Box::pin(lease.log_from(level, &request.headers)).await;
        }
        let (generation, session) = (lease.pooled.generation, lease.guard.get());
        let (headers, mut options) = (request.headers_for(generation), call_options(generation, may_be_task));
        // The retry of a call that asks may give the first token, and the server is only asked now.
        options.wants_progress |= generation == Generation::Legacy && asks && request.caller.client.any();
        let message;
        let to_server = if let Some(bared) = request.bared(generation) {
            bared
        } else {
            message = request.message_for(generation, request.whose(generation))?;
            ToServer::from(&message)
        };
        let call = if asks || generation.is_modern() {
            session.call(to_server, headers, options)?
        } else {
            session.call_apart(to_server, headers, options)?
        };
        call.exchange.hear_silence(true);
        if may_be_task && self.engine.outlives_process() && session.outlives_process() {
            // As a task it may have to be resumed.
            let _ = call.exchange.track(None);
        }
        Ok(call)
    }

    /// Takes in a retry, and answers as the parked call goes on.
    ///
    /// # Errors
    /// One -32602 for each state that is not good here and now.
    pub(super) async fn resume(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        state: &str,
    ) -> Result<Answer, Refused> {
        // The call goes on in its own session.
        request.opened = None;
        let bound = request.bound();
        let opened = match self.seals.open(state, bound) {
            Some(Shown::Here(opened)) if opened.expires >= self.engine.now() => Some(opened),
            // Sealed for this very request and client, so this tells a stranger nothing.
            Some(Shown::Earlier { expires }) if expires >= self.engine.now() => {
                self.observer.emit(events::RequestStateRefused { who: &request.caller.who });
                return Err(RpcError::bad_params(EARLIER_PROCESS).into());
            }
            Some(Shown::Here(_) | Shown::Earlier { .. }) | None => None,
        };
        let (answers, progress_token) = (input_responses(&request.message)?, given_token(&request.message)?);
        let caller = Arc::clone(&request.caller);
        let retry = match opened {
            Some(opened) => self.parking.take(opened.call, &answers, |place| request.take_place(place))?,
            None => None,
        };
        let (to, from) = pieces(&self.capacity, &self.observer);
        let taken = retry.is_some_and(|retry| retry.send(Retry { request, answers, progress_token, to }).is_ok());
        if !taken {
            return Err(self.refuse_state(&caller));
        }
        from.answer().await
    }

    /// Refuses a state that is not good here and now. Tells nothing of the reason.
    pub(super) fn refuse_state(&self, caller: &Caller) -> Refused {
        self.observer.emit(events::RequestStateRefused { who: &caller.who });
        let why = "params.requestState is not good, or not any more; send the request again without it";
        RpcError::bad_params(why).into()
    }
}

impl Run {
    /// Follows the call to its end, once its server has `said` something, or something else is due.
    pub(super) async fn run(mut self: Box<Self>, said: Option<Item<ExchangeEnd>>) {
        match self.follow(said).await {
            Over::Done if self.call.exchange.is_over() => {}
            Over::Done => Box::pin(self.cancel("taskgate has given the call up")).await,
            Over::Adopted(adopted) => {
                self.call.exchange.hear_silence(false);
                adopted.follow(self.call, self.lease.hold(), self.progress, self.text);
            }
            Over::Left => Box::pin(self.cancel("the client has left")).await,
        }
    }

    /// Cancels the call in the server, which goes on with it.
    async fn cancel(&mut self, why: &str) {
        self.give_up(why).await;
        let (session, headers) = (Arc::clone(self.session()), self.request.headers.clone());
        session.cancel_call(&mut self.call, why, headers).await;
    }

    /// Returns whether the call may become something else now.
    fn adopts(&self) -> bool {
        self.adoptable.is_some() && self.questions.is_empty()
    }

    /// Returns when something is due that the server has no part in.
    pub(super) fn due(&self) -> Option<Instant> {
        let adopt_at = self.adopts().then_some(self.adopt_at);
        let beat_at = self.heartbeat.as_ref().map(Heartbeat::due);
        [adopt_at, beat_at, self.timeout.map(|(_, at)| at)].into_iter().flatten().min()
    }

    pub(super) async fn follow(&mut self, mut said: Option<Item<ExchangeEnd>>) -> Over {
        // Rare paths are boxed here and below, so that every run stays small.
        let (mut ask_at, mut quiet_since) = (None, self.since);
        loop {
            let due = [ask_at, self.due()].into_iter().flatten().min();
            tokio::select! {
                biased;
                () = self.to.left() => return Over::Left,
                tried = Becoming::tried(&mut self.becoming), if self.becoming.is_some() => {
                    if let Some(over) = self.tried(tried) {
                        return over;
                    }
                }
                item = next(&mut said, &mut self.call.exchange) => match item {
                    Some(Item::Message(message)) => {
                        self.take(message).await;
                        if !self.questions.is_empty() {
                            self.stop_trying();
                            ask_at.get_or_insert_with(|| Instant::now() + GATHERS);
                        }
                    }
                    // A server that begins a stream has said nothing yet.
                    Some(Item::Silence) if quiet_since.elapsed() >= SILENCE => self.to.begin(),
                    Some(Item::Silence | Item::Pause(_)) => {}
                    Some(Item::End(ending)) => {
                        self.stop_trying();
                        return self.end(ending).await;
                    }
                    None => return self.fail(&Failure::Abandoned),
                },
                () = tokio::time::sleep_until(due.unwrap_or(self.since)), if due.is_some() => {
                    let now = Instant::now();
                    let is_due = |at: &mut Instant| *at <= now;
                    if ask_at.take_if(is_due).is_some() {
                        if self.questions.is_empty() {
                            // The server has withdrawn them.
                            continue;
                        }
                        if let Some(over) = Box::pin(self.park()).await {
                            return over;
                        }
                        quiet_since = Instant::now();
                    } else if let Some((limit, _)) = self.timeout.filter(|(_, at)| *at <= now) {
                        self.stop_trying();
                        return self.fail(&Failure::TimedOut(limit));
                    } else if self.adopts() && self.adopt_at <= now {
                        self.adopt();
                    } else {
                        self.beat();
                    }
                }
            }
        }
    }

    pub(super) fn session(&self) -> &Arc<UpstreamSession> {
        self.lease.guard.get()
    }

    /// Returns whether the server is modern, so that what it says passes as it is.
    pub(super) fn passes(&self) -> bool {
        self.lease.pooled.generation.is_modern()
    }

    /// Returns whether a server that says it does not know the method may mean the tool, as many do.
    pub(super) fn may_lack_tool(&self) -> bool {
        let declared = Members::parse(&self.lease.pooled.facts.capabilities);
        self.request.method == Method::ToolsCall && declared.is_ok_and(|declared| declared.get("tools").is_some())
    }

    pub(super) async fn end(&mut self, ending: ExchangeEnd) -> Over {
        if self.passes() {
            return Box::pin(self.end_as_answered(ending)).await;
        }
        let ending = match ending {
            Ok(answer) => answer.whole().await,
            Err(failure) => Err(failure),
        };
        match ending {
            // A call that fails for want of an answer needed the capability.
            Ok(response) if !self.lacks.is_empty() && translate::has_failed(&response) => {
                self.lack(translate::words_of(&response).as_deref())
            }
            Ok(response)
                if self.asks
                    && let Some(requests) = translate::pages_to_visit(&response) =>
            {
                self.send_to(&requests)
            }
            Ok(response) => {
                // A legacy server may have the code for itself: its session stays.
                if !self.sent_again
                    && self.call.exchange.status() == Some(StatusCode::BAD_REQUEST)
                    && translate::may_be_of_modern_server(&response)
                    && Box::pin(self.has_become_modern()).await
                    && let Some(over) = Box::pin(self.replaced()).await
                {
                    return over;
                }
                let modern = translate::to_modern(&response, &self.request, &self.lease.pooled.facts);
                match modern {
                    Ok(document) => {
                        let document = hosts::with_tools(document, &self.request, &self.lease, self.asked_at);
                        let status = if translate::is_unknown_method(&response) && !self.may_lack_tool() {
                            StatusCode::NOT_FOUND
                        } else {
                            StatusCode::OK
                        };
                        self.to.respond(status, document);
                        Over::Done
                    }
                    Err(why) => self.fail(&Failure::BadAnswer(why)),
                }
            }
            Err(Failure::Cancelled) => Over::Done,
            Err(Failure::SessionLost) if !self.sent_again => {
                // A call that ran when another request found the session gone is not sent again.
                if self.call.exchange.was_refused().await {
                    Box::pin(self.send_again()).await
                } else {
                    self.fail(&Failure::SessionLost)
                }
            }
            Err(failure) => self.fail(&failure),
        }
    }

    pub(super) fn respond(&mut self, document: Parts) -> Over {
        self.to.respond(StatusCode::OK, document);
        Over::Done
    }

    pub(super) fn fail(&mut self, failure: &Failure) -> Over {
        self.to.refuse(self.modern.failed(&self.request, failure), self.request.id());
        Over::Done
    }
}
