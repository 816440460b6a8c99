//! The written form of a session, and what a later process makes of it.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::RwLock;

use super::{Caller, Session, Streams, Tasks};
use crate::{
    config::UpstreamId,
    disk::{self, Disk, SessionWrites},
    flow::{ByteRoom, Capacity},
    identity::{Owner, OwnerKind},
    limit::Accounts,
    observe::Observer,
    upstream::{SavedUpstream, Upstream, UpstreamSession},
    wire::Version,
};

/// The version of the form.
const FORM: u8 = 1;

/// A session as it is kept for a later process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedSession {
    v: u8,
    upstream: String,
    principal: Option<String>,
    version: Version,
    tasks: Tasks,
    declares_tasks: bool,
    server: SavedUpstream,
}

/// What a restored session gets.
#[derive(Debug)]
pub struct SessionRestoring<'a> {
    /// What may wait for readers.
    pub capacity: &'a Arc<Capacity>,
    /// How many streams of one session may answer requests at once.
    pub max_streams: usize,
    /// What each owner has left of its rates.
    pub accounts: &'a Accounts,
    /// Where sessions are kept.
    pub disk: &'a Disk,
    /// The time of the file.
    pub now: u64,
    /// How long a session may seem idle at most: its client has a chance to come back.
    pub max_idle: Duration,
    /// Where to report.
    pub observer: &'a Arc<Observer>,
}

impl SavedSession {
    /// Reads a form.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn read(form: &[u8]) -> Result<Self, String> {
        let saved: Self = serde_json::from_slice(form).map_err(|why| format!("it cannot be read: {why}"))?;
        if saved.v == FORM { Ok(saved) } else { Err(format!("its form is {}, and taskgate reads {FORM}", saved.v)) }
    }

    /// Returns the upstream.
    #[must_use]
    pub fn upstream(&self) -> UpstreamId {
        self.upstream.as_str().into()
    }

    /// Goes on with the session, which was kept as `row`.
    #[must_use]
    pub fn restore(
        &self,
        row: &disk::SavedSession,
        upstream: &Arc<Upstream>,
        with: &SessionRestoring<'_>,
    ) -> Arc<Session> {
        let SessionRestoring { capacity, max_streams, accounts, disk, now, max_idle, observer } = *with;
        let id = row.id;
        let owner = match &self.principal {
            Some(name) => Owner::principal(upstream.id.clone(), name.as_str().into()),
            None => Owner::session(id),
        };
        let who = observer.who(self.principal.as_deref(), id, &upstream.id);
        let (account, client) = (accounts.of(&owner), self.server.client);
        let caller = Caller { owner, who, account, upstream: Arc::clone(upstream), client, session: Some(id) };
        let idle = Duration::from_millis(now.saturating_sub(row.used_at)).min(max_idle);
        let upstream_session = UpstreamSession::restore(upstream, &self.server, false, capacity, observer);
        Arc::new(Session {
            id,
            caller: Arc::new(caller),
            upstream_session: Arc::new(upstream_session.idle_for(idle)),
            version: self.version,
            tasks: self.tasks,
            declares_tasks: self.declares_tasks,
            late: ByteRoom::new(super::MAX_LATE),
            streams: Streams::restored(capacity, max_streams, self.version.interrupts_streams()),
            ended: AtomicBool::new(false),
            admits_tasks: Arc::new(RwLock::new(true)),
            disk: Some(disk.clone()),
            written: Mutex::default(),
            writes: SessionWrites::of_saved(),
            observer: Arc::clone(observer),
        })
    }
}

impl Session {
    /// Returns the written form, and the first request number that it leaves to a later process.
    pub(super) fn form(&self) -> (Vec<u8>, u64) {
        let server = self.upstream_session.saved();
        let next = server.next;
        let principal = match self.caller.owner.kind() {
            OwnerKind::Principal { name, .. } => Some(name.to_string()),
            OwnerKind::Session(_) | OwnerKind::Anyone { .. } => None,
        };
        let saved = SavedSession {
            v: FORM,
            upstream: self.caller.upstream.id.as_str().to_owned(),
            principal,
            version: self.version,
            tasks: self.tasks,
            declares_tasks: self.declares_tasks,
            server,
        };
        let form = serde_json::to_vec(&saved);
        (form.unwrap_or_else(|error| unreachable!("numbers, texts and flags can be written: {error}")), next)
    }
}
