//! `tasks/cancel` (section "Task Cancellation").

use super::{
    Engine, Reply,
    reply::{task_id, view},
};
use crate::{
    identity::Owner,
    wire::{Message, RpcError},
};

impl Engine {
    /// Cancels the task, answers with it, and has the upstream told.
    ///
    /// # Errors
    /// -32602 for an id that is unknown, foreign or expired, and for a task in a terminal status.
    pub async fn cancel(&self, owner: &Owner, request: &Message) -> Result<Reply, RpcError> {
        let task = self.stop(owner, task_id(request)?).await?;
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
