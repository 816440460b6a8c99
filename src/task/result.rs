//! `tasks/result` (section "Retrieving Task Results"): what the call would have returned, once it has.

use std::sync::Arc;

use super::{
    Engine, Outcome, Reply, State, Task, TaskId,
    feed::{Feed, Response},
    reply::{NoAnswer, not_found, task_id},
    store::Watch,
};
use crate::{
    identity::Owner,
    observe::{Who, events},
    session::Session,
    upstream::Outbox,
    wire::{Edits, Message, Parts, RpcError, legacy::relate, message::error_response, object::Members},
};

/// A `tasks/result` that waits for its task to end.
#[derive(Clone)]
pub(super) struct Waiter {
    engine: Arc<Engine>,
    owner: Owner,
    who: Arc<Who>,
    pub(super) task: TaskId,
    /// The raw id of the request. The request itself would keep the buffer that it was read into.
    request: Box<str>,
}

impl Engine {
    /// Answers with the outcome, or with what waits for it.
    ///
    /// # Errors
    /// [`NoAnswer`]; not found is an id that is unknown, foreign or expired; the limit of waiters.
    pub async fn result(self: &Arc<Self>, session: &Session, request: Message) -> Result<Reply, NoAnswer> {
        let id = task_id(&request)?;
        let task = self.store.get(&session.owner, id).await.ok_or(NoAnswer::NotFound(Some(id)))?;
        if task.state.is_terminal() {
            return Ok(Reply::Ready(self.collect(&task, request.id().unwrap_or("null"), &session.who)));
        }
        let watch = self.watch(&session.owner, id)?;
        let waiter = Waiter {
            engine: Arc::clone(self),
            owner: session.owner.clone(),
            who: Arc::clone(&session.who),
            task: id,
            request: request.id().unwrap_or("null").into(),
        };
        let outbox = Arc::new(Outbox::new(&self.limits.outbox));
        let feed = Feed::new(self, session, outbox, Some((waiter, watch)));
        Ok(Reply::Wait(Box::new(feed)))
    }

    fn watch(&self, owner: &Owner, id: TaskId) -> Result<Watch, RpcError> {
        let watch = self.store.watch(owner, id, self.limits.waiters);
        watch.map_err(|limit| RpcError::internal(format!("limit reached: {limit}")))
    }

    fn collect(&self, task: &Task, id: &str, who: &Who) -> Parts {
        self.calls.told(task.id);
        let bytes = task.state.outcome().map_or(0, Outcome::len);
        let (tool, status) = (&task.tool, task.state.name());
        self.observer.emit(events::ResultRetrieved { who, task: task.id, tool, status, bytes });
        match &task.state {
            State::Completed(Outcome::Result(raw)) | State::Failed(Outcome::Result(raw)) => {
                let mut edits = Edits::of(raw);
                if let Some(result) = std::str::from_utf8(raw).ok().and_then(|raw| Members::parse(raw).ok()) {
                    relate(&mut edits, &result, task.id);
                }
                edits.apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#), "}")
            }
            State::Completed(Outcome::Error(raw)) | State::Failed(Outcome::Error(raw)) => {
                Edits::of(raw).apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#), "}")
            }
            State::Cancelled => error(id, &RpcError::internal("The task was cancelled and has no result")),
            State::Working | State::InputRequired => error(id, &RpcError::internal("The task has not ended")),
        }
    }
}

impl Waiter {
    /// The response, after the client has come back: one that is away does not wait.
    pub(super) fn again(&self) -> Response {
        match self.engine.watch(&self.owner, self.task) {
            Ok(watch) => self.response(watch),
            Err(limit) => Box::pin(std::future::ready(error(&self.request, &limit))),
        }
    }

    /// The response, when the task has ended or is gone.
    pub(super) fn response(&self, watch: Watch) -> Response {
        Box::pin(self.clone().answer(watch))
    }

    async fn answer(self, mut watch: Watch) -> Parts {
        loop {
            // Looked up after the watch began, so no change is missed.
            match self.engine.store.get(&self.owner, self.task).await {
                None => return error(&self.request, &not_found()),
                Some(task) if task.state.is_terminal() => return self.engine.collect(&task, &self.request, &self.who),
                Some(_) => watch.changed().await,
            }
        }
    }
}

fn error(id: &str, error: &RpcError) -> Parts {
    error_response(id, &error.to_raw()).into()
}
