//! Decides which task methods concern taskgate's own tasks, in a session whose server has tasks too.

use super::{
    Legacy,
    reply::{NoResult, task_id},
};
use crate::{identity::Owner, wire::Message};

impl Legacy {
    /// Returns whether taskgate has to answer a task method: it names a task of `owner`, or no id at all. Foreign and
    /// unknown ids get the same answer.
    pub async fn concerns(&self, owner: &Owner, request: &Message) -> bool {
        match task_id(request) {
            Ok(id) => self.engine.may_have(owner, id).await,
            Err(NoResult::NotFound(_)) => false,
            Err(NoResult::Error(_)) => true,
        }
    }
}
