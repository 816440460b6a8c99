//! `tasks/cancel` (section "Task Cancellation").

use std::sync::Arc;

use super::{
    Engine, Lasting, Reply,
    reply::{NoAnswer, task_id, view},
};
use crate::{observe::events, session::Session, wire::Message};

impl Engine {
    /// Cancels the task, answers with it, and has the upstream told; whether the client waits for that or not.
    ///
    /// # Errors
    /// [`NoAnswer`]; not found is an id that is unknown, foreign or expired; -32602 for a task in a terminal status.
    pub async fn cancel(self: &Arc<Self>, session: &Session, request: &Message) -> Result<Reply, NoAnswer> {
        let (engine, id) = (Arc::clone(self), task_id(request)?);
        let (owner, who) = (session.owner.clone(), Arc::clone(&session.who));
        let cancelling = Lasting::new(async move {
            let task = engine.stop(&owner, id).await?;
            engine.observer.emit(events::TaskCancelled { who: &who, task: task.id, tool: &task.tool });
            Ok::<_, NoAnswer>(task)
        });
        let task = cancelling.await?;
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
