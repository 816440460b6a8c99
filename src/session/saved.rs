//! The written form of a session, and what a later process makes of it.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::{RwLock, Semaphore};
use uuid::Uuid;

use super::{Caller, Session, SessionArchive, Streams, Tasks};
use crate::{
    config::UpstreamId,
    flow::Capacity,
    identity::Owner,
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
    server: SavedUpstream,
    /// When it was used last, in milliseconds since the Unix epoch.
    used: u64,
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
    pub archive: &'a Arc<dyn SessionArchive>,
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

    /// Goes on with the session, which had this id.
    #[must_use]
    pub fn restore(&self, id: Uuid, upstream: &Arc<Upstream>, with: &SessionRestoring<'_>) -> Arc<Session> {
        let SessionRestoring { capacity, max_streams, accounts, archive, max_idle, observer } = *with;
        let owner = match &self.principal {
            Some(name) => Owner::Principal { upstream: upstream.id.clone(), name: name.as_str().into() },
            None => Owner::Session(id),
        };
        let who = observer.who(self.principal.as_deref(), id, &upstream.id);
        let (account, client) = (accounts.of(&owner), self.server.client);
        let caller = Caller { owner, who, account, upstream: Arc::clone(upstream), client, session: Some(id) };
        let idle = Duration::from_millis(unix_millis().saturating_sub(self.used)).min(max_idle);
        let upstream_session = UpstreamSession::restore(upstream, &self.server, capacity, observer);
        Arc::new(Session {
            id,
            caller: Arc::new(caller),
            upstream_session: Arc::new(upstream_session.idle_for(idle)),
            version: self.version,
            tasks: self.tasks,
            late: Arc::new(Semaphore::new(super::MAX_LATE)),
            streams: Streams::new(capacity, max_streams, self.version.interrupts_streams()),
            ended: AtomicBool::new(false),
            admits_tasks: Arc::new(RwLock::new(true)),
            archive: Some(Arc::clone(archive)),
            written: Mutex::default(),
            observer: Arc::clone(observer),
        })
    }
}

impl Session {
    /// Returns the written form, and from which number on requests are a later process's.
    pub(super) fn form(&self) -> (Vec<u8>, u64) {
        let server = self.upstream_session.saved();
        let next = server.next;
        let principal = match &self.caller.owner {
            Owner::Principal { name, .. } => Some(name.to_string()),
            Owner::Session(_) | Owner::Anyone { .. } => None,
        };
        let idle = u64::try_from(self.idle().as_millis()).unwrap_or(u64::MAX);
        let saved = SavedSession {
            v: FORM,
            upstream: self.caller.upstream.id.as_str().to_owned(),
            principal,
            version: self.version,
            tasks: self.tasks,
            server,
            used: unix_millis().saturating_sub(idle),
        };
        // Numbers, texts and flags can always be written.
        (serde_json::to_vec(&saved).unwrap_or_default(), next)
    }
}

fn unix_millis() -> u64 {
    // A clock before 1970 is a clock that was never set.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
