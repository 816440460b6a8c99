//! Where tasks are kept: the trait of a store with its contract, and the limits.

mod compact;
#[cfg(test)]
mod contract;
mod deadlines;
#[cfg(test)]
pub(super) mod faulty;
pub mod file;
mod index;
pub mod memory;
#[cfg(test)]
mod races;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use bytes::Bytes;

pub use file::FileStore;
pub use memory::MemoryStore;

use super::{End, Task, TaskId};
use crate::identity::Owner;

/// The answer of a store, when it comes.
pub type StoreFuture<'a, T, E = Unavailable> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// The store does not answer now. It may have done what was asked all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub Arc<str>);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store of tasks is unavailable: {}", self.0)
    }
}

impl std::error::Error for Unavailable {}

/// Why a store does not tell the end of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEnd {
    /// It does not answer now.
    Unavailable(Unavailable),
    /// What it has is not what was written, and stays so.
    Damaged,
}

impl From<Unavailable> for NoEnd {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

/// How a call can go on in a later process, in the words of the engine. A store does not read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedCall(pub Bytes);

/// What a change of a task means for its saved call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallChange {
    /// It stays as it is.
    Keep,
    /// It is replaced.
    Set(SavedCall),
}

/// A task that has not ended, as a start finds it.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// The task.
    pub task: Task,
    /// What is saved of its call.
    pub call: Option<SavedCall>,
    /// The last [`Store::note`] that was written.
    pub note: Option<Bytes>,
}

/// A callback that a store calls with the id of each task that it has changed or removed, at once and in any order. The
/// id is `None` where the store may have missed some, so that any task may have changed. The callback does not wait.
pub type ChangeCallback = Box<dyn Fn(Option<TaskId>) + Send + Sync>;

/// Called when a note is where it outlives the process, on any thread.
pub type NoteWritten = Arc<dyn Fn() + Send + Sync>;

/// Where tasks are kept, in this process or elsewhere.
///
/// # Contract
/// - What a method has returned is committed: a later call, from whatever process shares the store, sees it.
/// - No method assumes that the task it names runs in this process.
/// - A method that answers [`Unavailable`] may have done what was asked, wholly or not at all: read before trying
///   again.
/// - A task is found from the return of [`Store::insert`] until its ttl is over, and is never dropped to make room.
/// - A task that was removed never comes back, whatever change was under way.
/// - A result that is not what was written is [`NoEnd::Damaged`], and never told. What keeps it from being read for a
///   while is not.
/// - The answers for a foreign task and for an unknown one are the same.
pub trait Store: fmt::Debug + Send + Sync {
    /// Adds a task with what is saved of its call, or refuses it where a limit is reached.
    fn insert(&self, task: Task, call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>>;

    /// Returns the task, if it exists and belongs to `owner`.
    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>>;

    /// Returns the end of the task, if it exists, belongs to `owner` and has ended.
    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>, NoEnd>;

    /// Replaces the version before `next` by `next`, with its end if it has ended. Returns whether it did: where
    /// another change came first or the task was removed, it changes nothing. An end drops what is saved of the call.
    fn replace(&self, next: Task, end: Option<End>, call: CallChange) -> StoreFuture<'_, bool>;

    /// Returns at most `count` tasks of `owner`, each with its place. It returns fewer only if at one moment there were
    /// no more; a full page may have a next one.
    fn page<'a>(&'a self, owner: &'a Owner, order: PageOrder, count: usize) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>>;

    /// Returns whether `owner` has any task whose removal was not reported yet.
    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool>;

    /// Removes every task of `owner` and returns their ids. Each removal is reported once, here or by
    /// [`Store::expire`]. Many are removed in parts, between which the store answers others.
    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>>;

    /// Removes the tasks that expire by `unix`, as [`Task::expires`] counts, and returns their ids. Of many it may
    /// remove only the first: [`Store::next_expiry`] resolves for the others at once.
    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>>;

    /// Waits until the first task expires; while there are no tasks, for ever.
    fn next_expiry(&self) -> StoreFuture<'_, ()>;

    /// Keeps the newest note of a task that has not ended: how its call can be resumed. It may be lost with the process
    /// until `written` was called, or that of a newer one, which may take its place.
    fn note(&self, task: TaskId, note: Bytes, written: NoteWritten);

    /// Returns the tasks that have not ended, in the order of their creation, with what an earlier process saved of
    /// them.
    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>>;

    /// Returns who has tasks, ended ones included, and how many, as a start finds them.
    fn owners(&self) -> StoreFuture<'_, Vec<(Owner, usize)>>;

    /// Returns whether tasks and saved calls outlive the process.
    fn saves_calls(&self) -> bool;

    /// Returns whether what is saved is sealed by a key, so that credentials may be among it.
    fn seals(&self) -> bool;

    /// Returns the limit on bytes of results that `owner` has reached, if any; no call that brings a result should
    /// start then. It answers from what this process knows, as it is called under locks and never waits;
    /// [`Store::insert`] decides.
    fn full(&self, owner: &Owner) -> Option<KeptLimit>;

    /// Calls `callback` for every change from now on, in place of an earlier callback.
    fn on_change(&self, callback: ChangeCallback);
}

/// In which order a page has tasks, and where it begins. A task may be gone, and its place is a beginning all the same.
#[derive(Clone, Copy, Debug)]
pub enum PageOrder {
    /// In the order of their creation.
    OldestFirst {
        /// The place of the last task before the page; without it the page begins with the oldest.
        after: Option<u64>,
    },
    /// Against the order of their creation.
    NewestFirst {
        /// The place of the last task before the page; without it the page begins with the newest.
        before: Option<u64>,
    },
}

impl PageOrder {
    /// All tasks, the oldest first.
    pub const ALL: Self = Self::OldestFirst { after: None };
}

/// How much is kept before new tasks are refused. Whatever an admitted task brings is kept, so tasks that run already
/// may take the bytes of results over their limits.
#[derive(Clone, Copy, Debug)]
pub struct MaxKept {
    /// Tasks of one owner, finished ones included.
    pub tasks_per_owner: usize,
    /// Tasks of all owners.
    pub tasks: usize,
    /// Bytes of the results of one owner.
    pub bytes_per_owner: usize,
    /// Bytes of the results of all owners.
    pub bytes: usize,
}

#[cfg(test)]
impl MaxKept {
    /// Returns limits on tasks alone.
    pub(crate) const fn of_tasks(tasks_per_owner: usize, tasks: usize) -> Self {
        Self { tasks_per_owner, tasks, bytes_per_owner: usize::MAX, bytes: usize::MAX }
    }
}

/// A limit on what is kept that is reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptLimit {
    /// `max_tasks`
    Tasks(usize),
    /// `max_tasks_per_owner`
    TasksPerOwner(usize),
    /// `max_result_bytes`
    ResultBytes(usize),
    /// `max_result_bytes_per_owner`
    ResultBytesPerOwner(usize),
    /// `max_store_bytes`, of which a part is left for the ends of tasks that run
    StoreBytes(usize),
}

impl KeptLimit {
    /// Returns its key in `[tasks]` or `[store]`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tasks(_) => "max_tasks",
            Self::TasksPerOwner(_) => "max_tasks_per_owner",
            Self::ResultBytes(_) => "max_result_bytes",
            Self::ResultBytesPerOwner(_) => "max_result_bytes_per_owner",
            Self::StoreBytes(_) => "max_store_bytes",
        }
    }
}

impl fmt::Display for KeptLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, reached) = match *self {
            Self::Tasks(max) => (max, "tasks are kept; try again when some of them have expired"),
            Self::TasksPerOwner(max) => (max, "tasks of yours are kept; try again when some have expired"),
            Self::ResultBytes(max) => (max, "bytes of results are kept; try again when some of them have expired"),
            Self::ResultBytesPerOwner(max) => {
                (max, "bytes of results of yours are kept; try again when some have expired")
            }
            Self::StoreBytes(max) => (max, "bytes are nearly used up; try again when some tasks have expired"),
        };
        let section = if matches!(self, Self::StoreBytes(_)) { "store" } else { "tasks" };
        write!(f, "{section}.{} = {max} {reached}", self.name())
    }
}
