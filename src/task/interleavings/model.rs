//! A model of the store, beside the real one.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    identity::Owner,
    task::{
        End, Task, TaskId,
        store::{
            CallChange, ChangeCallback, KeptLimit, MemoryStore, SavedCall, Store, StoreFuture, Unfinished, faulty::turn,
        },
    },
};

/// A store that lets others go on before and after everything that it does, and compares its answers with a model's.
#[derive(Debug)]
pub(super) struct CheckedStore {
    store: MemoryStore,
    model: Mutex<Model>,
    max_per_owner: usize,
    max: usize,
}

#[derive(Debug, Default)]
struct Model {
    /// By their place.
    tasks: BTreeMap<u64, Task>,
    /// The place of the next task.
    next: u64,
    /// The tasks that the cache has evicted: they cannot be found any more, and take their room until their deadline.
    evicted: BTreeSet<TaskId>,
    /// How often each task has ended.
    ends: HashMap<TaskId, usize>,
    watchers: HashMap<TaskId, usize>,
}

impl Model {
    fn task(&mut self, id: TaskId) -> Option<&mut Task> {
        let evicted = &self.evicted;
        self.tasks.values_mut().find(|task| task.id == id && !evicted.contains(&task.id))
    }

    /// Returns the tasks of an owner that can be found, each with its place.
    fn of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = (u64, &'a Task)> {
        let tasks = self.tasks.iter().map(|(place, task)| (*place, task));
        tasks.filter(move |(_, task)| task.owner == *owner && !self.evicted.contains(&task.id))
    }

    fn remove(&mut self, over: impl Fn(&Task) -> bool) -> BTreeSet<TaskId> {
        let gone: Vec<u64> = self.tasks.iter().filter(|(_, task)| over(task)).map(|(place, _)| *place).collect();
        gone.iter().filter_map(|place| self.tasks.remove(place)).map(|task| task.id).collect()
    }
}

/// Returns what is compared of a task.
fn look(task: &Task) -> (TaskId, Owner, u32, crate::task::State) {
    (task.id, task.owner.clone(), task.version, task.state)
}

impl CheckedStore {
    pub(super) fn new(store: MemoryStore, max_per_owner: usize, max: usize) -> Self {
        Self { store, model: Mutex::default(), max_per_owner, max }
    }

    /// Evicts a task from the cache.
    pub(super) fn evict(&self, id: TaskId) {
        self.store.evict(id);
        self.model.lock().evicted.insert(id);
    }

    /// Returns whether a task can be found.
    pub(super) fn knows(&self, id: TaskId) -> bool {
        self.model.lock().task(id).is_some()
    }

    /// Returns how often a task has ended.
    pub(super) fn ends(&self, id: TaskId) -> usize {
        self.model.lock().ends.get(&id).copied().unwrap_or_default()
    }

    /// Returns the tasks of an owner.
    pub(super) fn of(&self, owner: &Owner) -> BTreeSet<TaskId> {
        self.model.lock().of(owner).map(|(_, task)| task.id).collect()
    }

    /// Adds `more` to the watchers of a task, and returns how many there are.
    pub(super) fn count_watchers(&self, id: TaskId, more: isize) -> usize {
        let mut model = self.model.lock();
        let watchers = model.watchers.entry(id).or_default();
        *watchers = watchers.checked_add_signed(more).expect("no more stop watching than have begun");
        *watchers
    }

    /// Returns how many watch tasks that have not ended.
    pub(super) fn watchers_of_running(&self) -> usize {
        let model = self.model.lock();
        let running = model.tasks.values().filter(|task| !task.state.is_terminal());
        running.filter_map(|task| model.watchers.get(&task.id)).sum()
    }
}

impl Store for CheckedStore {
    fn insert(&self, task: Task, call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.insert(task.clone(), call).await;
            {
                let mut model = self.model.lock();
                let of_owner = model.tasks.values().filter(|other| other.owner == task.owner).count();
                let expected = if model.tasks.len() >= self.max {
                    Err(KeptLimit::Tasks(self.max))
                } else if of_owner >= self.max_per_owner {
                    Err(KeptLimit::TasksPerOwner(self.max_per_owner))
                } else {
                    let place = model.next;
                    model.next += 1;
                    model.tasks.insert(place, task);
                    Ok(())
                };
                assert_eq!(answer, Ok(expected));
            }
            turn().await;
            answer
        })
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.get(owner, id).await?;
            {
                let mut model = self.model.lock();
                let expected = model.task(id).filter(|task| task.owner == *owner);
                assert_eq!(answer.as_deref().map(look), expected.as_deref().map(look));
            }
            turn().await;
            Ok(answer)
        })
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.end(owner, id).await?;
            {
                let mut model = self.model.lock();
                let ended = model.task(id).filter(|task| task.owner == *owner && task.state.is_terminal());
                assert_eq!(
                    answer.as_ref().map(|end| crate::task::State::Ended(end.ending())),
                    ended.map(|task| task.state)
                );
            }
            turn().await;
            Ok(answer)
        })
    }

    fn replace(&self, next: Task, end: Option<End>, call: CallChange) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            turn().await;
            assert_eq!(end.is_some(), next.state.is_terminal());
            let answer = self.store.replace(next.clone(), end, call).await?;
            {
                let mut model = self.model.lock();
                let before = model.task(next.id).filter(|task| task.version + 1 == next.version);
                assert_eq!(answer, before.is_some(), "{next:?}");
                if let Some(task) = before {
                    assert!(!task.state.is_terminal(), "an end was left");
                    assert!(task.owner == next.owner);
                    assert!(next.state.is_terminal() || (task.ttl, task.expires) == (next.ttl, next.expires));
                    assert!(task.shortens || task.expires <= next.expires, "kept for less than was told");
                    assert!(task.last_updated_at <= next.last_updated_at);
                    *task = next.clone();
                    *model.ends.entry(next.id).or_default() += usize::from(next.state.is_terminal());
                }
            }
            turn().await;
            Ok(answer)
        })
    }

    fn page<'a>(
        &'a self,
        owner: &'a Owner,
        after: Option<u64>,
        count: usize,
    ) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.page(owner, after, count).await?;
            {
                let model = self.model.lock();
                let tasks = model.of(owner).filter(|(place, _)| after.is_none_or(|after| *place > after));
                let expected: Vec<_> = tasks.take(count).map(|(place, task)| (place, look(task))).collect();
                assert_eq!(answer.iter().map(|(place, task)| (*place, look(task))).collect::<Vec<_>>(), expected);
            }
            turn().await;
            Ok(answer)
        })
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.has_any(owner).await?;
            assert_eq!(answer, self.model.lock().tasks.values().any(|task| task.owner == *owner));
            turn().await;
            Ok(answer)
        })
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.remove_all(owner).await?;
            let expected = self.model.lock().remove(|task| task.owner == *owner);
            assert_eq!(answer.iter().copied().collect::<BTreeSet<_>>(), expected);
            turn().await;
            Ok(answer)
        })
    }

    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>> {
        Box::pin(async move {
            turn().await;
            let answer = self.store.expire(unix).await?;
            let expected = self.model.lock().remove(|task| task.expires <= unix);
            assert_eq!(answer.iter().copied().collect::<BTreeSet<_>>(), expected);
            turn().await;
            Ok(answer)
        })
    }

    fn next_expiry(&self) -> StoreFuture<'_, ()> {
        self.store.next_expiry()
    }

    fn note(&self, task: TaskId, note: Bytes) {
        self.store.note(task, note);
    }

    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>> {
        self.store.unfinished()
    }

    fn saves_calls(&self) -> bool {
        self.store.saves_calls()
    }

    fn seals(&self) -> bool {
        self.store.seals()
    }

    fn full(&self, owner: &Owner) -> Option<KeptLimit> {
        self.store.full(owner)
    }

    fn on_change(&self, callback: ChangeCallback) {
        self.store.on_change(callback);
    }
}
