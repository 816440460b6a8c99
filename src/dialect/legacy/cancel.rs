//! `tasks/cancel` (section "Task Cancellation").

use super::{
    Legacy, Reply,
    reply::{NoResult, task_id, view},
};
use crate::{
    observe::events::Ended,
    session::Session,
    task::NotCancelled,
    wire::{Message, RpcError},
};

impl Legacy {
    /// Cancels the task, also in the upstream, and answers with it. This goes on even if the client leaves.
    ///
    /// # Errors
    /// [`NoResult`]; -32602 for a task in a terminal status.
    pub async fn cancel(&self, session: &Session, request: &Message) -> Result<Reply, NoResult> {
        let cancelled = self.engine.cancel(&session.caller.owner, &session.caller.who, task_id(request)?).await;
        let task = cancelled.map_err(|not_cancelled| match not_cancelled {
            NotCancelled::Missing(missing) => missing.into(),
            NotCancelled::HasEnded(ending) => {
                let status = Ended::from(ending).as_str();
                let why = format!("Cannot cancel task: the task is already in terminal status '{status}'");
                NoResult::Error(RpcError::invalid_params(why))
            }
        })?;
        Ok(Reply::result(request, &view(&task, &self.engine.outlook(&task)).to_raw()))
    }
}
