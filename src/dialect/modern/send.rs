//! How a request begins at a server: it is sent, and the handler of the client's request waits for the server's first
//! word. Usually that is the answer, and nothing of the call has to outlive the handler.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use http::StatusCode;
use tokio::{runtime::Handle, time::timeout_at};

use super::{
    Answer, ClientRequest, Modern, Refused,
    adoptable::Adoptable,
    hosts::{self, heartbeat_of},
    lacks::Lacks,
    pieces::{PieceWriter, given_up, pieces},
    run::Run,
    translate,
};
use crate::{
    flow::Item,
    task::LastingWork,
    upstream::{ExchangeEnd, UpstreamResponse},
    wire::{Message, Parts, message::Outcome},
};

/// Longer than any process lives.
const FAR: Duration = Duration::from_hours(24 * 365 * 10);

impl Modern {
    /// Sends a request to the server, and answers as the server does. With `adoptable` it may become a task.
    ///
    /// # Errors
    /// [`Refused`]
    pub(super) async fn run(
        self: &Arc<Self>,
        mut request: Box<ClientRequest>,
        asks: bool,
        adoptable: Option<Adoptable>,
    ) -> Result<Answer, Refused> {
        self.begin(&mut request)?;
        let lease = self.lease(&request, asks).await?;
        if adoptable.as_ref().is_some_and(Adoptable::is_job) {
            lease.guard.get().begin_to_learn_tools(&request.headers);
        }
        let asked_at = hosts::asked_at(&request, &lease);
        let call = self.start(&request, &lease, asks, adoptable.is_some()).await?;
        let sent = call.begun;
        let after = adoptable.as_ref().map_or(Duration::MAX, Adoptable::after);
        let adopt_at = request.came.checked_add(after).unwrap_or(sent + FAR);
        let heartbeat = heartbeat_of(&request, &call);
        let permit = adoptable.as_ref().and_then(Adoptable::permit);
        let limit = permit.as_ref().and(adoptable.as_ref()).map(|it| it.tool.timeout);
        let timeout = limit.map(|limit| (limit, sent + limit));
        let run = Box::new(Run {
            modern: Arc::clone(self),
            request,
            lease,
            call,
            asked_at,
            adoptable,
            _permit: permit,
            adopt_at,
            timeout,
            becoming: None,
            heartbeat,
            since: sent,
            progress: f64::NEG_INFINITY,
            text: None,
            questions: Vec::new(),
            lacks: Lacks::default(),
            asks,
            sent_again: false,
            to: PieceWriter::default(),
            replies: None,
        });
        answer(run).await
    }
}

/// Returns the answer of a call that was just sent.
///
/// # Errors
/// [`Refused`]
async fn answer(run: Box<Run>) -> Result<Answer, Refused> {
    let mut waiting = Waiting(Some(run));
    let said = waiting.first_word().await;
    let Some(mut run) = waiting.0.take() else { return Err(given_up().into()) };
    if let Some(Item::End(Ok(UpstreamResponse::Whole(response)))) = &said
        && let Some(document) = run.answered(response)
    {
        return Ok(Answer::Whole(StatusCode::OK, document));
    }
    let (to, from) = pieces(&run.modern.capacity, &run.modern.observer);
    run.to = to;
    // Once there is an answer, or the client leaves, what is left of the call goes on in a task of its own.
    let (mut work, mut answer) = (LastingWork::new(run.run(said)), pin!(from.answer()));
    poll_fn(|cx| {
        let is_over = Pin::new(&mut work).poll(cx).is_ready();
        // What the work says it says while it is polled. Waiting for it here would wake this very task once more.
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending if is_over => Poll::Ready(Err(given_up().into())),
            polled => polled,
        }
    })
    .await
}

/// A call whose server has said nothing yet. Where this is dropped with it, because the client has left, it goes on in a
/// task of its own, and is cancelled there.
struct Waiting(Option<Box<Run>>);

impl Waiting {
    /// Waits for what the server says first; `None` where something else is due before.
    async fn first_word(&mut self) -> Option<Item<ExchangeEnd>> {
        let run = self.0.as_mut()?;
        match run.due() {
            Some(due) => timeout_at(due, run.call.exchange.next()).await.ok().flatten(),
            None => run.call.exchange.next().await,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (Some(run), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(run.run(None));
        }
    }
}

impl Run {
    /// Returns the answer of a call to which a legacy server has sent this result, if nothing else is to be done about
    /// it.
    fn answered(&self, response: &Message) -> Option<Parts> {
        let is_result = matches!(response.outcome(), Some((Outcome::Result, _)));
        if self.passes() || !is_result || !self.call.exchange.is_over() {
            return None;
        }
        // What cannot be read of it is told where the call goes on.
        let document = translate::to_modern(response, &self.request, &self.lease.pooled.facts).ok()?;
        Some(hosts::with_tools(document, &self.request, &self.lease, self.asked_at))
    }
}
