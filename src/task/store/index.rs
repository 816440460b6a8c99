//! The tasks of each owner in the order of their creation, and the counts that admit new ones.

use std::collections::{BTreeMap, HashMap};

use super::{Limit, MaxKept};
use crate::{identity::Owner, task::TaskId};

/// Who has which tasks.
#[derive(Debug, Default)]
pub(super) struct Index {
    owners: HashMap<Owner, Owned>,
    tasks: HashMap<TaskId, Entry>,
    next: u64,
    /// Bytes of all results.
    bytes: usize,
}

#[derive(Debug, Default)]
struct Owned {
    tasks: BTreeMap<u64, TaskId>,
    /// Bytes of their results.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    place: u64,
    /// Bytes of its result.
    bytes: usize,
}

impl Index {
    /// Gives a task its place, if the limits allow.
    pub(super) fn admit(&mut self, owner: &Owner, id: TaskId, max: &MaxKept) -> Result<(), Limit> {
        if self.tasks.len() >= max.tasks {
            return Err(Limit::Tasks(max.tasks));
        }
        if self.bytes >= max.bytes {
            return Err(Limit::ResultBytes(max.bytes));
        }
        if let Some(owned) = self.owners.get(owner) {
            if owned.tasks.len() >= max.tasks_per_owner {
                return Err(Limit::TasksPerOwner(max.tasks_per_owner));
            }
            if owned.bytes >= max.bytes_per_owner {
                return Err(Limit::ResultBytesPerOwner(max.bytes_per_owner));
            }
        }
        let place = self.next;
        self.next += 1;
        self.owners.entry(owner.clone()).or_default().tasks.insert(place, id);
        self.tasks.insert(id, Entry { place, bytes: 0 });
        Ok(())
    }

    /// Counts the result of a task, which has one at most. A task that was removed meanwhile has none: whether it is
    /// counted.
    pub(super) fn keep(&mut self, owner: &Owner, id: TaskId, bytes: usize) -> bool {
        let (Some(entry), Some(owned)) = (self.tasks.get_mut(&id), self.owners.get_mut(owner)) else { return false };
        entry.bytes += bytes;
        owned.bytes += bytes;
        self.bytes += bytes;
        true
    }

    /// Takes a task out, and says how many bytes its result had.
    pub(super) fn remove(&mut self, owner: &Owner, id: TaskId) -> usize {
        let Some(Entry { place, bytes }) = self.tasks.remove(&id) else { return 0 };
        self.bytes -= bytes;
        if let Some(owned) = self.owners.get_mut(owner) {
            owned.tasks.remove(&place);
            owned.bytes -= bytes;
            if owned.tasks.is_empty() {
                self.owners.remove(owner);
            }
        }
        if self.tasks.len() * 4 < self.tasks.capacity() {
            self.tasks.shrink_to_fit();
        }
        bytes
    }

    /// At most `count` tasks of `owner` after the place `after`.
    pub(super) fn page(&self, owner: &Owner, after: Option<u64>, count: usize) -> Vec<(u64, TaskId)> {
        let from = after.map_or(0, |place| place.saturating_add(1));
        let tasks = self.owners.get(owner).into_iter().flat_map(|owned| owned.tasks.range(from..));
        tasks.take(count).map(|(place, id)| (*place, *id)).collect()
    }

    /// Bytes of all results.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the results of `owner`.
    #[cfg(test)]
    pub(super) fn bytes_of(&self, owner: &Owner) -> usize {
        self.owners.get(owner).map_or(0, |owned| owned.bytes)
    }

    /// Whether `owner` has any task.
    pub(super) fn has_any(&self, owner: &Owner) -> bool {
        self.owners.contains_key(owner)
    }
}
