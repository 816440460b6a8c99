//! A plain call of a client without tasks, in a session: heartbeats while its server is silent, and the moment at which
//! it becomes a job.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::{Instant, Sleep, sleep_until};

use super::{
    Heartbeat, JobTools, RETRY,
    adopt::{AdoptedJob, JobAdoption, NotAdopted},
    jobs::Told,
};
use crate::{
    config::Tool,
    observe::events,
    session::Session,
    task::{CallSession, Trying},
    upstream::{Call, ServerEvent, for_client},
    wire::{Message, Method, Parts, message::echoed_number, params::progress_token, response::result_response},
};

/// What is due.
#[derive(Debug)]
pub enum Due {
    /// This notification.
    Heartbeat(Bytes),
    /// The call has become this job, for [`PlainCall::becomes`].
    Job(Box<AdoptedJob>),
}

/// A plain call that its host may be too impatient for.
#[derive(Debug)]
pub struct PlainCall {
    tools: Arc<JobTools>,
    session: Arc<Session>,
    headers: HeaderMap,
    /// The raw id of the request.
    id: Box<str>,
    name: Arc<str>,
    tool: Arc<Tool>,
    since: Instant,
    heartbeat: Option<Heartbeat>,
    job_at: Option<Instant>,
    /// Whether a try to make a job of it was counted as a creation.
    counted: bool,
    /// The try to make a job of it.
    trying: Option<Trying<AdoptedJob, NotAdopted>>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The greatest progress of the server.
    progress: f64,
    text: Option<String>,
}

impl PlainCall {
    /// Returns what a call gets of heartbeats and jobs; `None` where its tool has neither.
    #[must_use]
    pub fn new(
        tools: &Arc<JobTools>,
        session: &Arc<Session>,
        request: &Message,
        name: &str,
        headers: &HeaderMap,
    ) -> Option<Box<Self>> {
        let tool = session.caller.upstream.policy.tool(name);
        let job_after = tool.becomes_job_after().filter(|_| !session.declares_tasks);
        if tool.heartbeat.is_none() && job_after.is_none() {
            return None;
        }
        if job_after.is_some() {
            // The words about a job name a tool of taskgate's, and the server may have one of that name.
            session.upstream_session.begin_to_learn_tools(headers);
        }
        let since = Instant::now();
        Some(Box::new(Self {
            tools: Arc::clone(tools),
            session: Arc::clone(session),
            headers: headers.clone(),
            id: request.id_to_answer().into(),
            name: name.into(),
            tool: Arc::clone(tool),
            since,
            heartbeat: None,
            job_at: job_after.map(|after| since + after),
            counted: false,
            trying: None,
            timer: None,
            progress: f64::NEG_INFINITY,
            text: None,
        }))
    }

    /// Returns whether the call may become a job.
    #[must_use]
    pub fn may_become_job(&self) -> bool {
        self.job_at.is_some()
    }

    /// Notes that the call has begun.
    pub fn begin(&mut self, call: &Call) {
        let every = self.tool.heartbeat.zip(call.progress_token.as_deref());
        self.heartbeat = every.map(|(every, token)| Heartbeat::new(every, token));
        if self.may_become_job() && self.tools.engine.outlives_process() {
            // As a job it may have to be resumed.
            let _ = call.exchange.track(None);
        }
        self.set_timer();
    }

    fn set_timer(&mut self) {
        let due = [self.heartbeat.as_ref().map(Heartbeat::due), self.job_at].into_iter().flatten().min();
        self.timer = due.map(|due| Box::pin(sleep_until(due)));
    }

    /// Waits until something is due. [`PlainCall::poll_next`] says what.
    pub fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.timer {
            Some(timer) => timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Polls for what is due. Where the server has said nothing that waits for the client, `is_idle`, it may try to
    /// make a job of the call: an answer that is there needs none.
    pub fn poll_next(&mut self, cx: &mut Context<'_>, is_idle: bool) -> Poll<Due> {
        if let Some(trying) = &mut self.trying
            && let Poll::Ready(tried) = Pin::new(trying).poll(cx)
        {
            self.trying = None;
            match tried {
                Some(Ok(job)) => return Poll::Ready(Due::Job(Box::new(job))),
                Some(Err(why)) => self.not_adopted(why),
                None => self.not_adopted(NotAdopted::NotNow { counted: true }),
            }
        }
        ready!(self.poll_due(cx));
        let now = Instant::now();
        if self.job_at.is_some_and(|at| at <= now) {
            if is_idle {
                self.job_at = None;
                self.set_timer();
                self.trying = Some(self.adopt());
                return self.poll_next(cx, is_idle);
            }
            if self.heartbeat.as_ref().is_none_or(|heartbeat| now < heartbeat.due()) {
                return Poll::Pending;
            }
        }
        let (caller, upstream_session) = (&self.session.caller, &self.session.upstream_session);
        let (elapsed, progress) = (self.since.elapsed(), self.text.as_deref());
        let text = self.tools.in_words(caller, upstream_session, &self.name, elapsed, progress);
        let beat = self.heartbeat.as_mut().map(|heartbeat| heartbeat.beat(&text));
        self.set_timer();
        match beat {
            Some(beat) => Poll::Ready(Due::Heartbeat(beat)),
            None => self.poll_next(cx, is_idle),
        }
    }

    /// Takes in what the server says, and returns what its client gets of it.
    pub fn relay(&mut self, call: &Call, message: &Message) -> Option<Bytes> {
        let number = progress_token(message).filter(|_| message.method() == Method::Progress).and_then(echoed_number);
        if number != Some(call.exchange.number) {
            return for_client(message, call);
        }
        match self.session.upstream_session.event(call, message) {
            ServerEvent::Progress { progress, text, for_client } => {
                if progress > self.progress {
                    (self.progress, self.text) = (progress, Some(text).filter(|text| !text.is_empty()));
                }
                let for_client = for_client?;
                let Some(heartbeat) = &mut self.heartbeat else { return Some(for_client.bytes().clone()) };
                let relayed = heartbeat.relay(progress, &for_client);
                self.set_timer();
                Some(relayed)
            }
            _ => for_client(message, call),
        }
    }

    /// Tries to make a job of the call.
    fn adopt(&self) -> Trying<AdoptedJob, NotAdopted> {
        let (tools, session, headers) = (Arc::clone(&self.tools), Arc::clone(&self.session), self.headers.clone());
        let (name, tool, since) = (Arc::clone(&self.name), Arc::clone(&self.tool), self.since);
        let (progress, text, counted) = (self.progress, self.text.clone(), self.counted);
        Trying::new(async move {
            let Some(admission) = session.admit_task().await else { return Err(NotAdopted::Refused) };
            // Without its session an anonymous client's job could not be reached after a restart.
            if session.owns_tasks()
                && let Err(why) = session.save_first(tools.engine.now()).await
            {
                tools.observer.emit(events::StoreUnavailable { why: &why.0 });
                return Err(NotAdopted::NotNow { counted });
            }
            let job = JobAdoption {
                caller: &session.caller,
                session: &session.upstream_session,
                name,
                tool,
                since,
                progress,
                text,
                call_session: CallSession::Own(session.upstream_session.hold()),
                headers,
                request: None,
                admission: Some(admission),
                counted,
            };
            tools.adopt(job).await
        })
    }

    /// Leaves the call to the job that it has become. Returns the response to it.
    #[must_use]
    pub fn becomes(&self, mut call: Call, job: AdoptedJob) -> Parts {
        call.leave_to_task();
        job.adopted.follow(call, self.session.upstream_session.hold(), self.progress, self.text.clone());
        result_response(&self.id, &Told::done(job.text).to_raw()).into()
    }

    /// Notes that the call goes on as it is.
    fn not_adopted(&mut self, why: NotAdopted) {
        if let NotAdopted::NotNow { counted } = why {
            (self.job_at, self.counted) = (Some(Instant::now() + RETRY), counted);
        }
        self.set_timer();
    }
}
