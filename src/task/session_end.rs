//! What becomes of tasks when the client's session ends in which they were created.

use std::sync::Arc;

use super::Engine;
use crate::session::Session;

impl Engine {
    /// Lets no more tasks into a session that ends, and ends those that belong to the session alone.
    pub async fn end_session(self: &Arc<Self>, session: &Session) {
        // First this, or a task that is created meanwhile would outlive the session.
        session.refuse_tasks(std::future::ready(true)).await;
        if session.owns_tasks() {
            self.end_owner(&session.caller.owner).await;
        }
    }

    /// Lets no more tasks into a session, if its owner has none and `unneeded` says so at that moment: it can end then
    /// without losing one. Returns whether it can.
    pub async fn release(&self, session: &Session, unneeded: impl FnOnce() -> bool) -> bool {
        session.refuse_tasks(async { unneeded() && !self.has_tasks(&session.caller.owner).await }).await
    }

    /// Notes that a session has ended. Another session of its owner is asked what its client was asked, and who waits for
    /// [`Engine::changed`] looks again.
    pub fn session_ended(&self, session: &Session) {
        self.desk.session_ended(session.id);
        self.calls.look_again();
    }
}
