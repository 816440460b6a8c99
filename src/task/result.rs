//! `tasks/result` (section "Retrieving Task Results"): what the call would have returned, once it has.

use std::sync::Arc;

use super::{
    End, Engine, Reply, Task, TaskId,
    feed::{Feed, Response},
    reply::{NoAnswer, not_found, task_id},
    wakes::Watch,
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
        let task = self.find(&session.owner, id).await?;
        if task.state.is_terminal() {
            let end = self.end_of(&session.owner, id).await?;
            return Ok(Reply::Ready(self.collect(
                (id, &task.tool),
                &end,
                request.id().unwrap_or("null"),
                &session.who,
            )));
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
        let watch = self.wakes.watch(owner, id, self.limits.waiters);
        watch.map_err(|limit| RpcError::internal(format!("limit reached: {limit}")))
    }

    /// Returns a task.
    ///
    /// # Errors
    /// [`NoAnswer`]
    pub(super) async fn find(&self, owner: &Owner, id: TaskId) -> Result<Arc<Task>, NoAnswer> {
        let found = self.store.get(owner, id).await.map_err(|why| self.unavailable(&why))?;
        found.ok_or(NoAnswer::NotFound(Some(id)))
    }

    /// Returns the end of a task that has ended.
    async fn end_of(&self, owner: &Owner, id: TaskId) -> Result<End, NoAnswer> {
        let end = self.store.end(owner, id).await.map_err(|why| self.unavailable(&why))?;
        // It may have expired meanwhile.
        end.ok_or(NoAnswer::NotFound(Some(id)))
    }

    fn collect(&self, (task, tool): (TaskId, &str), end: &End, id: &str, who: &Who) -> Parts {
        self.calls.told(task);
        let (status, bytes) = (end.ending().name(), end.bytes());
        self.observer.emit(events::ResultRetrieved { who, task, tool, status, bytes });
        match end {
            End::Result { raw, .. } => {
                let mut edits = Edits::of(raw);
                if let Some(result) = std::str::from_utf8(raw).ok().and_then(|raw| Members::parse(raw).ok()) {
                    relate(&mut edits, &result, task);
                }
                edits.apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#), "}")
            }
            End::Error { raw } => {
                Edits::of(raw).apply_between(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#), "}")
            }
            End::Cancelled => error(id, &RpcError::internal("The task was cancelled and has no result")),
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
            let why = match self.engine.find(&self.owner, self.task).await {
                Ok(task) if task.state.is_terminal() => match self.engine.end_of(&self.owner, self.task).await {
                    Ok(end) => return self.engine.collect((self.task, &task.tool), &end, &self.request, &self.who),
                    Err(none) => none,
                },
                Ok(_) => {
                    watch.changed().await;
                    continue;
                }
                Err(none) => none,
            };
            return match why {
                NoAnswer::NotFound(_) => error(&self.request, &not_found()),
                NoAnswer::Error(why) => error(&self.request, &why),
            };
        }
    }
}

fn error(id: &str, error: &RpcError) -> Parts {
    error_response(id, &error.to_raw()).into()
}
