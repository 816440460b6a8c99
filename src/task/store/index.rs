//! The tasks of each owner in the order of their creation, and the counts that admit new ones.

use std::collections::{BTreeMap, HashMap};

use super::Limit;
use crate::{identity::Owner, task::TaskId};

/// Who has which tasks.
#[derive(Debug, Default)]
pub(super) struct Index {
    owners: HashMap<Owner, BTreeMap<u64, TaskId>>,
    places: HashMap<TaskId, u64>,
    next: u64,
}

impl Index {
    /// Gives a task its place, if the limits allow.
    pub(super) fn admit(&mut self, owner: &Owner, id: TaskId, max_per_owner: usize, max: usize) -> Result<(), Limit> {
        if self.places.len() >= max {
            return Err(Limit::Tasks(max));
        }
        if self.owners.get(owner).is_some_and(|tasks| tasks.len() >= max_per_owner) {
            return Err(Limit::TasksPerOwner(max_per_owner));
        }
        let place = self.next;
        self.next += 1;
        self.owners.entry(owner.clone()).or_default().insert(place, id);
        self.places.insert(id, place);
        Ok(())
    }

    /// Takes a task out.
    pub(super) fn remove(&mut self, owner: &Owner, id: TaskId) {
        let Some(place) = self.places.remove(&id) else { return };
        if let Some(tasks) = self.owners.get_mut(owner) {
            tasks.remove(&place);
            if tasks.is_empty() {
                self.owners.remove(owner);
            }
        }
        if self.places.len() * 4 < self.places.capacity() {
            self.places.shrink_to_fit();
        }
    }

    /// At most `count` tasks of `owner` after the place `after`.
    pub(super) fn page(&self, owner: &Owner, after: Option<u64>, count: usize) -> Vec<(u64, TaskId)> {
        let from = after.map_or(0, |place| place.saturating_add(1));
        let tasks = self.owners.get(owner).into_iter().flat_map(|tasks| tasks.range(from..));
        tasks.take(count).map(|(place, id)| (*place, *id)).collect()
    }

    /// Whether `owner` has any task.
    pub(super) fn has_any(&self, owner: &Owner) -> bool {
        self.owners.contains_key(owner)
    }
}
