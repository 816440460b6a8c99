//! `tasks/get` (section "Getting Tasks").

use super::{
    Engine, Reply,
    reply::{NoAnswer, task_id, view},
};
use crate::{session::Session, wire::Message};

impl Engine {
    /// Answers with the task as it is now.
    ///
    /// # Errors
    /// [`NoAnswer`]; not found is an id that is unknown, foreign or expired.
    pub async fn get(&self, session: &Session, request: &Message) -> Result<Reply, NoAnswer> {
        let id = task_id(request)?;
        let task = self.store.get(&session.owner, id).await.ok_or(NoAnswer::NotFound(Some(id)))?;
        if !task.state.is_terminal() {
            self.polled(&task, &session.who);
        }
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
