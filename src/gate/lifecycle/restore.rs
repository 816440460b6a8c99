//! Sessions outlive the process: what a start makes of those that an earlier process has kept, and how they are kept.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use http::HeaderMap;

use super::Lifecycle;
use crate::{
    disk::Unavailable,
    session::{SavedSession, Session, SessionRestoring},
    task::{Restored, Restoring, TaskWriter},
    upstream::Upstream,
};

/// How many sessions are written or dropped at once.
const AT_ONCE: usize = 256;

impl Lifecycle {
    /// Goes on with the sessions and tasks that an earlier process has kept. Called once, before clients are served.
    ///
    /// # Errors
    /// [`Unavailable`]
    pub async fn restore(
        &self,
        upstreams: &[Arc<Upstream>],
        writers: &[&'static dyn TaskWriter],
        idle: Duration,
    ) -> Result<(), Unavailable> {
        let sessions = self.restore_sessions(upstreams, idle).await?;
        let terms = &self.terms;
        let with = Restoring {
            upstreams,
            sessions: &self.sessions,
            writers,
            accounts: &terms.accounts,
            capacity: &terms.outbox,
        };
        let restored = self.engine.restore(&with).await;
        let Restored { waiting, resumed, failed } = restored.map_err(|why| Unavailable(why.0))?;
        if sessions + waiting + resumed + failed > 0 {
            tracing::info!(sessions, waiting, resumed, failed, "went on with what an earlier process has left");
        }
        Ok(())
    }

    async fn restore_sessions(&self, upstreams: &[Arc<Upstream>], idle: Duration) -> Result<usize, Unavailable> {
        let Some(disk) = &self.terms.disk else { return Ok(0) };
        let with = SessionRestoring {
            capacity: &self.terms.outbox,
            max_streams: self.terms.max_streams,
            accounts: &self.terms.accounts,
            disk,
            now: self.engine.now(),
            max_idle: idle / 4 * 3,
            observer: &self.observer,
        };
        let (mut restored, mut dropped) = (Vec::new(), Vec::new());
        for row in disk.load_sessions().await? {
            let saved = match SavedSession::read(&row.value) {
                Ok(saved) => saved,
                Err(why) => {
                    tracing::error!(why, "a session of an earlier process is dropped");
                    dropped.push(row.id);
                    continue;
                }
            };
            let id = saved.upstream();
            let Some(upstream) = upstreams.iter().find(|upstream| upstream.id == id) else {
                tracing::warn!(
                    upstream = id.as_str(),
                    "a session is dropped, as its upstream is not configured any more"
                );
                dropped.push(row.id);
                continue;
            };
            let session = saved.restore(&row, upstream, &with);
            self.observer.emit(crate::observe::events::SessionRestored { who: &session.caller.who });
            self.sessions.restore(Arc::clone(&session));
            restored.push(session);
        }
        let mut dropping = stream::iter(dropped).map(|id| disk.remove_session(id).tried()).buffer_unordered(AT_ONCE);
        while let Some(dropped) = dropping.next().await {
            if let Err(error) = dropped {
                tracing::warn!(%error, "a session that is dropped still stands in the store; it is tried again");
            }
        }
        // Their next requests have new numbers, which the next process must know of.
        for session in save(restored.clone(), with.now).await {
            session.upstream_session.number_by_time(with.now);
        }
        for session in &restored {
            // Where the server wants to know the client, the client's next GET opens the stream.
            session.upstream_session.listen(HeaderMap::new());
        }
        Ok(restored.len())
    }

    /// Writes the sessions that have to be, and notes which were used. To be called every few seconds.
    pub async fn save_sessions(&self) {
        let now = self.engine.now();
        let due = self.sessions.all().into_iter().filter(|session| session.needs_saving());
        // They stay due.
        drop(save(due.collect(), now).await);
    }

    /// Notes for a later process when each session was used last. To be called several times in the time that a session may
    /// be idle.
    pub fn note_uses(&self) {
        let now = self.engine.now();
        for session in self.sessions.all() {
            session.note_use(now);
        }
    }
}

/// Writes sessions, many in one batch. Returns those that could not be written.
async fn save(sessions: Vec<Arc<Session>>, now: u64) -> Vec<Arc<Session>> {
    let saving = stream::iter(sessions).map(|session| async move { (session.save(now).await, session) });
    let mut saving = saving.buffer_unordered(AT_ONCE);
    let mut unsaved = Vec::new();
    while let Some((saved, session)) = saving.next().await {
        if let Err(why) = saved {
            tracing::warn!(%why, "a session is not kept yet");
            unsaved.push(session);
        }
    }
    unsaved
}
