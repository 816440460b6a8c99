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

use super::{
    Engine,
    desk::{ListenerId, question_id},
    result::Waiter,
    wakes::Watch,
};
use crate::{
    session::{Next, Session, Source},
    upstream::{Attached, Item, Outbox},
    wire::{Kind, Parts},
};

/// How long a client that has been asked something may take to come back before another of its streams is tried.
const COMES_BACK: Duration = Duration::from_secs(5);

/// The response at the end of a stream.
pub(super) type Response = Pin<Box<dyn Future<Output = Parts> + Send>>;

/// The messages of one stream.
pub(super) struct Feed {
    engine: Arc<Engine>,
    id: ListenerId,
    outbox: Arc<Outbox<()>>,
    /// Kept while a connection delivers the stream.
    reader: Option<Attached<()>>,
    /// Who waits for a result; `None` where it is a GET stream.
    waiter: Option<Waiter>,
    /// What is waited for, as long as there is a connection.
    response: Option<Response>,
    over: bool,
}

impl Feed {
    pub(super) fn new(
        engine: &Arc<Engine>,
        session: &Session,
        outbox: Arc<Outbox<()>>,
        waiting: Option<(Waiter, Watch)>,
    ) -> Self {
        let task = waiting.as_ref().map(|(waiter, _)| waiter.task);
        let id = engine.desk.register(session, task, Arc::clone(&outbox));
        let (waiter, response) = waiting.map(|(waiter, watch)| (waiter.clone(), waiter.response(watch))).unzip();
        Self { engine: Arc::clone(engine), id, outbox, reader: None, waiter, response, over: false }
    }
}

impl Engine {
    /// What a session's GET stream delivers.
    pub fn listener(self: &Arc<Self>, session: &Session) -> Box<dyn Source> {
        Box::new(Feed::new(self, session, Arc::clone(session.listener()), None))
    }
}

impl Source for Feed {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Next>> {
        loop {
            match self.outbox.poll_next(cx) {
                Poll::Ready(Some(Item::Message(message))) => {
                    let asked = message.id().filter(|_| message.kind() == Kind::Request).and_then(question_id);
                    let document = message.bytes().clone();
                    let next = asked.map_or(Next::Document(document.clone()), |id| Next::Question(id, document));
                    return Poll::Ready(Some(next));
                }
                Poll::Ready(Some(Item::Pause(pause))) => return Poll::Ready(Some(Next::Pause(pause))),
                Poll::Ready(Some(Item::Silence)) => {}
                Poll::Ready(Some(Item::End(())) | None) => return Poll::Ready(None),
                // What there was no room for is asked when the client has read the rest.
                Poll::Pending if self.outbox.has_refused() => self.engine.desk.has_room(self.id),
                Poll::Pending => break,
            }
        }
        match &mut self.response {
            _ if self.over => Poll::Ready(None),
            None => Poll::Pending,
            Some(response) => response.as_mut().poll(cx).map(|response| {
                self.over = true;
                Some(Next::Document(response.into_bytes()))
            }),
        }
    }

    fn attached(&mut self, resumed: bool) {
        self.reader = Some(self.outbox.attach());
        if let (Some(waiter), None) = (&self.waiter, &self.response) {
            self.response = Some(waiter.again());
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
                    engine.desk.stays_away(id);
                }
            });
        }
    }

    fn settled(&mut self) -> HashSet<Uuid> {
        self.engine.desk.settled(self.id)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.engine.desk.deregister(self.id);
    }
}
