//! Sessions outlive the process: what a start makes of those that an earlier process has kept, and how they are kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream};
use http::HeaderMap;
use uuid::Uuid;

use super::Lifecycle;
use crate::{
    config::UpstreamId,
    disk::{self, Unavailable},
    identity::{Owner, OwnerKind},
    session::{SavedSession, Session, SessionRestoring},
    task::{Restored, Restoring, TaskWriter},
    upstream::Upstream,
};

/// The sessions of an earlier process.
#[derive(Debug, Default)]
struct RestoredSessions {
    /// How many go on.
    count: usize,
    /// Those that stay in the file for a later start, as their upstreams are not configured in this one.
    set_aside: HashMap<Uuid, UpstreamId>,
}

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
        let RestoredSessions { count: sessions, set_aside } = self.restore_sessions(upstreams, idle).await?;
        let terms = &self.terms;
        let with = Restoring {
            upstreams,
            sessions: &self.sessions,
            set_aside: &set_aside,
            writers,
            accounts: &terms.accounts,
            capacity: &terms.outbox,
        };
        let restored = self.engine.restore(&with).await;
        let Restored { waiting, resumed, failed } = restored.map_err(|why| Unavailable(why.0))?;
        self.report_set_aside(upstreams, &set_aside).await?;
        if sessions + waiting + resumed + failed > 0 {
            tracing::info!(sessions, waiting, resumed, failed, "went on with what an earlier process has left");
        }
        Ok(())
    }

    async fn restore_sessions(
        &self,
        upstreams: &[Arc<Upstream>],
        idle: Duration,
    ) -> Result<RestoredSessions, Unavailable> {
        let Some(disk) = &self.terms.disk else { return Ok(RestoredSessions::default()) };
        let with = SessionRestoring {
            capacity: &self.terms.outbox,
            max_streams: self.terms.max_streams,
            accounts: &self.terms.accounts,
            disk,
            now: self.engine.now(),
            max_idle: idle / 4 * 3,
            observer: &self.observer,
        };
        let (mut restored, mut dropped, mut set_aside) = (Vec::new(), Vec::new(), HashMap::new());
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
                if self.is_over(&row, with.now, idle).await {
                    dropped.push(row.id);
                } else {
                    set_aside.insert(row.id, id);
                }
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
        Ok(RestoredSessions { count: restored.len(), set_aside })
    }

    /// Returns whether a session that is not restored would have ended as idle: without tasks of its own that are kept.
    async fn is_over(&self, row: &disk::SavedSession, now: u64, idle: Duration) -> bool {
        let unused = Duration::from_millis(now.saturating_sub(row.used_at));
        unused >= idle && !self.engine.has_tasks(&Owner::session(row.id)).await
    }

    /// Tells the operator which upstreams are not configured though the file has sessions or tasks of them.
    async fn report_set_aside(
        &self,
        upstreams: &[Arc<Upstream>],
        set_aside: &HashMap<Uuid, UpstreamId>,
    ) -> Result<(), Unavailable> {
        let mut missing: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for id in set_aside.values() {
            missing.entry(id.as_str()).or_default().0 += 1;
        }
        let owners = self.engine.owners().await.map_err(|why| Unavailable(why.0))?;
        for (owner, tasks) in &owners {
            let id = match owner.kind() {
                OwnerKind::Session(session) => set_aside.get(session),
                OwnerKind::Anyone { upstream } | OwnerKind::Principal { upstream, .. } => Some(upstream),
            };
            if let Some(id) = id.filter(|id| !upstreams.iter().any(|upstream| upstream.id == **id)) {
                missing.entry(id.as_str()).or_default().1 += tasks;
            }
        }
        for (upstream, (sessions, tasks)) in missing {
            tracing::warn!(
                upstream,
                sessions,
                tasks,
                "an upstream with sessions or tasks is not configured any more; they are kept until they are over, and can be \
                 used again when it is configured at the next start"
            );
        }
        Ok(())
    }

    /// Writes the sessions that have to be, and notes which were used. To be called every few seconds.
    pub async fn save_sessions(&self) {
        let now = self.engine.now();
        let due = self.sessions.all().into_iter().filter(|session| session.needs_saving());
        // They stay due.
        drop(save(due.collect(), now).await);
    }

    /// Notes for a later process when each session was used last. To be called several times in the time that a session
    /// may be idle.
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
