//! A session for tests, with nothing behind it.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize},
    },
};

use bytes::Bytes;
use http::HeaderMap;
use tokio::{
    sync::{RwLock, Semaphore},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Session, Streams, Tasks, inbound};
use crate::{
    config::Rates,
    flow::Capacity,
    identity::Owner,
    limit::Accounts,
    observe::Observer,
    upstream::{Carrier, Link, Outgoing, Sending, Upstream},
    wire::{ClientCapabilities, Version},
};

/// A link that takes everything and answers nothing.
#[derive(Debug, Default)]
struct Nowhere(CancellationToken);

impl Link for Nowhere {
    fn request(&self, _: Outgoing) -> Option<Carrier> {
        None
    }

    fn send(&self, _: Bytes, _: HeaderMap) -> Sending<'_> {
        Box::pin(ready(Ok(())))
    }

    fn listen(&self, _: HeaderMap) {}

    fn agreed(&self, _: Version) {}

    fn lost(&self) -> &CancellationToken {
        &self.0
    }

    fn close(&self, _: HeaderMap) {}
}

/// A session of its own owner.
pub(crate) fn alone() -> Arc<Session> {
    let (id, observer) = (Uuid::new_v4(), Arc::<Observer>::default());
    let (owner, upstream) = (Owner::Session(id), Upstream::unused("/mcp"));
    let capacity = Capacity::new(1024, 1024);
    Arc::new(Session {
        id,
        account: Accounts::new(Rates::default()).of(&owner),
        who: observer.who(None, id, &upstream.id),
        owner,
        version: Version::LATEST,
        tasks: Tasks::Served,
        inbound: inbound(&upstream.id, ClientCapabilities::default(), &capacity, &observer),
        upstream,
        link: Arc::new(Nowhere::default()),
        streams: Streams::new(&capacity, 1, true),
        opened: Instant::now(),
        last_used: AtomicU64::new(0),
        uses: AtomicUsize::new(0),
        ended: AtomicBool::new(false),
        late: Arc::new(Semaphore::new(super::MAX_LATE)),
        lets_tasks_in: Arc::new(RwLock::new(true)),
    })
}
