//! Which tasks there are: those of each owner in the order of their creation, and the counts that admit new ones.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
    ops::Bound::{Excluded, Unbounded},
};

use super::{KeptLimit, MaxKept, PageOrder};
use crate::{
    identity::Owner,
    task::{Task, TaskId, id_map::IdMap},
};

/// Which tasks each owner has, each with what the store keeps of it. A task that is not here does not exist, whatever a
/// cache still has.
#[derive(Debug)]
pub(super) struct Index<K> {
    owners: HashMap<Owner, Owned>,
    tasks: IdMap<Entry<K>>,
    /// The place of the next task.
    next: u64,
    /// Bytes of all results.
    bytes: usize,
}

/// The tasks of one owner.
#[derive(Debug, Default)]
struct Owned {
    /// By their places.
    tasks: BTreeMap<u64, TaskId>,
    /// Bytes of their results.
    bytes: usize,
}

/// What a task holds.
#[derive(Debug)]
pub(super) struct Entry<K> {
    pub owner: Owner,
    /// Where it stands among the tasks of its owner.
    pub place: u64,
    /// Bytes of its result.
    pub bytes: usize,
    /// [`Task::expires`]
    pub expires: u64,
    /// What the store keeps of it.
    pub kept: K,
}

impl<K> Default for Index<K> {
    fn default() -> Self {
        Self { owners: HashMap::new(), tasks: IdMap::default(), next: 0, bytes: 0 }
    }
}

impl<K> Index<K> {
    /// Gives a task its place, if the limits allow it, and returns the place.
    pub(super) fn admit(&mut self, task: &Task, max: &MaxKept, kept: K) -> Result<u64, KeptLimit> {
        if self.tasks.len() >= max.tasks {
            return Err(KeptLimit::Tasks(max.tasks));
        }
        if self.owners.get(&task.owner).is_some_and(|owned| owned.tasks.len() >= max.tasks_per_owner) {
            return Err(KeptLimit::TasksPerOwner(max.tasks_per_owner));
        }
        self.full(&task.owner, max).map_or(Ok(()), Err)?;
        let (owner, place) = (task.owner.clone(), self.next);
        self.next += 1;
        self.owners.entry(owner.clone()).or_default().tasks.insert(place, task.id);
        self.tasks.insert(task.id, Entry { owner, place, bytes: 0, expires: task.expires, kept });
        Ok(place)
    }

    /// Returns the limit on bytes of results that `owner` has reached, if any.
    pub(super) fn full(&self, owner: &Owner, max: &MaxKept) -> Option<KeptLimit> {
        let own = self.owners.get(owner).map_or(0, |owned| owned.bytes);
        if self.bytes >= max.bytes {
            Some(KeptLimit::ResultBytes(max.bytes))
        } else {
            (own >= max.bytes_per_owner).then_some(KeptLimit::ResultBytesPerOwner(max.bytes_per_owner))
        }
    }

    /// Notes a task's deadline and the bytes of the end that it may have got. Returns the deadline before and what the
    /// store keeps of it; `None` if there is no such task.
    pub(super) fn change(&mut self, id: TaskId, end_bytes: usize, expires: u64) -> Option<(u64, &mut K)> {
        let entry = self.tasks.get_mut(&id)?;
        if end_bytes > 0 {
            self.bytes += end_bytes;
            entry.bytes += end_bytes;
            if let Some(owned) = self.owners.get_mut(&entry.owner) {
                owned.bytes += end_bytes;
            }
        }
        Some((std::mem::replace(&mut entry.expires, expires), &mut entry.kept))
    }

    /// Returns the entry of a task of `owner`.
    pub(super) fn owned(&self, owner: &Owner, id: TaskId) -> Option<&Entry<K>> {
        self.tasks.get(&id).filter(|entry| entry.owner == *owner)
    }

    /// Returns the entry of a task, to change what the store keeps of it.
    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Entry<K>> {
        self.tasks.get_mut(&id)
    }

    /// Adds a task that has its place already. Returns whether it is the only one with its id and its place.
    pub(super) fn restore(&mut self, id: TaskId, entry: Entry<K>) -> bool {
        self.bytes += entry.bytes;
        self.next = self.next.max(entry.place + 1);
        let owned = self.owners.entry(entry.owner.clone()).or_default();
        owned.bytes += entry.bytes;
        owned.tasks.insert(entry.place, id).is_none() & self.tasks.insert(id, entry).is_none()
    }

    /// Says that places before this one are taken.
    pub(super) fn skip_to(&mut self, place: u64) {
        self.next = self.next.max(place);
    }

    /// Returns every task, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Entry<K>> {
        self.tasks.values()
    }

    /// Takes a task out.
    pub(super) fn remove(&mut self, id: TaskId) -> Option<Entry<K>> {
        let entry = self.tasks.remove(&id)?;
        self.bytes -= entry.bytes;
        if let Some(owned) = self.owners.get_mut(&entry.owner) {
            owned.tasks.remove(&entry.place);
            owned.bytes -= entry.bytes;
            if owned.tasks.is_empty() {
                self.owners.remove(&entry.owner);
            }
        }
        if self.tasks.len() * 4 < self.tasks.capacity() {
            self.tasks.shrink_to_fit();
        }
        Some(entry)
    }

    /// Returns tasks of `owner`, each with its place.
    pub(super) fn of(&self, owner: &Owner, order: PageOrder) -> impl Iterator<Item = (u64, TaskId)> {
        let places = match order {
            PageOrder::OldestFirst { after } => (after.map_or(Unbounded, Excluded), Unbounded),
            PageOrder::NewestFirst { before } => (Unbounded, before.map_or(Unbounded, Excluded)),
        };
        let mut tasks = self.owners.get(owner).map(|owned| owned.tasks.range(places));
        let next = move || match order {
            PageOrder::OldestFirst { .. } => tasks.as_mut()?.next(),
            PageOrder::NewestFirst { .. } => tasks.as_mut()?.next_back(),
        };
        iter::from_fn(next).map(|(place, id)| (*place, *id))
    }

    /// Returns the bytes of all results.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of the results of `owner`.
    #[cfg(test)]
    pub(super) fn bytes_of(&self, owner: &Owner) -> usize {
        self.owners.get(owner).map_or(0, |owned| owned.bytes)
    }

    /// Returns who has tasks, and how many.
    pub(super) fn owners(&self) -> Vec<(Owner, usize)> {
        self.owners.iter().map(|(owner, owned)| (owner.clone(), owned.tasks.len())).collect()
    }

    /// Returns whether `owner` has any task.
    pub(super) fn has_any(&self, owner: &Owner) -> bool {
        self.owners.contains_key(owner)
    }
}
