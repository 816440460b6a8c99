//! Where tasks are kept.

mod deadlines;
mod index;
pub mod memory;
#[cfg(test)]
mod races;
mod watch;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use tokio::time::Instant;

pub use memory::MemoryStore;

use super::{Task, TaskId};
use crate::identity::Owner;

/// A store's answer in the making.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where tasks are kept. A change, or the removal, of a task wakes those who watch it; see [`Store::watch`].
///
/// # Contract
/// - What a method has returned is committed: a later call, from whatever process shares the store, sees it.
/// - No method assumes that the task it names runs in this process.
/// - A task is found from the return of [`Store::insert`] until its ttl is over, and never dropped to make room.
/// - Nothing tells a foreign task from an unknown one.
pub trait Store: fmt::Debug + Send + Sync {
    /// Adds a task, or refuses it where a limit is reached.
    fn insert(&self, task: Task) -> Answer<'_, Result<(), Limit>>;

    /// The task, if it exists and belongs to `owner`.
    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<Arc<Task>>>;

    /// Puts `next` in the place of the version before it. `false`, and nothing happens, if another change came first or
    /// the task is gone. Wakes those who watch it.
    fn replace(&self, next: Task) -> Answer<'_, bool>;

    /// At most `count` tasks of `owner` in the order of their creation, from the first after `after` on, each with its place.
    fn list<'a>(&'a self, owner: &'a Owner, after: Option<u64>, count: usize) -> Answer<'a, Vec<(u64, Arc<Task>)>>;

    /// Whether `owner` has any task.
    fn has_any<'a>(&'a self, owner: &'a Owner) -> Answer<'a, bool>;

    /// Removes every task of `owner`, waking those who watch them, and returns their ids. Each removed task is told once,
    /// here or by [`Store::expire`].
    fn remove_all<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<TaskId>>;

    /// Removes the tasks whose ttl is over by `now`, waking those who watch them, and returns their ids.
    fn expire(&self, now: Instant) -> Answer<'_, Vec<TaskId>>;

    /// Resolves when the first ttl is over; never, while there are no tasks.
    fn next_expiry(&self) -> Answer<'_, ()>;

    /// Starts to watch a task, up to `max` watchers: [`watch::Watch::changed`] resolves at every change and at the
    /// removal from now on.
    ///
    /// # Errors
    /// [`Limit::Waiters`]
    fn watch(&self, id: TaskId, max: usize) -> Result<Watch, Limit>;
}

pub use watch::Watch;

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `max_tasks`
    Tasks(usize),
    /// `max_tasks_per_owner`
    TasksPerOwner(usize),
    /// `max_waiters`
    Waiters(usize),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tasks(max) => {
                write!(f, "tasks.max_tasks = {max} tasks are kept; try again when some of them have expired")
            }
            Self::TasksPerOwner(max) => {
                write!(f, "tasks.max_tasks_per_owner = {max} tasks of yours are kept; try again when some have expired")
            }
            Self::Waiters(max) => {
                write!(f, "tasks.max_waiters = {max} requests wait for this task already; poll with tasks/get instead")
            }
        }
    }
}
