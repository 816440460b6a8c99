//! Sessions are kept for the next process while they change.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::gate::Lifecycle;

/// How often sessions are looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the sessions that are not kept yet, and the last use of all, which may be noted late by a quarter of `idle`.
pub(super) async fn keep(lifecycle: Arc<Lifecycle>, idle: Duration) {
    let mut noted = Instant::now();
    loop {
        tokio::time::sleep(LOOK.min(idle / 4).max(Duration::from_millis(20))).await;
        lifecycle.save_sessions().await;
        if noted.elapsed() >= idle / 4 {
            noted = Instant::now();
            lifecycle.note_uses();
        }
    }
}
