//! A request under way at a legacy server: what the server says goes to the client, what it asks comes back as an answer
//! of its own, and a call that takes long becomes a task.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use tokio::{sync::mpsc, time::Instant};

use super::{
    Answer, ClientRequest, GATHERS, Modern, Piece, Polled, Refused, input::input_responses, meta::Level, parked::Retry,
    pieces::pieces, request_state::Shown, tasks, translate,
};
use crate::{
    config::Tool,
    flow::Item,
    limit::{Permit, Rated},
    observe::events,
    task::{Adopted, Adoption, AskedTtl, LastingWork, NewTask},
    upstream::{
        Call, CallOptions, ExchangeEnd, Failure, Lease, MAX_MESSAGE, Purpose, ServerEvent, UpstreamSession,
        question_refusal,
    },
    wire::{Asks, Message, Method, Parts, RpcError, object::Members, response::result_response},
};

/// How a call may become a task.
#[derive(Debug)]
pub(super) struct Adoptable {
    pub(super) name: Arc<str>,
    pub(super) tool: Arc<Tool>,
    /// The right to run, taken before the call began.
    pub(super) permit: Permit,
}

/// A question of the server that its client has not answered.
#[derive(Debug)]
pub(super) struct Question {
    /// The key in `inputRequests`.
    pub(super) key: String,
    pub(super) request: Message,
}

/// One request, its call, and where its answer goes.
pub(super) struct Run {
    pub(super) modern: Arc<Modern>,
    pub(super) request: ClientRequest,
    pub(super) lease: Lease,
    pub(super) call: Call,
    pub(super) adoptable: Option<Adoptable>,
    /// When the call becomes a task if it has not ended.
    pub(super) adopt_at: Instant,
    /// How long its client may take to answer.
    pub(super) input_timeout: Duration,
    pub(super) since: Instant,
    pub(super) progress: f64,
    /// What a person may be told of the progress.
    pub(super) text: Option<String>,
    pub(super) questions: Vec<Question>,
    /// What the server asked for and the client has not declared.
    pub(super) lacks: Option<Asks>,
    /// Whether the server may ask in the course of it.
    pub(super) asks: bool,
    pub(super) sent_again: bool,
    pub(super) to: mpsc::Sender<Piece>,
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

/// Calls of modern clients have progress, whether the client wants to hear of it or not.
const OPTIONS: CallOptions =
    CallOptions { purpose: Purpose::Background, max_answer: MAX_MESSAGE, relay: false, native: false };

impl Modern {
    /// Sends a request to the server, and answers as the server does. With `adoptable` it may become a task.
    ///
    /// # Errors
    /// [`Refused`]
    pub(super) async fn run(
        self: &Arc<Self>,
        request: ClientRequest,
        asks: bool,
        adoptable: Option<Adoptable>,
    ) -> Result<Answer, Refused> {
        // The client's patience counts from its request, and not from when a session is open.
        let now = Instant::now();
        let lease = self.lease(&request, asks).await?;
        let message = translate::to_legacy(&request.message)?;
        let call = lease.guard.get().call(&message, request.headers.clone(), OPTIONS)?;
        drop(message);
        if adoptable.is_some() && self.engine.outlives_process() {
            // As a task it may have to be resumed.
            let _ = call.exchange.track(None);
        }
        let tool = request.caller.upstream.policy.tool("*");
        let (after, input_timeout) = adoptable
            .as_ref()
            .map_or((Duration::MAX, tool.input_timeout), |it| (it.tool.task_after, it.tool.input_timeout));
        let (to, mut from) = pieces();
        let run = Run {
            modern: Arc::clone(self),
            request,
            lease,
            call,
            adoptable,
            adopt_at: now.checked_add(after).unwrap_or(now + FAR),
            input_timeout,
            since: now,
            progress: f64::NEG_INFINITY,
            text: None,
            questions: Vec::new(),
            lacks: None,
            asks,
            sent_again: false,
            to,
        };
        // Usually it is over with its first word, and needs no task of its own. It goes on in one where it is not, and where
        // the client leaves.
        let mut work = LastingWork::new(run.run());
        let first = tokio::select! {
            biased;
            first = from.recv() => first,
            () = &mut work => from.recv().await,
        };
        Answer::beginning(first, from).ok_or_else(|| RpcError::internal("the request was given up").into())
    }

    /// Takes in a retry, and answers as the parked call goes on.
    ///
    /// # Errors
    /// One -32602 for each state that is not good here and now.
    pub(super) async fn resume(self: &Arc<Self>, request: ClientRequest, state: &str) -> Result<Answer, Refused> {
        let bound = request.bound();
        let opened = match self.seals.open(state, bound) {
            Some(Shown::Here(opened)) if opened.expires >= self.engine.now() => Some(opened),
            // Sealed for this very request and client, so this tells a stranger nothing.
            Some(Shown::Earlier { expires }) if expires >= self.engine.now() => {
                self.observer.emit(events::RequestStateRefused { who: &request.caller.who });
                return Err(RpcError::invalid_params(EARLIER_PROCESS).into());
            }
            Some(Shown::Here(_) | Shown::Earlier { .. }) | None => None,
        };
        let answers = input_responses(&request.message)?;
        let retry = opened.and_then(|opened| self.parking.take(opened.call));
        let (to, from) = pieces();
        let taken = retry.is_some_and(|retry| retry.send(Retry { request: request.clone(), answers, to }).is_ok());
        if !taken {
            self.observer.emit(events::RequestStateRefused { who: &request.caller.who });
            return Err(RpcError::invalid_params(
                "Invalid params: params.requestState is not good, or not any more; send the request again without it",
            )
            .into());
        }
        Answer::of(from).await.ok_or_else(|| RpcError::internal("the request was given up").into())
    }
}

/// Why a state of an earlier process is not good any more.
const EARLIER_PROCESS: &str = "Invalid params: the call that params.requestState names has ended with a restart of \
    taskgate while it waited for this answer; it may or may not have had an effect; send the request again without it";
/// How long a client waits for the first word before its answer becomes a stream, whose heartbeats keep it open.
const SILENCE: Duration = Duration::from_secs(5);
/// How many questions of one call may be open.
const MAX_QUESTIONS: usize = 64;
/// Longer than any process lives.
const FAR: Duration = Duration::from_hours(24 * 365 * 10);

impl Run {
    async fn run(mut self) {
        match self.follow().await {
            Over::Done => {}
            Over::Adopted(adopted) => adopted.follow(self.call),
            Over::Left => self.cancel().await,
        }
    }

    /// Cancels the call, whose client has left.
    async fn cancel(&mut self) {
        self.give_up("the client has left").await;
        self.call.exchange.detach();
        let (session, headers) = (Arc::clone(self.session()), self.request.headers.clone());
        session.cancel_call(self.call.exchange.number, "the client has left", headers).await;
    }

    async fn follow(&mut self) -> Over {
        let (mut ask_at, mut begin_at) = (None, Some(Instant::now() + SILENCE));
        loop {
            let adopts = self.adoptable.is_some() && self.questions.is_empty();
            let asks = ask_at.unwrap_or(self.since + FAR);
            tokio::select! {
                biased;
                () = self.to.closed() => return Over::Left,
                item = self.call.exchange.next() => match item {
                    Some(Item::Message(message)) => {
                        if !self.take(message).await {
                            return Over::Left;
                        }
                        if !self.questions.is_empty() && ask_at.is_none() {
                            ask_at = Some(Instant::now() + GATHERS);
                        }
                    }
                    Some(Item::Silence | Item::Pause(_)) => {}
                    Some(Item::End(ending)) => return self.end(ending).await,
                    None => return self.fail(&Failure::Abandoned).await,
                },
                () = tokio::time::sleep_until(begin_at.unwrap_or(self.since)), if begin_at.is_some() => {
                    begin_at = None;
                    if self.to.send(Piece::Begin).await.is_err() {
                        return Over::Left;
                    }
                }
                () = tokio::time::sleep_until(asks), if ask_at.is_some() => {
                    ask_at = None;
                    if self.questions.is_empty() {
                        // The server has withdrawn them.
                        continue;
                    }
                    if let Some(over) = self.park().await {
                        return over;
                    }
                    begin_at = Some(Instant::now() + SILENCE);
                }
                () = tokio::time::sleep_until(self.adopt_at), if adopts => {
                    if let Some(over) = self.adopt().await {
                        return over;
                    }
                }
            }
        }
    }

    pub(super) fn session(&self) -> &Arc<UpstreamSession> {
        self.lease.guard.get()
    }

    /// Takes in what the server says. Returns whether the client is still there.
    pub(super) async fn take(&mut self, message: Message) -> bool {
        let event = self.session().event(&self.call, &message);
        match event {
            ServerEvent::Progress { progress, text, for_client } if progress > self.progress => {
                self.progress = progress;
                self.text = Some(text);
                match for_client {
                    Some(theirs) => self.to.send(Piece::Notification(theirs.bytes().clone())).await.is_ok(),
                    None => true,
                }
            }
            ServerEvent::Progress { .. } | ServerEvent::Nothing => true,
            ServerEvent::Asks(_) if !self.asks => {
                self.refuse(&message, "the call is not one in the course of which a client can be asked").await;
                true
            }
            ServerEvent::Asks(_) if self.questions.len() >= MAX_QUESTIONS => {
                self.refuse(&message, "limit reached: too many questions of one call are open").await;
                true
            }
            ServerEvent::Asks(asked) if !self.request.caller.client.can_be_asked(asked.needs) => {
                self.lacks = Some(asked.needs);
                self.refuse(&message, "the client has not declared that it can be asked this").await;
                true
            }
            ServerEvent::Asks(_) => {
                self.questions.push(Question { key: uuid::Uuid::new_v4().to_string(), request: message.compact() });
                true
            }
            ServerEvent::AnsweredHere(answer) => {
                if let Ok(asks) = Asks::of(&message)
                    && !self.request.caller.client.can_be_asked(asks)
                {
                    self.lacks = Some(asks);
                }
                let (session, headers) = (Arc::clone(self.session()), self.request.headers.clone());
                let _ = session.reply(answer, headers).await;
                true
            }
            ServerEvent::Withdraws(theirs) => {
                self.questions.retain(|question| question.request.id() != Some(&theirs));
                true
            }
            ServerEvent::Changes => {
                self.session().push(message);
                true
            }
            ServerEvent::Says => {
                if !self.wants(&message) {
                    return true;
                }
                self.to.send(Piece::Notification(message.bytes().clone())).await.is_ok()
            }
        }
    }

    /// Answers a question with an error.
    pub(super) async fn refuse(&mut self, question: &Message, why: &str) {
        let refusal = question_refusal(question.id_to_answer(), why.to_owned());
        // A server that does not take it has its own end of the call.
        let _ = self.session().reply(refusal, self.request.headers.clone()).await;
    }

    /// Returns whether the client has asked for such a log message with this request. It gets nothing else.
    fn wants(&self, message: &Message) -> bool {
        let (Method::LogMessage, Some(least)) = (message.method(), self.request.meta.log_level) else { return false };
        let params = message.params().and_then(|params| Members::parse(params).ok());
        let level = params.and_then(|params| params.text("level")).and_then(|level| Level::parse(&level));
        level.is_some_and(|level| level >= least)
    }

    pub(super) async fn end(&mut self, ending: ExchangeEnd) -> Over {
        let ending = match ending {
            Ok(answer) => answer.whole().await,
            Err(failure) => Err(failure),
        };
        match ending {
            // A call that fails for want of an answer needed the capability.
            Ok(response) if self.lacks.is_some() && translate::has_failed(&response) => self.lack().await,
            Ok(response) if let Some(requests) = translate::pages_to_visit(&response) => self.send_to(&requests).await,
            Ok(response) => {
                let modern = translate::to_modern(&response, &self.request, &self.lease.pooled.facts);
                match modern {
                    Ok(document) => self.respond(document).await,
                    Err(why) => self.fail(&Failure::BadAnswer(why)).await,
                }
            }
            Err(Failure::Cancelled) => Over::Done,
            Err(Failure::SessionLost) if !self.sent_again => {
                // A call that ran when another request found the session gone is not sent again.
                if self.call.exchange.was_refused().await {
                    self.send_again().await
                } else {
                    self.fail(&Failure::SessionLost).await
                }
            }
            Err(failure) => self.fail(&failure).await,
        }
    }

    /// Sends the request once more, in a new session: the server has refused it, as it has forgotten the session, and not
    /// run it.
    async fn send_again(&mut self) -> Over {
        self.sent_again = true;
        let lease = match self.modern.lease(&self.request, self.asks).await {
            Ok(lease) => lease,
            Err(refused) => return self.respond(refused.to_response(&self.request.id).into()).await,
        };
        let called = translate::to_legacy(&self.request.message)
            .and_then(|message| lease.guard.get().call(&message, self.request.headers.clone(), OPTIONS));
        match called {
            Ok(call) => {
                (self.lease, self.call) = (lease, call);
                Box::pin(self.follow()).await
            }
            Err(error) => self.respond(error.to_response(Some(&self.request.id)).into()).await,
        }
    }

    pub(super) async fn respond(&mut self, document: Parts) -> Over {
        // A client that has left wants no answer.
        let _ = self.to.send(Piece::Response(StatusCode::OK, document)).await;
        Over::Done
    }

    pub(super) async fn fail(&mut self, failure: &Failure) -> Over {
        let refused = self.modern.failed(&self.request, failure);
        self.respond(refused.to_response(&self.request.id).into()).await
    }

    /// Makes a task of the call. `None` where there is no room for one: the call goes on as it is.
    async fn adopt(&mut self) -> Option<Over> {
        let Adoptable { name, tool, permit } = self.adoptable.take()?;
        // Where it would be one too many, the call goes on as it is.
        self.request.caller.account.count(Rated::Creation).ok()?;
        let announced = self.request.caller.upstream.status_notifications;
        let wanted = NewTask { name, tool, ttl: AskedTtl::Default, announced, writer: &Polled, admission: None };
        let upstream_session = self.session().hold();
        let (progress, text) = (self.progress, self.text.take());
        let adoption = Adoption { permit, since: self.since, progress, text, headers: self.request.headers.clone() };
        match self.modern.engine.adopt(&self.request.caller, upstream_session, wanted, adoption).await {
            Ok(adopted) => {
                let result = tasks::created(&adopted.task);
                let document = result_response(&self.request.id, &result);
                let _ = self.to.send(Piece::Response(StatusCode::OK, document.into())).await;
                Some(Over::Adopted(Box::new(adopted)))
            }
            Err(_) => None,
        }
    }
}
