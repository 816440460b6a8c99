//! The tools for jobs in a session: `wait_for_job` has a stream, on which the client is asked what a job's server asks.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    JobTools,
    jobs::{JobPlace, Told},
    wait::Wait,
};
use crate::{
    dialect::legacy::{asked, withdrawn},
    session::{Session, Source, StreamItem},
    task::Engine,
    upstream::{JobTool, JobToolNames},
    wire::{
        Edits, Message, Method, Parts,
        message::Outcome,
        object::Members,
        response::{edited_response, result_response},
    },
};

/// How many messages may wait for a client that reads slowly.
const AHEAD: usize = 16;

/// What answers a call of a tool for jobs.
pub enum HostReply {
    /// A response that is ready.
    Ready(Parts),
    /// A stream that ends with the response.
    Wait(Box<dyn Source>),
}

/// Returns whether a request waits for jobs, by the names that are known in its session.
#[must_use]
pub fn waits_for_jobs(session: &Session, request: &Message) -> bool {
    if request.method() != Method::ToolsCall || !session.gets_jobs() {
        return false;
    }
    let params = request.params().and_then(|params| Members::parse(params).ok());
    let name = params.as_ref().and_then(|params| params.text("name"));
    let called = name.and_then(|name| session.upstream_session.tools().called(&name));
    called.is_some_and(|(tool, _)| tool == JobTool::Wait)
}

impl JobTools {
    /// Answers a call of a tool for jobs in a session.
    pub async fn answer(
        self: &Arc<Self>,
        session: &Arc<Session>,
        request: &Message,
        (tool, names): (JobTool, JobToolNames),
    ) -> HostReply {
        let (caller, tools) = (Arc::clone(&session.caller), Arc::clone(session.upstream_session.tools()));
        let id: Box<str> = request.id_to_answer().into();
        let ready = |told: &Told| HostReply::Ready(result_response(&id, &told.to_raw()).into());
        let place = JobPlace { caller, tools: Some(tools), names };
        let mut wait = match self.ask(&place, request, tool).await {
            Ok(wait) => wait,
            Err(told) => return ready(&told),
        };
        // What is open is asked, however short the wait.
        if wait.is_over().await && wait.questions().is_empty() {
            return HostReply::Ready(respond(&id, &wait.answer().await));
        }
        let (items, from) = mpsc::channel(AHEAD);
        let asked = Arc::new(Asked { engine: Arc::clone(&self.engine), session: session.id, state: Mutex::default() });
        let work = Work { wait, id, place, items, asked: Arc::clone(&asked) };
        HostReply::Wait(Box::new(WaitStream {
            items: from,
            work: Box::pin(work.run()),
            asked,
            last: None,
            over: false,
        }))
    }
}

fn respond(id: &str, raw: &Bytes) -> Parts {
    edited_response(id, Outcome::Result, Edits::of(raw))
}

/// The questions that are asked on one stream.
#[derive(Debug)]
struct Asked {
    engine: Arc<Engine>,
    session: Uuid,
    state: Mutex<AskedState>,
}

#[derive(Debug, Default)]
struct AskedState {
    /// Each with what tells in which session it is answered.
    open: HashMap<Uuid, Arc<OnceLock<Uuid>>>,
    /// Those that need no answer any more since the stream has told them last.
    settled: HashSet<Uuid>,
}

impl Asked {
    /// Notes whether the questions may not have reached the client: those on a stream that breaks before its end.
    fn may_be_lost(&self, may_be: bool) {
        for question in self.state.lock().open.keys() {
            self.engine.may_be_lost_in(self.session, *question, may_be);
        }
    }
}

/// What a call that waits does until it is answered.
struct Work {
    wait: Wait,
    id: Box<str>,
    place: JobPlace,
    items: mpsc::Sender<StreamItem>,
    asked: Arc<Asked>,
}

impl Work {
    async fn run(mut self) -> Parts {
        while !self.wait.is_over().await {
            self.ask().await;
            if let Some(progress) = self.wait.progress() {
                let _ = self.items.send(StreamItem::Document(progress)).await;
            }
            self.wait.pause().await;
        }
        self.ask().await;
        respond(&self.id, &self.wait.answer().await)
    }

    /// Asks what is open and was not asked in this session, and withdraws what need not be answered any more.
    async fn ask(&mut self) {
        let open = self.wait.questions();
        let still: HashSet<Uuid> = open.iter().map(|question| question.id).collect();
        let closed: Vec<_> = {
            let AskedState { open, settled } = &mut *self.asked.state.lock();
            let closed = open.extract_if(|id, _| !still.contains(id)).collect::<Vec<_>>();
            settled.extend(closed.iter().map(|(id, _)| id));
            closed
        };
        // Only a request that is still in progress may be cancelled.
        for (id, _) in closed.iter().filter(|(_, answered_in)| answered_in.get() != Some(&self.asked.session)) {
            let _ = self.items.send(StreamItem::Document(withdrawn(*id))).await;
        }
        for question in open {
            let owner = &self.place.caller.owner;
            let Some(document) = asked(question.id, &question.request) else { continue };
            let asked = self.asked.engine.ask_in(self.asked.session, owner, question.job, question.id);
            if let Some(answered_in) = asked {
                self.asked.state.lock().open.insert(question.id, answered_in);
                let _ = self.items.send(StreamItem::Question(question.id, document)).await;
            }
        }
    }
}

/// The stream of one call that waits.
struct WaitStream {
    items: mpsc::Receiver<StreamItem>,
    work: Pin<Box<dyn Future<Output = Parts> + Send>>,
    asked: Arc<Asked>,
    /// The response, while what was sent before it has not been taken.
    last: Option<Bytes>,
    over: bool,
}

impl Source for WaitStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        loop {
            // Not polled for: a poll may be put off though something is there, and the work below would go first.
            if let Ok(item) = self.items.try_recv() {
                return Poll::Ready(Some(item));
            }
            if self.over {
                return Poll::Ready(None);
            }
            if let Some(last) = self.last.take() {
                self.over = true;
                return Poll::Ready(Some(StreamItem::Document(last)));
            }
            match self.work.as_mut().poll(cx) {
                Poll::Ready(document) => self.last = Some(document.into_bytes()),
                // What it has sent now comes first.
                Poll::Pending if !self.items.is_empty() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn attached(&mut self, resumed: bool) {
        if resumed {
            // It is sent again.
            self.asked.may_be_lost(false);
        }
    }

    fn detached(&mut self) {
        if !self.over {
            self.asked.may_be_lost(true);
        }
    }

    fn settled(&mut self) -> HashSet<Uuid> {
        std::mem::take(&mut self.asked.state.lock().settled)
    }
}

impl Drop for WaitStream {
    fn drop(&mut self) {
        if !self.over {
            self.asked.may_be_lost(true);
        }
    }
}
