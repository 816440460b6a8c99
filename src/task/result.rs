//! `tasks/result` (section "Retrieving Task Results"): what the call would have returned, once it has.

use std::sync::Arc;

use super::{
    Engine, Outcome, Reply, State, Task,
    reply::{not_found, task_id},
    store::Watch,
};
use crate::{
    identity::Owner,
    observe::events,
    wire::{Edits, Message, Parts, RpcError, legacy::relate, message::error_response, object::Members},
};

/// A `tasks/result` that waits for its task to end.
#[derive(Debug)]
pub struct Waiter {
    engine: Arc<Engine>,
    owner: Owner,
    task: Arc<Task>,
    request: Message,
    watch: Watch,
}

impl Engine {
    /// Answers with the outcome, or with what waits for it.
    ///
    /// # Errors
    /// -32602 for an id that is unknown, foreign or expired; the limit of waiters.
    pub async fn result(self: &Arc<Self>, owner: &Owner, request: Message) -> Result<Reply, RpcError> {
        let id = task_id(&request)?;
        let task = self.store.get(owner, id).await.ok_or_else(not_found)?;
        if task.state.is_terminal() {
            return Ok(Reply::Ready(self.collect(&task, &request)));
        }
        let watch = self.store.watch(id, self.limits.max_waiters);
        let watch = watch.map_err(|limit| RpcError::internal(format!("limit reached: {limit}")))?;
        let engine = Arc::clone(self);
        Ok(Reply::Wait(Box::new(Waiter { engine, owner: owner.clone(), task, request, watch })))
    }

    fn collect(&self, task: &Task, request: &Message) -> Parts {
        self.observer.emit(events::ResultCollected { task: task.id });
        let id = request.id().unwrap_or("null");
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
            State::Working => error(id, &RpcError::internal("The task has not ended")),
        }
    }
}

impl Waiter {
    /// The response, when the task has ended or is gone.
    pub async fn answer(mut self) -> Parts {
        loop {
            // Looked up after the watch began, so no change is missed.
            match self.engine.store.get(&self.owner, self.task.id).await {
                None => return error(self.request.id().unwrap_or("null"), &not_found()),
                Some(task) if task.state.is_terminal() => return self.engine.collect(&task, &self.request),
                Some(_) => self.watch.changed().await,
            }
        }
    }
}

fn error(id: &str, error: &RpcError) -> Parts {
    error_response(id, &error.to_raw()).into()
}
