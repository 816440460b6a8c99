//! A store that compares its answers with the model's.

use std::{collections::BTreeSet, future::Future, sync::Arc};

use bytes::Bytes;
use futures_util::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    disk::SteppedDisk,
    model::{Answer, Call, Found, Model},
};
use crate::{
    identity::Owner,
    task::{
        Clock, End, Task, TaskId,
        store::{
            CallChange, ChangeCallback, KeptLimit, MaxKept, MemoryStore, NoEnd, NoteWritten, PageOrder, SavedCall,
            Store, StoreFuture, Unavailable, Unfinished,
            faulty::turn,
            file::testing::{disk_of, folder, next_place, opened},
        },
    },
};

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Memory,
    File,
}

/// A store that lets others go on before and after everything that it does, and compares its answers with a model's.
#[derive(Debug)]
pub(super) struct CheckedStore {
    store: Arc<dyn Store>,
    model: Mutex<Model>,
    /// The calls that wait for the disk, in the order in which they came.
    waiting: Mutex<Vec<Waiting>>,
    max: MaxKept,
    clock: Clock,
    real: Real,
}

/// What the test does to the real store behind its back.
#[derive(Debug)]
enum Real {
    Memory(Arc<MemoryStore>),
    File(SteppedDisk),
}

/// A call that waits for the disk.
struct Waiting {
    call: Call,
    answer: BoxFuture<'static, Result<Answer, Unavailable>>,
    told: oneshot::Sender<Answer>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.call.fmt(f)
    }
}

/// Waits for what the disk answers by itself, as a read.
fn wait<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = Box::pin(answer);
    match (&mut answer).now_or_never() {
        Some(answer) => answer,
        None => tokio::runtime::Handle::current().block_on(answer),
    }
}

impl CheckedStore {
    /// Returns an empty store.
    pub(super) fn new(kind: Kind, max: MaxKept, clock: Clock) -> Self {
        match kind {
            Kind::Memory => {
                let memory = Arc::new(MemoryStore::new(max, clock, Arc::default()));
                Self::over(Arc::<MemoryStore>::clone(&memory), Real::Memory(memory), Model::new(0, max), max, clock)
            }
            Kind::File => {
                let folder = folder();
                let store = wait(opened(&folder, max, None, Some(clock)));
                let real = Real::File(SteppedDisk::new(disk_of(&store), folder));
                Self::over(Arc::new(store), real, Model::new(1, max), max, clock)
            }
        }
    }

    fn over(store: Arc<dyn Store>, real: Real, model: Model, max: MaxKept, clock: Clock) -> Self {
        Self { store, model: Mutex::new(model), waiting: Mutex::default(), max, clock, real }
    }

    /// Ends the process and starts it again, as far as the store is concerned. `None` where nothing outlives the
    /// process.
    pub(super) fn restarted(&self, is_killed: bool) -> Option<Self> {
        let Real::File(disk) = &self.real else { return None };
        let folder = if is_killed {
            let left = disk.copy();
            disk.close();
            left
        } else {
            disk.close();
            self.take_answers();
            assert!(self.waiting.lock().is_empty(), "a call was not answered");
            disk.copy()
        };
        let under_way: Vec<Call> = std::mem::take(&mut *self.waiting.lock()).into_iter().map(|one| one.call).collect();
        let store = wait(opened(&folder, self.max, None, Some(self.clock)));
        let (found, next) = (wait(found(&store, &self.model.lock().owners())), wait(next_place(&store)));
        let mut model = std::mem::replace(&mut *self.model.lock(), Model::new(0, self.max));
        let over = model.restart(found, &under_way, is_killed, next);
        // As a start does.
        let expired = wait(store.expire(over)).expect("memory");
        assert_eq!(expired.into_iter().collect::<BTreeSet<_>>(), model.expire(over));
        let real = Real::File(SteppedDisk::new(disk_of(&store), folder));
        Some(Self::over(Arc::new(store), real, model, self.max, self.clock))
    }

    /// Returns whether anything waits for the disk.
    pub(super) fn waits_for_disk(&self) -> bool {
        !self.waiting.lock().is_empty()
    }

    /// Lets the disk do a part of its work.
    pub(super) fn step_disk(&self) {
        if let Real::File(disk) = &self.real {
            disk.step();
            self.take_answers();
        }
    }

    /// Has the next batch fail, or not.
    pub(super) fn fail_next_batch(&self, fails: bool) {
        if let Real::File(disk) = &self.real {
            disk.fail_next_batch(fails);
        }
    }

    /// Makes the calls in the model that the disk has answered, in an order in which each answer is the right one.
    fn take_answers(&self) {
        let (mut waiting, mut model) = (self.waiting.lock(), self.model.lock());
        let mut answered = Vec::new();
        for mut one in std::mem::take(&mut *waiting) {
            match (&mut one.answer).now_or_never() {
                Some(answer) => answered.push((one.call, answer.unwrap_or(Answer::Unavailable), one.told)),
                None => waiting.push(one),
            }
        }
        while !answered.is_empty() {
            let next = answered.iter().position(|(call, answer, _)| model.make(call, answer, true));
            let Some(next) = next else { panic!("no order explains {answered:?} in {model:?}") };
            let (_, answer, told) = answered.remove(next);
            // Its process may have ended.
            let _ = told.send(answer);
        }
    }

    /// Calls the store, and compares its answer with the model's once it comes.
    async fn call(
        &self,
        call: Call,
        answer: impl Future<Output = Result<Answer, Unavailable>> + Send + 'static,
    ) -> Answer {
        turn().await;
        let mut answer = Box::pin(answer);
        let answer = if let Some(answer) = (&mut answer).now_or_never() {
            let answer = answer.expect("available");
            self.model.lock().answered_at_once(&call, &answer);
            answer
        } else {
            self.model.lock().begin(&call);
            let (told, waits) = oneshot::channel();
            self.waiting.lock().push(Waiting { call, answer, told });
            waits.await.expect("the disk answers everything")
        };
        turn().await;
        answer
    }

    /// Evicts a task from the cache, where there is one that could.
    pub(super) fn evict(&self, id: TaskId) {
        if let Real::Memory(memory) = &self.real {
            memory.evict(id);
            self.model.lock().evict(id);
        }
    }

    /// Returns whether a task can be found.
    pub(super) fn knows(&self, id: TaskId) -> bool {
        self.model.lock().knows(id)
    }

    /// Returns how often a task has ended.
    pub(super) fn ends(&self, id: TaskId) -> usize {
        self.model.lock().ends(id)
    }

    /// Returns the tasks of an owner.
    pub(super) fn of(&self, owner: &Owner) -> BTreeSet<TaskId> {
        self.model.lock().of(owner).map(|(_, task)| task.id).collect()
    }

    /// Adds `more` to the watchers of a task, and returns how many there are.
    pub(super) fn count_watchers(&self, id: TaskId, more: isize) -> usize {
        self.model.lock().count_watchers(id, more)
    }

    /// Returns how many watch tasks that have not ended.
    pub(super) fn watchers_of_running(&self) -> usize {
        self.model.lock().watchers_of_running()
    }
}

/// Returns what a start finds of the tasks of some owners.
async fn found(store: &impl Store, owners: &[Owner]) -> Vec<Found> {
    let mut unfinished = store.unfinished().await.expect("available");
    let mut found = Vec::new();
    for owner in owners {
        for (place, task) in store.page(owner, PageOrder::ALL, usize::MAX).await.expect("available") {
            let end = store.end(owner, task.id).await.expect("available");
            let left = unfinished.iter().position(|left| left.task.id == task.id).map(|at| unfinished.remove(at));
            assert_eq!(left.is_some(), !task.state.is_terminal(), "{task:?}");
            found.push(Found { place, task: (*task).clone(), end, call: left.and_then(|left| left.call) });
        }
    }
    assert!(unfinished.is_empty(), "{unfinished:?} belong to no owner");
    found.sort_by_key(|found| found.place);
    found
}

fn unavailable<T>() -> Result<T, Unavailable> {
    Err(Unavailable("the disk has failed".into()))
}

impl Store for CheckedStore {
    fn insert(&self, task: Task, call: Option<SavedCall>) -> StoreFuture<'_, Result<(), KeptLimit>> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            let asked = Call::Insert(task.clone(), call.clone());
            let answer = async move { store.insert(task, call).await.map(Answer::Inserted) };
            match self.call(asked, answer).await {
                Answer::Inserted(inserted) => Ok(inserted),
                Answer::Unavailable => unavailable(),
                other => unreachable!("{other:?}"),
            }
        })
    }

    fn get<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<Arc<Task>>> {
        Box::pin(async move {
            turn().await;
            let answer = wait(self.store.get(owner, id))?;
            self.model.lock().check_get(owner, id, answer.as_deref());
            turn().await;
            Ok(answer)
        })
    }

    fn end<'a>(&'a self, owner: &'a Owner, id: TaskId) -> StoreFuture<'a, Option<End>, NoEnd> {
        Box::pin(async move {
            turn().await;
            let answer = wait(self.store.end(owner, id))?;
            self.model.lock().check_end(owner, id, answer.as_ref());
            turn().await;
            Ok(answer)
        })
    }

    fn replace(&self, next: Task, end: Option<End>, call: CallChange) -> StoreFuture<'_, bool> {
        let store = Arc::clone(&self.store);
        Box::pin(async move {
            assert_eq!(end.is_some(), next.state.is_terminal());
            let asked = Call::Replace(next.clone(), end.clone(), call.clone());
            let answer = async move { store.replace(next, end, call).await.map(Answer::Replaced) };
            match self.call(asked, answer).await {
                Answer::Replaced(replaced) => Ok(replaced),
                Answer::Unavailable => unavailable(),
                other => unreachable!("{other:?}"),
            }
        })
    }

    fn page<'a>(&'a self, owner: &'a Owner, order: PageOrder, count: usize) -> StoreFuture<'a, Vec<(u64, Arc<Task>)>> {
        Box::pin(async move {
            turn().await;
            let answer = wait(self.store.page(owner, order, count))?;
            let found = answer.iter().map(|(place, task)| (*place, &**task));
            self.model.lock().check_page(owner, order, count, found);
            turn().await;
            Ok(answer)
        })
    }

    fn has_any<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            turn().await;
            let answer = wait(self.store.has_any(owner))?;
            assert_eq!(answer, self.model.lock().has_any(owner));
            turn().await;
            Ok(answer)
        })
    }

    fn remove_all<'a>(&'a self, owner: &'a Owner) -> StoreFuture<'a, Vec<TaskId>> {
        let (store, its_owner) = (Arc::clone(&self.store), owner.clone());
        Box::pin(async move {
            let answer = async move {
                let removed = store.remove_all(&its_owner).await?;
                let times = removed.len();
                let removed: BTreeSet<TaskId> = removed.into_iter().collect();
                assert_eq!(removed.len(), times, "removed twice");
                Ok(Answer::Removed(removed))
            };
            match self.call(Call::RemoveAll(owner.clone()), answer).await {
                Answer::Removed(removed) => Ok(removed.into_iter().collect()),
                Answer::Unavailable => unavailable(),
                other => unreachable!("{other:?}"),
            }
        })
    }

    fn expire(&self, unix: u64) -> StoreFuture<'_, Vec<TaskId>> {
        Box::pin(async move {
            turn().await;
            let answer = wait(self.store.expire(unix))?;
            assert_eq!(answer.iter().copied().collect::<BTreeSet<_>>(), self.model.lock().expire(unix));
            turn().await;
            Ok(answer)
        })
    }

    fn next_expiry(&self) -> StoreFuture<'_, ()> {
        self.store.next_expiry()
    }

    fn note(&self, task: TaskId, note: Bytes, written: NoteWritten) {
        self.store.note(task, note, written);
    }

    fn unfinished(&self) -> StoreFuture<'_, Vec<Unfinished>> {
        self.store.unfinished()
    }

    fn owners(&self) -> StoreFuture<'_, Vec<(Owner, usize)>> {
        self.store.owners()
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
