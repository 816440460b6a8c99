//! What becomes of tasks when the session in which they were created ends.

use std::sync::Arc;

use super::Engine;
use crate::session::Session;

impl Engine {
    /// Admits no more tasks to a session that ends, and ends the tasks that belong to the session alone.
    pub async fn end_session(self: &Arc<Self>, session: &Session) {
        // First this, or a task that is created meanwhile would outlive the session.
        session.refuse_tasks(std::future::ready(true)).await;
        if session.owns_tasks() {
            self.end_owner(&session.caller.owner).await;
        }
    }

    /// Admits no more tasks to a session if at that moment its owner has none and `unneeded` returns true. Returns
    /// whether it does: then the session can end without losing a task.
    pub async fn release(&self, session: &Session, unneeded: impl FnOnce() -> bool) -> bool {
        session.refuse_tasks(async { unneeded() && !self.has_tasks(&session.caller.owner).await }).await
    }

    /// Notes that a session has ended: asks what its client was asked in another session of its owner, and wakes what
    /// waits for [`Engine::changed`].
    pub fn session_ended(&self, session: &Session) {
        self.desk.session_ended(session.id);
        self.calls.wake();
    }
}
