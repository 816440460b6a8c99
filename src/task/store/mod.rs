//! Where tasks are kept: the trait of a store with its contract, and the limits.

#[cfg(test)]
mod contract;
mod deadlines;
#[cfg(test)]
pub(super) mod faulty;
mod index;
pub mod memory;
#[cfg(test)]
mod races;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

pub use memory::MemoryStore;

use super::{End, Task, TaskId};
use crate::identity::Owner;

/// A store's answer in the making.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Unavailable>> + Send + 'a>>;

/// The store does not answer now. What was asked may have been done all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub Arc<str>);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of tasks is unavailable: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Is called with the id of each task that has changed or was removed, at once and in no order that is promised; with `None`
/// where ids may have been missed, so that every task may have changed. It does not wait.
pub type Listener = Box<dyn Fn(Option<TaskId>) + Send + Sync>;

/// Where tasks are kept, in this process or elsewhere.
///
/// # Contract
/// - What a method has returned is committed: a later call, from whatever process shares the store, sees it.
/// - No method assumes that the task it names runs in this process.
/// - A method that answers [`Unavailable`] may have done what was asked, wholly or not at all: read before trying again.
/// - A task is found from the return of [`Store::insert`] until its ttl is over, and never dropped to make room. Once it
///   was removed it never comes back, whatever change was under way.
/// - Nothing tells a foreign task from an unknown one.
pub trait Store: fmt::Debug + Send + Sync {
    /// Adds a task, or refuses it where a limit is reached.
    fn insert(&self, task: Task) -> Answer<'_, Result<(), Limit>>;

    /// Returns the task, if it exists and belongs to `owner`.
    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<Arc<Task>>>;

    /// Returns the end of the task, if it exists, belongs to `owner` and has ended.
    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> Answer<'a, Option<End>>;

    /// Puts `next` in the place of the version before it, with its end if it has ended. Answers `false`, and does nothing,
    /// if another change came first or the task is gone.
    fn replace(&self, next: Task, end: Option<End>) -> Answer<'_, bool>;

    /// Returns at most `count` tasks of `owner` in the order of their creation, from the first after `after` on, each with
    /// its place. Fewer only where there were no more at one moment: a page that is full may have a next one.
    fn page<'a>(&'a self, owner: &'a Owner, after: Option<u64>, count: usize) -> Answer<'a, Vec<(u64, Arc<Task>)>>;

    /// Returns whether `owner` has any task that has not been told as removed.
    fn has_any<'a>(&'a self, owner: &'a Owner) -> Answer<'a, bool>;

    /// Removes every task of `owner` and returns their ids. Each removed task is told once, here or by [`Store::expire`].
    fn remove_all<'a>(&'a self, owner: &'a Owner) -> Answer<'a, Vec<TaskId>>;

    /// Removes the tasks that expire by `unix`, as [`Task::expires`] counts, and returns their ids.
    fn expire(&self, unix: u64) -> Answer<'_, Vec<TaskId>>;

    /// Resolves when the first task expires; never, while there are no tasks.
    fn next_expiry(&self) -> Answer<'_, ()>;

    /// Returns the limit on bytes of results that `owner` has reached, if any: nothing more should begin that brings one.
    /// This is as far as this process knows, and [`Store::insert`] decides: it is asked under locks, and never waits.
    fn full(&self, owner: &Owner) -> Option<Limit>;

    /// Has `listener` called from now on, in place of any other.
    fn listen(&self, listener: Listener);
}

/// What is kept before new tasks are refused. What was admitted is always kept, so results may go over their bytes by
/// those of the tasks that ran already.
#[derive(Clone, Copy, Debug)]
pub struct MaxKept {
    /// Tasks of one owner, finished ones included.
    pub tasks_per_owner: usize,
    /// Tasks of everybody.
    pub tasks: usize,
    /// Bytes of the results of one owner.
    pub bytes_per_owner: usize,
    /// Bytes of the results of everybody.
    pub bytes: usize,
}

#[cfg(test)]
impl MaxKept {
    /// A limit on tasks alone.
    pub(in crate::task) const fn of_tasks(tasks_per_owner: usize, tasks: usize) -> Self {
        Self { tasks_per_owner, tasks, bytes_per_owner: usize::MAX, bytes: usize::MAX }
    }
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `max_tasks`
    Tasks(usize),
    /// `max_tasks_per_owner`
    TasksPerOwner(usize),
    /// `max_result_bytes`
    ResultBytes(usize),
    /// `max_result_bytes_per_owner`
    ResultBytesPerOwner(usize),
}

impl Limit {
    /// Its key in `[tasks]`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tasks(_) => "max_tasks",
            Self::TasksPerOwner(_) => "max_tasks_per_owner",
            Self::ResultBytes(_) => "max_result_bytes",
            Self::ResultBytesPerOwner(_) => "max_result_bytes_per_owner",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, reached) = match *self {
            Self::Tasks(max) => (max, "tasks are kept; try again when some of them have expired"),
            Self::TasksPerOwner(max) => (max, "tasks of yours are kept; try again when some have expired"),
            Self::ResultBytes(max) => (max, "bytes of results are kept; try again when some of them have expired"),
            Self::ResultBytesPerOwner(max) => {
                (max, "bytes of results of yours are kept; try again when some have expired")
            }
        };
        write!(f, "tasks.{} = {max} {reached}", self.name())
    }
}
