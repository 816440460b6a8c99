//! `tasks/get` (section "Getting Tasks").

use super::{
    Engine, Reply,
    reply::{not_found, task_id, view},
};
use crate::{
    identity::Owner,
    wire::{Message, RpcError},
};

impl Engine {
    /// Answers with the task as it is now.
    ///
    /// # Errors
    /// -32602 for an id that is unknown, foreign or expired.
    pub async fn get(&self, owner: &Owner, request: &Message) -> Result<Reply, RpcError> {
        let id = task_id(request)?;
        let task = self.store.get(owner, id).await.ok_or_else(not_found)?;
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
