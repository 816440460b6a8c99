//! `tasks/get` (section "Getting Tasks").

use super::{
    Ending, Engine, Reply, State,
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
        let task = self.find(&session.owner, id).await?;
        match task.state {
            State::Working | State::InputRequired => self.polled(&task, &session.who),
            // Many clients never ask for the result of a task that has none.
            State::Ended(Ending::ErrorResult | Ending::Error | Ending::Cancelled) => self.calls.told(id),
            State::Ended(Ending::Result) => {}
        }
        Ok(Reply::result(request, &view(&task).to_raw()))
    }
}
