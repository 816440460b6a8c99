//! `tasks/get` (section "Getting Tasks").

use super::{
    Legacy, Reply,
    reply::{NoResult, task_id, view},
};
use crate::{session::Session, wire::Message};

impl Legacy {
    /// Answers with the task as it is now.
    ///
    /// # Errors
    /// [`NoResult`]
    pub async fn get(&self, session: &Session, request: &Message) -> Result<Reply, NoResult> {
        let polled = self.engine.poll(&session.caller.owner, task_id(request)?, &session.caller.who).await?;
        Ok(Reply::result(request, &view(&polled.task, &polled.outlook).to_raw()))
    }
}
