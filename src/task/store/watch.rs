//! Who waits for a task to change.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Limit;
use crate::task::TaskId;

/// The tasks that somebody watches; the others cost nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchers(Arc<Mutex<HashMap<TaskId, watch::Sender<()>>>>);

/// One who watches a task.
#[derive(Debug)]
pub struct Watch {
    id: TaskId,
    changes: watch::Receiver<()>,
    watchers: Watchers,
}

impl Watchers {
    /// Starts to watch.
    pub(super) fn watch(&self, id: TaskId, max: usize) -> Result<Watch, Limit> {
        let mut map = self.0.lock();
        let sender = map.entry(id).or_insert_with(|| watch::Sender::new(()));
        if sender.receiver_count() >= max {
            return Err(Limit::Waiters(max));
        }
        Ok(Watch { id, changes: sender.subscribe(), watchers: self.clone() })
    }

    /// Wakes everyone who watches `id`.
    pub(super) fn wake(&self, id: TaskId) {
        if let Some(sender) = self.0.lock().get(&id) {
            sender.send_replace(());
        }
    }
}

impl Watch {
    /// Waits for a change since the last call, or since the watch began.
    pub async fn changed(&mut self) {
        // The sender lives as long as this receiver.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut map = self.watchers.0.lock();
        if map.get(&self.id).is_some_and(|sender| sender.receiver_count() <= 1) {
            map.remove(&self.id);
        }
    }
}
