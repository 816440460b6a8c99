//! What streams towards a client deliver of running tasks: a GET stream, or one that waits for a result.

use std::{
    collections::HashSet,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::runtime::Handle;
use uuid::Uuid;

use super::{Engine, TaskId, TaskWriter, WaitLimit, Watch, desk::StreamId};
use crate::{
    flow::{Attached, Item, Outbox},
    identity::Owner,
    session::{Session, Source, StreamItem},
    wire::Parts,
};

/// How long a client that has been asked something may take to come back before another of its streams is tried.
const COMES_BACK: Duration = Duration::from_secs(5);

/// The response at the end of a stream.
pub type PendingResponse = Pin<Box<dyn Future<Output = Parts> + Send>>;

/// A request that waits for its task to end.
pub trait WaitingRequest: Send {
    /// Returns the task.
    fn task(&self) -> TaskId;

    /// Returns the response, when the task has ended or is gone, or says at once which limit does not let it wait. Called
    /// again where the client has come back: while it is away it does not wait.
    fn response(&self, watch: Result<Watch, WaitLimit>) -> PendingResponse;
}

/// The messages of one stream.
pub(super) struct TaskStream {
    engine: Arc<Engine>,
    owner: Owner,
    id: StreamId,
    outbox: Arc<Outbox<()>>,
    writer: &'static dyn TaskWriter,
    /// Kept while a connection delivers the stream.
    reader: Option<Attached<()>>,
    /// Who waits for a result; `None` where it is a GET stream.
    waiter: Option<Box<dyn WaitingRequest>>,
    /// What is waited for, as long as there is a connection.
    response: Option<PendingResponse>,
    over: bool,
}

impl TaskStream {
    fn new(
        engine: &Arc<Engine>,
        session: &Session,
        outbox: Arc<Outbox<()>>,
        waiting: Option<(Box<dyn WaitingRequest>, Watch)>,
        writer: &'static dyn TaskWriter,
    ) -> Self {
        let task = waiting.as_ref().map(|(waiter, _)| waiter.task());
        let id = engine.desk.add_stream(session, task, Arc::clone(&outbox), writer);
        let begin = |(waiter, watch): (Box<dyn WaitingRequest>, _)| {
            let response = waiter.response(Ok(watch));
            (waiter, response)
        };
        let (waiter, response) = waiting.map(begin).unzip();
        Self {
            engine: Arc::clone(engine),
            owner: session.caller.owner.clone(),
            id,
            outbox,
            writer,
            reader: None,
            waiter,
            response,
            over: false,
        }
    }
}

impl Engine {
    /// Returns what a session's GET stream delivers, as `writer` writes it.
    pub fn get_stream(self: &Arc<Self>, session: &Session, writer: &'static dyn TaskWriter) -> Box<dyn Source> {
        Box::new(TaskStream::new(self, session, Arc::clone(session.outbox()), None, writer))
    }

    /// Returns what a request delivers that waits for its task: what belongs to the task, as `writer` writes it, and then
    /// the response.
    ///
    /// # Errors
    /// The limit on waiters that is reached.
    pub fn result_stream(
        self: &Arc<Self>,
        session: &Session,
        waiter: Box<dyn WaitingRequest>,
        writer: &'static dyn TaskWriter,
    ) -> Result<Box<dyn Source>, WaitLimit> {
        let watch = self.watch(&session.caller.owner, waiter.task())?;
        let outbox = self.desk.new_outbox();
        Ok(Box::new(TaskStream::new(self, session, outbox, Some((waiter, watch)), writer)))
    }

    fn watch(&self, owner: &Owner, id: TaskId) -> Result<Watch, WaitLimit> {
        self.wakes.watch(owner, id)
    }
}

impl Source for TaskStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        loop {
            match self.outbox.poll_next(cx) {
                Poll::Ready(Some(Item::Message(message))) => {
                    let asked = self.writer.question_of(&message);
                    let document = message.bytes().clone();
                    let next =
                        asked.map_or(StreamItem::Document(document.clone()), |id| StreamItem::Question(id, document));
                    return Poll::Ready(Some(next));
                }
                Poll::Ready(Some(Item::Pause(pause))) => return Poll::Ready(Some(StreamItem::Pause(pause))),
                Poll::Ready(Some(Item::Silence)) => {}
                Poll::Ready(Some(Item::End(())) | None) => return Poll::Ready(None),
                // What there was no room for is asked when the client has read the rest.
                Poll::Pending if self.outbox.has_refused() => self.engine.desk.ask_refused(self.id),
                Poll::Pending => break,
            }
        }
        match &mut self.response {
            _ if self.over => Poll::Ready(None),
            None => Poll::Pending,
            Some(response) => response.as_mut().poll(cx).map(|response| {
                self.over = true;
                Some(StreamItem::Document(response.into_bytes()))
            }),
        }
    }

    fn attached(&mut self, resumed: bool) {
        self.reader = Some(self.outbox.attach());
        if let (Some(waiter), None) = (&self.waiter, &self.response) {
            self.response = Some(waiter.response(self.engine.watch(&self.owner, waiter.task())));
        }
        self.engine.desk.attached(self.id, resumed);
    }

    fn detached(&mut self) {
        self.reader = None;
        self.response = None;
        if self.engine.desk.detached(self.id)
            && let Ok(runtime) = Handle::try_current()
        {
            let (engine, id) = (Arc::downgrade(&self.engine), self.id);
            runtime.spawn(async move {
                tokio::time::sleep(COMES_BACK).await;
                if let Some(engine) = engine.upgrade() {
                    engine.desk.client_stays_away(id);
                }
            });
        }
    }

    fn settled(&mut self) -> HashSet<Uuid> {
        self.engine.desk.settled(self.id)
    }
}

impl Drop for TaskStream {
    fn drop(&mut self) {
        self.engine.desk.remove_stream(self.id);
    }
}
