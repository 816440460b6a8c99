//! The place of a new session: within the limits on sessions, and that of its process. Where no process may be started,
//! a session that is unused leaves its own.

use std::{convert::Infallible, ops::ControlFlow, pin::pin, sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until, timeout};

use super::{NoSession, PoolKey, Pooled, SessionPool, room::Room};
use crate::upstream::{MAKING_ROOM, Server, Vacancy};

/// The place of a new session.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) room: Room,
    pub(super) vacancy: Vacancy,
}

impl SessionPool {
    /// Waits for the place of a new session.
    ///
    /// # Errors
    /// [`NoSession`] if there is none soon.
    pub(super) async fn place(&self, server: &Server, key: &PoolKey) -> Result<Place, NoSession> {
        match self.place_or(server, key, soon(), || None::<Infallible>).await? {
            ControlFlow::Continue(place) => Ok(place),
            ControlFlow::Break(never) => match never {},
        }
    }

    /// Waits for the place of a new session, or for what `freed` gives when a session is used no longer.
    ///
    /// # Errors
    /// [`NoSession`] if there is neither at `until`.
    pub(super) async fn place_or<T>(
        &self,
        server: &Server,
        key: &PoolKey,
        until: Instant,
        freed: impl Fn() -> Option<T>,
    ) -> Result<ControlFlow<T, Place>, NoSession> {
        // Before anything else: where a limit refuses this session, no other one may end for it.
        let room = self.total.room(&key.owner)?;
        let vacancy = self.vacancy_or(server, until, freed).await?;
        Ok(vacancy.map_continue(|vacancy| Place { room, vacancy }))
    }

    /// Waits for the place of a process.
    ///
    /// # Errors
    /// [`NoSession`] if there is none soon.
    pub(super) async fn vacancy(&self, server: &Server) -> Result<Vacancy, NoSession> {
        match self.vacancy_or(server, soon(), || None::<Infallible>).await? {
            ControlFlow::Continue(vacancy) => Ok(vacancy),
            ControlFlow::Break(never) => match never {},
        }
    }

    async fn vacancy_or<T>(
        &self,
        server: &Server,
        until: Instant,
        freed: impl Fn() -> Option<T>,
    ) -> Result<ControlFlow<T, Vacancy>, NoSession> {
        let mut vacancy = server.vacancy().await.map_err(NoSession::failed)?;
        if vacancy.lacking().is_none() {
            return Ok(ControlFlow::Continue(vacancy));
        }
        let in_crowd = self.crowd.join();
        while let Some(full) = vacancy.lacking() {
            let full = full.clone();
            let mut unused = pin!(self.unused.notified());
            // Before the look at what is unused.
            unused.as_mut().enable();
            if let Some(free) = freed() {
                return Ok(ControlFlow::Break(free));
            }
            tokio::select! {
                biased;
                () = vacancy.filled() => {}
                () = unused => {}
                () = sleep_until(until) => return Err(NoSession::failed(full)),
            }
        }
        in_crowd.got_place();
        Ok(ControlFlow::Continue(vacancy))
    }

    /// Waits until more calls wait for a process than sessions have ended for them.
    pub async fn needs_place(&self) {
        self.crowd.needs_place().await;
    }

    /// Notes that a session has ended for a call that waits, in the pool or elsewhere.
    pub fn leaves_place(&self) {
        self.crowd.leaves();
    }

    /// Waits until a session is used no longer, at most that long.
    pub async fn unused_within(&self, limit: Duration) {
        let _ = timeout(limit, self.unused.notified()).await;
    }

    /// Ends the session that has been idle for longest, so that its process leaves its place. Returns whether there was
    /// one.
    pub fn give_way(&self) -> bool {
        // One that is lost has no process any more.
        std::iter::from_fn(|| self.longest_idle()).any(|pooled| !pooled.session.is_lost())
    }

    /// Takes out the session that has been idle for longest.
    fn longest_idle(&self) -> Option<Arc<Pooled>> {
        let slots = self.slots.lock();
        let longest = slots.idle_longest(|_| true)?;
        slots.take_idle(|_| true, longest)
    }
}

/// Returns until when a call waits for a place that it begins to wait for now.
pub(super) fn soon() -> Instant {
    Instant::now() + MAKING_ROOM
}
