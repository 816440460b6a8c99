//! Which task methods are about taskgate's own tasks, in a session whose server has tasks too.

use super::{
    Engine,
    reply::{NoAnswer, task_id},
};
use crate::{identity::Owner, wire::Message};

impl Engine {
    /// Returns whether a task method has to be answered here: it names a task of `owner`, or no id at all. Foreign and unknown
    /// ids are not told apart.
    pub async fn concerns(&self, owner: &Owner, request: &Message) -> bool {
        match task_id(request) {
            // While the store is unavailable it may be one.
            Ok(id) => self.store.get(owner, id).await.map_or(true, |task| task.is_some()),
            Err(NoAnswer::NotFound(_)) => false,
            Err(NoAnswer::Error(_)) => true,
        }
    }
}
