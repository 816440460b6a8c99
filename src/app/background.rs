//! What runs by the clock while taskgate serves.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    disk::Disk,
    gate::{Lifecycle, Upstreams, http::Tls},
    identity::Identity,
    upstream::Upstream,
};

/// How often [`tick`] runs. A request that waits through one whole interval gets a stream, for its heartbeats.
const TICK: Duration = Duration::from_secs(5);

/// Has heartbeats begin in sessions and for callers without them, and drops streams to which no client came back and
/// sessions whose token was refused.
pub(super) async fn tick(lifecycle: Arc<Lifecycle>, identity: Arc<Identity>, upstreams: Arc<Upstreams>) {
    loop {
        tokio::time::sleep(TICK).await;
        lifecycle.tick(&identity);
        upstreams.all().iter().for_each(|upstream| upstream.pool.tell_silence());
    }
}

/// Ends sessions of callers without sessions that are idle.
pub(super) async fn sweep_pools(upstreams: Arc<Upstreams>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 10).max(SWEEP_AT_MOST_EVERY)).await;
        upstreams.all().iter().for_each(|upstream| upstream.pool.sweep(idle));
    }
}

/// How often a session of a client is looked for that is used no longer.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Has unused sessions leave their places to callers without sessions that wait for one: those of such callers first, and
/// then those of clients.
pub(super) async fn give_way(lifecycle: Arc<Lifecycle>, upstream: Arc<Upstream>) {
    loop {
        upstream.pool.needs_place().await;
        if upstream.pool.give_way() || lifecycle.give_way(&upstream).await {
            upstream.pool.leaves_place();
        } else {
            upstream.pool.unused_within(LOOK_AGAIN).await;
        }
    }
}

/// How often taskgate reads again files that may have changed.
const REFRESH: Duration = Duration::from_secs(2);

/// Reads certificates and secrets again when their files have changed.
pub(super) async fn refresh(upstreams: Arc<Upstreams>, tls: Option<Arc<Tls>>) {
    loop {
        tokio::time::sleep(REFRESH).await;
        let (upstreams, tls) = (Arc::clone(&upstreams), tls.clone());
        // Files may be slow.
        let reading = tokio::task::spawn_blocking(move || {
            upstreams.all().iter().for_each(|upstream| upstream.server.refresh());
            if let Some(tls) = tls {
                tls.refresh();
            }
        });
        let _ = reading.await;
    }
}

/// The least time between two looks for idle sessions.
const SWEEP_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// Ends sessions soon after they have become idle.
pub(super) async fn sweep(lifecycle: Arc<Lifecycle>, idle: Duration) {
    loop {
        tokio::time::sleep((idle / 10).max(SWEEP_AT_MOST_EVERY)).await;
        lifecycle.end_idle(idle).await;
    }
}

/// Gives turns to calls that have waited for room in the store.
pub(super) async fn give_turns(lifecycle: Arc<Lifecycle>, disk: Disk) {
    loop {
        disk.freed().await;
        lifecycle.give_turns();
    }
}

/// How often sessions are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the sessions that are not kept yet, and the last use of all, which may be noted late by a quarter of `idle`.
pub(super) async fn keep(lifecycle: Arc<Lifecycle>, idle: Duration) {
    let mut noted = Instant::now();
    loop {
        tokio::time::sleep(LOOK.min(idle / 4).max(SWEEP_AT_MOST_EVERY)).await;
        lifecycle.save_sessions().await;
        if noted.elapsed() >= idle / 4 {
            noted = Instant::now();
            lifecycle.note_uses();
        }
    }
}
