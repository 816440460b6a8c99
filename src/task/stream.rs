//! The streams on which a client gets what belongs to its running tasks: a GET stream, or one that waits for a result.

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

/// How long a client may take to reconnect before the questions of a stream are asked on another one.
const RECONNECT_GRACE: Duration = Duration::from_secs(5);

/// The response at the end of a stream.
pub type PendingResponse = Pin<Box<dyn Future<Output = Parts> + Send>>;

/// A request that waits for its task to end.
pub trait WaitingRequest: Send {
    /// Returns the task.
    fn task(&self) -> TaskId;

    /// Returns the response, which comes when the task has ended or was removed; if `watch` is a limit, it comes at
    /// once and names the limit. Called again when the client has reconnected: a request without a connection does not
    /// wait.
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
    /// The request that waits for a result; `None` where this is a GET stream.
    request: Option<Box<dyn WaitingRequest>>,
    /// The response that it waits for, while there is a connection.
    response: Option<PendingResponse>,
    /// Whether the response was delivered.
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
        let task = waiting.as_ref().map(|(request, _)| request.task());
        let id = engine.desk.add_stream(session, task, Arc::clone(&outbox), writer);
        let begin = |(request, watch): (Box<dyn WaitingRequest>, _)| {
            let response = request.response(Ok(watch));
            (request, response)
        };
        let (request, response) = waiting.map(begin).unzip();
        Self {
            engine: Arc::clone(engine),
            owner: session.caller.owner.clone(),
            id,
            outbox,
            writer,
            reader: None,
            request,
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

    /// Returns what the stream of a request that waits for its task delivers: what belongs to the task, as `writer`
    /// writes it, and then the response.
    ///
    /// # Errors
    /// The limit on waiters that is reached.
    pub fn result_stream(
        self: &Arc<Self>,
        session: &Session,
        request: Box<dyn WaitingRequest>,
        writer: &'static dyn TaskWriter,
    ) -> Result<Box<dyn Source>, WaitLimit> {
        let watch = self.watch(&session.caller.owner, request.task())?;
        let outbox = self.desk.new_outbox();
        Ok(Box::new(TaskStream::new(self, session, outbox, Some((request, watch)), writer)))
    }

    /// Starts to watch a task.
    ///
    /// # Errors
    /// The limit on waiting requests that is reached.
    pub fn watch(&self, owner: &Owner, id: TaskId) -> Result<Watch, WaitLimit> {
        self.wakes.watch(owner, id)
    }
}

impl Source for TaskStream {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamItem>> {
        loop {
            match self.outbox.poll_next(cx) {
                Poll::Ready(Some(Item::Message(message))) => {
                    let document = message.bytes().clone();
                    return Poll::Ready(Some(match self.writer.question_of(&message) {
                        Some(id) => StreamItem::Question(id, document),
                        None => StreamItem::Document(document),
                    }));
                }
                Poll::Ready(Some(Item::Pause(pause))) => return Poll::Ready(Some(StreamItem::Pause(pause))),
                Poll::Ready(Some(Item::Silence)) => {}
                Poll::Ready(Some(Item::End(())) | None) => return Poll::Ready(None),
                // Questions that there was no room for are asked when the client has read the rest.
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
        if let (Some(request), None) = (&self.request, &self.response) {
            self.response = Some(request.response(self.engine.watch(&self.owner, request.task())));
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
                tokio::time::sleep(RECONNECT_GRACE).await;
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
