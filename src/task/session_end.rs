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

    /// Admits no more tasks to a session if at that moment its owner has none and `unneeded`, which is asked last,
    /// returns true. Returns whether it does: then the session can end without losing a task.
    pub async fn release(&self, session: &Session, unneeded: impl FnOnce() -> bool) -> bool {
        session.refuse_tasks(async { !self.has_tasks(&session.caller.owner).await && unneeded() }).await
    }

    /// Notes that a session has ended: asks what its client was asked in another session of its owner, and wakes what
    /// waits for [`Engine::changed`].
    pub fn session_ended(&self, session: &Session) {
        self.desk.session_ended(session.id);
        self.calls.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        session,
        task::{
            Clock,
            store::{MaxKept, MemoryStore},
            tiny,
        },
    };

    #[tokio::test]
    async fn whether_a_session_can_go_is_asked_last_so_that_the_answer_can_take_it_out() {
        let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
        let store = Arc::new(MemoryStore::new(max, clock, Arc::default()));
        let (engine, session) = (Engine::start(store, clock, tiny::unlimited(), Arc::default()), session::alone());
        let mut asked = 0;
        for has_task in [true, false] {
            if has_task {
                tiny::create(&engine, &session).await.expect("room");
            } else {
                engine.end_owner(&session.caller.owner).await;
            }
            let unneeded = || {
                asked += 1;
                true
            };
            assert_eq!(engine.release(&session, unneeded).await, !has_task);
        }
        assert_eq!(asked, 1, "not while it has a task");
    }
}
