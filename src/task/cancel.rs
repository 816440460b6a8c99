//! `tasks/cancel` (section "Task Cancellation").

use super::{
    Engine, Reply,
    reply::{NoAnswer, task_id, view},
};
use crate::{observe::events, session::Session, wire::Message};

impl Engine {
    /// Cancels the task, answers with it, and has the upstream told.
    ///
    /// # Errors
    /// [`NoAnswer`]; not found is an id that is unknown, foreign or expired; -32602 for a task in a terminal status.
    pub async fn cancel(&self, session: &Session, request: &Message) -> Result<Reply, NoAnswer> {
        let task = self.stop(&session.owner, task_id(request)?).await?;
        self.observer.emit(events::TaskCancelled { who: &session.who, task: task.id, tool: &task.tool });
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
