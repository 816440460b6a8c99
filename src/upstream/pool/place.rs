//! The place of a process that a session needs: where none is free, a session that is unused leaves its own.

use std::{convert::Infallible, ops::ControlFlow, pin::pin, sync::Arc};

use tokio::time::{Instant, sleep_until};

use super::{NoSession, Pooled, SessionPool};
use crate::upstream::{MAKING_ROOM, Server, Vacancy};

impl SessionPool {
    /// Waits for the place of the next session.
    ///
    /// # Errors
    /// [`NoSession`] if there is none soon.
    pub(super) async fn vacancy(&self, server: &Server) -> Result<Vacancy, NoSession> {
        match self.vacancy_or(server, || None::<Infallible>).await? {
            ControlFlow::Continue(vacancy) => Ok(vacancy),
            ControlFlow::Break(never) => match never {},
        }
    }

    /// Waits for the place of the next session, or for what `freed` gives when a session is used no longer.
    ///
    /// # Errors
    /// [`NoSession`] if there is neither soon.
    pub(super) async fn vacancy_or<T>(
        &self,
        server: &Server,
        freed: impl Fn() -> Option<T>,
    ) -> Result<ControlFlow<T, Vacancy>, NoSession> {
        let mut vacancy = server.vacancy().await.map_err(NoSession::failed)?;
        let until = Instant::now() + MAKING_ROOM;
        let (mut gave_way, mut in_crowd) = (false, None);
        while let Some(full) = vacancy.lacking() {
            let full = full.clone();
            let mut unused = pin!(self.unused.notified());
            // Before the look at what is unused.
            unused.as_mut().enable();
            if let Some(free) = freed() {
                return Ok(ControlFlow::Break(free));
            }
            // Once is enough: its process leaves the place soon.
            gave_way = gave_way || self.give_way();
            if !gave_way && in_crowd.is_none() {
                in_crowd = Some(self.crowd.join());
            }
            tokio::select! {
                biased;
                () = vacancy.filled() => {}
                () = unused => {}
                () = sleep_until(until) => return Err(NoSession::failed(full)),
            }
        }
        Ok(ControlFlow::Continue(vacancy))
    }

    /// Ends the session that has been idle for longest, so that its process leaves its place. Returns whether there was
    /// one.
    pub fn give_way(&self) -> bool {
        self.longest_idle().is_some()
    }

    /// Waits for a call that waits for a place which no session of the pool leaves. Each is told of once.
    pub async fn crowded(&self) {
        self.crowd.wish().await;
    }

    /// Returns whether any call waits so.
    #[must_use]
    pub fn is_crowded(&self) -> bool {
        self.crowd.is_there()
    }

    /// Takes out the session that has been idle for longest.
    fn longest_idle(&self) -> Option<Arc<Pooled>> {
        let slots = self.slots.lock();
        let longest = slots.idle_longest(|_| true)?;
        slots.take_idle(|_| true, longest)
    }
}
