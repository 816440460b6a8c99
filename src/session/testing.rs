//! A session for tests, with nothing behind it.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::RwLock;
use uuid::Uuid;

use super::{Caller, Session, Streams, Tasks};
use crate::{
    config::Rates,
    disk::SessionWrites,
    flow::{ByteRoom, Capacity},
    identity::Owner,
    limit::Accounts,
    observe::Observer,
    upstream::{Upstream, UpstreamSession},
    wire::{ClientCapabilities, Version},
};

/// Returns a session that is the owner of its tasks.
pub(crate) fn alone() -> Arc<Session> {
    let id = Uuid::new_v4();
    with(id, Owner::session(id))
}

/// Returns a session whose tasks are those of `owner`.
pub(crate) fn of(owner: Owner) -> Arc<Session> {
    with(Uuid::new_v4(), owner)
}

fn with(id: Uuid, owner: Owner) -> Arc<Session> {
    let (observer, upstream) = (Arc::<Observer>::default(), Upstream::unused("/mcp"));
    let caller = Caller {
        account: Accounts::new(Rates::default()).of(&owner),
        who: observer.who(None, id, &upstream.id),
        owner,
        upstream,
        client: ClientCapabilities::default(),
        session: Some(id),
    };
    Arc::new(Session {
        id,
        caller: Arc::new(caller),
        upstream_session: UpstreamSession::nowhere("/mcp"),
        version: Version::LATEST,
        tasks: Tasks::Served,
        declares_tasks: false,
        streams: Streams::new(&Capacity::new(1024, 1024), 1, true),
        ended: AtomicBool::new(false),
        late: ByteRoom::new(super::MAX_LATE),
        admits_tasks: Arc::new(RwLock::new(true)),
        disk: None,
        written: parking_lot::Mutex::default(),
        writes: SessionWrites::default(),
        observer,
    })
}
