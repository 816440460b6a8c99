//! A model of a store: what it has to answer, and what a process that ends has to leave.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::{
    identity::Owner,
    task::{
        End, State, Task, TaskId,
        store::{CallChange, KeptLimit, MaxKept, PageOrder, SavedCall},
    },
};

/// What is asked of a store that changes it, and may take its time.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Insert(Task, Option<SavedCall>),
    Replace(Task, Option<End>, CallChange),
    RemoveAll(Owner),
}

/// What the store answers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Inserted(Result<(), KeptLimit>),
    Replaced(bool),
    Removed(BTreeSet<TaskId>),
    /// The disk has failed, and nothing was done.
    Unavailable,
}

/// A task, as a start has found it.
#[derive(Debug)]
pub(super) struct Found {
    pub place: u64,
    pub task: Task,
    pub end: Option<End>,
    /// What is saved of its call, if it has not ended.
    pub call: Option<SavedCall>,
}

#[derive(Debug)]
pub(super) struct Model {
    max: MaxKept,
    /// By their place.
    tasks: BTreeMap<u64, Kept>,
    /// The place of the next task.
    next: u64,
    /// The last place that was acknowledged.
    last: u64,
    /// What was removed at its deadline by this process, whose end may forget that.
    expired: BTreeMap<u64, Kept>,
    /// The latest time at which tasks were removed.
    expired_until: u64,
    /// How often each task has ended.
    ends: HashMap<TaskId, usize>,
    watchers: HashMap<TaskId, usize>,
}

#[derive(Clone, Debug)]
struct Kept {
    task: Task,
    /// The version that is sure to outlive the process.
    durable: u32,
    end: Option<End>,
    call: Option<SavedCall>,
    /// Whether its creation was acknowledged. Before that it takes room and cannot be found.
    is_found: bool,
    /// Whether the cache has evicted it: it cannot be found any more, and takes its room until its deadline.
    is_evicted: bool,
    /// Whether it was removed at its deadline.
    is_expired: bool,
}

/// Returns what is compared of a task.
fn look(task: &Task) -> (TaskId, &Owner, u32, State, u64) {
    (task.id, &task.owner, task.version, task.state, task.expires)
}

impl Model {
    /// Returns the model of an empty store whose first task gets the place `next`.
    pub(super) fn new(next: u64, max: MaxKept) -> Self {
        Self {
            max,
            tasks: BTreeMap::new(),
            next,
            last: 0,
            expired: BTreeMap::new(),
            expired_until: 0,
            ends: HashMap::new(),
            watchers: HashMap::new(),
        }
    }

    fn kept(&mut self, id: TaskId) -> Option<&mut Kept> {
        self.tasks.values_mut().find(|kept| kept.task.id == id && kept.is_found && !kept.is_evicted)
    }

    /// Returns whether a task can be found.
    pub(super) fn knows(&mut self, id: TaskId) -> bool {
        self.kept(id).is_some()
    }

    /// Returns how often a task has ended.
    pub(super) fn ends(&self, id: TaskId) -> usize {
        self.ends.get(&id).copied().unwrap_or_default()
    }

    /// Returns everybody who may have tasks.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let mut owners = Vec::new();
        for kept in self.tasks.values().chain(self.expired.values()) {
            if !owners.contains(&kept.task.owner) {
                owners.push(kept.task.owner.clone());
            }
        }
        owners
    }

    /// Returns the tasks of an owner that can be found, each with its place.
    pub(super) fn of<'a>(&'a self, owner: &'a Owner) -> impl Iterator<Item = (u64, &'a Task)> {
        let found = self.tasks.iter().filter(|(_, kept)| kept.is_found && !kept.is_evicted);
        found.filter(move |(_, kept)| kept.task.owner == *owner).map(|(place, kept)| (*place, &kept.task))
    }

    /// Adds `more` to the watchers of a task, and returns how many there are.
    pub(super) fn count_watchers(&mut self, id: TaskId, more: isize) -> usize {
        let watchers = self.watchers.entry(id).or_default();
        *watchers = watchers.checked_add_signed(more).expect("no more stop watching than have begun");
        *watchers
    }

    /// Returns how many watch tasks that have not ended.
    pub(super) fn watchers_of_running(&self) -> usize {
        let running = self.tasks.values().filter(|kept| !kept.task.state.is_terminal());
        running.filter_map(|kept| self.watchers.get(&kept.task.id)).sum()
    }

    /// Notes that the cache has evicted a task.
    pub(super) fn evict(&mut self, id: TaskId) {
        if let Some(kept) = self.kept(id) {
            kept.is_evicted = true;
        }
    }

    /// Begins a call that is not answered at once. A new task takes its place and its room from then on.
    pub(super) fn begin(&mut self, call: &Call) {
        if let Call::Insert(task, call) = call {
            assert_eq!(self.admit(task, call.clone()), Ok(()), "it should be refused at once");
        }
    }

    fn admit(&mut self, task: &Task, call: Option<SavedCall>) -> Result<(), KeptLimit> {
        let of_owner = self.tasks.values().filter(|kept| kept.task.owner == task.owner).count();
        if self.tasks.len() >= self.max.tasks {
            return Err(KeptLimit::Tasks(self.max.tasks));
        }
        if of_owner >= self.max.tasks_per_owner {
            return Err(KeptLimit::TasksPerOwner(self.max.tasks_per_owner));
        }
        let (task, durable) = (task.clone(), task.version);
        let kept = Kept { task, durable, end: None, call, is_found: false, is_evicted: false, is_expired: false };
        self.tasks.insert(self.next, kept);
        self.next += 1;
        Ok(())
    }

    /// Makes a call that was answered at once.
    pub(super) fn answered_at_once(&mut self, call: &Call, answer: &Answer) {
        if let (Call::Insert(task, saved), Answer::Inserted(inserted)) = (call, answer) {
            assert_eq!(self.admit(task, saved.clone()), *inserted);
            if inserted.is_err() {
                return;
            }
        }
        assert!(self.make(call, answer, false), "{call:?} was answered with {answer:?} by {self:?}");
    }

    /// Makes a call if that answer is the right one now, and returns whether it is. What was waited for is durable.
    pub(super) fn make(&mut self, call: &Call, answer: &Answer, was_waited_for: bool) -> bool {
        match (call, answer) {
            (Call::Insert(task, _), Answer::Inserted(Ok(()))) => {
                let admitted = self.tasks.iter_mut().find(|(_, kept)| kept.task.id == task.id && !kept.is_found);
                admitted.is_some_and(|(place, kept)| {
                    self.last = self.last.max(*place);
                    kept.is_found = true;
                    true
                })
            }
            (Call::Replace(next, end, call), Answer::Replaced(replaced)) => {
                let before = self.kept(next.id).filter(|kept| kept.task.version + 1 == next.version);
                if *replaced == before.is_some() {
                    if let Some(kept) = before {
                        kept.replace(next, end.as_ref(), call);
                        kept.durable = if was_waited_for { next.version } else { kept.durable };
                        *self.ends.entry(next.id).or_default() += usize::from(next.state.is_terminal());
                    }
                    return true;
                }
                false
            }
            (Call::RemoveAll(owner), Answer::Removed(removed)) => {
                let owned = |kept: &Kept| kept.is_found && kept.task.owner == *owner;
                let expected = self.tasks.values().filter(|kept| owned(kept)).map(|kept| kept.task.id);
                let is_right = expected.collect::<BTreeSet<_>>() == *removed;
                if is_right {
                    self.tasks.retain(|_, kept| !owned(kept));
                }
                is_right
            }
            (Call::Insert(task, _), Answer::Unavailable) => {
                self.tasks.retain(|_, kept| kept.task.id != task.id);
                true
            }
            (_, Answer::Unavailable) => true,
            _ => false,
        }
    }

    /// Removes what expires by `unix`.
    pub(super) fn expire(&mut self, unix: u64) -> BTreeSet<TaskId> {
        self.expired_until = self.expired_until.max(unix);
        let over = self.tasks.extract_if(.., |_, kept| kept.is_found && kept.task.expires <= unix);
        let over: Vec<(u64, Kept)> = over.collect();
        let ids = over.iter().map(|(_, kept)| kept.task.id).collect();
        self.expired.extend(over.into_iter().map(|(place, kept)| (place, Kept { is_expired: true, ..kept })));
        ids
    }

    /// Checks what [`crate::task::store::Store::get`] has answered.
    pub(super) fn check_get(&mut self, owner: &Owner, id: TaskId, answer: Option<&Task>) {
        let expected = self.kept(id).filter(|kept| kept.task.owner == *owner);
        assert_eq!(answer.map(look), expected.as_ref().map(|kept| look(&kept.task)));
    }

    /// Checks what [`crate::task::store::Store::end`] has answered.
    pub(super) fn check_end(&mut self, owner: &Owner, id: TaskId, answer: Option<&End>) {
        let expected = self.kept(id).filter(|kept| kept.task.owner == *owner);
        assert!(answer == expected.and_then(|kept| kept.end.as_ref()), "not the end of {id}");
    }

    /// Checks what [`crate::task::store::Store::page`] has answered.
    pub(super) fn check_page<'a>(
        &self,
        owner: &Owner,
        order: PageOrder,
        count: usize,
        answer: impl Iterator<Item = (u64, &'a Task)>,
    ) {
        let mut expected: Vec<_> = self.of(owner).map(|(place, task)| (place, look(task))).collect();
        match order {
            PageOrder::OldestFirst { after } => expected.retain(|(place, _)| after.is_none_or(|after| *place > after)),
            PageOrder::NewestFirst { before } => {
                expected.retain(|(place, _)| before.is_none_or(|before| *place < before));
                expected.reverse();
            }
        }
        expected.truncate(count);
        assert_eq!(answer.map(|(place, task)| (place, look(task))).collect::<Vec<_>>(), expected);
    }

    /// Returns whether an owner has tasks.
    pub(super) fn has_any(&self, owner: &Owner) -> bool {
        self.tasks.values().any(|kept| kept.is_found && kept.task.owner == *owner)
    }

    /// Goes on with what a start has found, once it is sure that the end of the last process may have left that: all
    /// that was acknowledged, each of the calls `under_way` wholly or not at all, and texts for a person as far as they
    /// were written. Returns the time by which tasks had been removed.
    pub(super) fn restart(&mut self, found: Vec<Found>, under_way: &[Call], was_killed: bool, next: u64) -> u64 {
        let mut before = std::mem::take(&mut self.tasks);
        assert!(next <= self.next && next > found.last().map_or(0, |found| found.place), "{next} is not a new place");
        assert!(next > self.last, "a place is used again");
        let acknowledged = before.iter().filter(|(_, kept)| kept.is_found).map(|(place, _)| *place);
        let acknowledged: BTreeSet<u64> = acknowledged.collect();
        if was_killed {
            before.append(&mut self.expired);
        }
        for Found { place, task, end, call } in found {
            let kept = before.remove(&place).unwrap_or_else(|| panic!("{task:?} was never created, or was removed"));
            let kept = if kept.is_expired {
                // A change of it that came too late may have been written.
                assert_eq!((kept.task.id, &kept.task.owner), (task.id, &task.owner));
                Kept { durable: task.version, task, end, call, is_expired: false, ..kept }
            } else {
                kept.found_again(task, end.as_ref(), call.as_ref(), under_way, was_killed)
            };
            self.last = self.last.max(place);
            self.ends.insert(kept.task.id, usize::from(kept.task.state.is_terminal()));
            self.tasks.insert(place, kept);
        }
        for (_, lost) in before.iter().filter(|(place, _)| acknowledged.contains(place)) {
            let removes = |call: &Call| matches!(call, Call::RemoveAll(owner) if *owner == lost.task.owner);
            assert!(under_way.iter().any(removes), "{:?} is lost", lost.task);
            let owned = |place: &u64| self.tasks.get(place).is_some_and(|kept| kept.task.owner == lost.task.owner);
            assert!(!acknowledged.iter().any(owned), "of its owner's tasks only some are gone, as {:?}", lost.task);
        }
        self.next = next;
        self.expired.clear();
        self.watchers.clear();
        self.expired_until
    }
}

impl Kept {
    fn replace(&mut self, next: &Task, end: Option<&End>, call: &CallChange) {
        let task = &self.task;
        assert!(!task.state.is_terminal(), "an end was left");
        assert!(task.owner == next.owner);
        assert!(next.state.is_terminal() || (task.ttl, task.expires) == (next.ttl, next.expires));
        assert!(task.shortens || task.expires <= next.expires, "kept for less than was told");
        assert!(task.last_updated_at <= next.last_updated_at);
        (self.task, self.end) = (next.clone(), end.cloned());
        match call {
            _ if next.state.is_terminal() => self.call = None,
            CallChange::Keep => {}
            CallChange::Set(call) => self.call = Some(call.clone()),
        }
    }

    /// Returns the task as a start has found it.
    fn found_again(
        mut self,
        task: Task,
        end: Option<&End>,
        call: Option<&SavedCall>,
        under_way: &[Call],
        was_killed: bool,
    ) -> Self {
        let is_next = |next: &Task, its_end: &Option<End>| look(next) == look(&task) && its_end.as_ref() == end;
        let is_made = |call: &&Call| matches!(call, Call::Replace(next, its_end, _) if is_next(next, its_end));
        if let Some(Call::Replace(next, end, call)) = under_way.iter().find(is_made)
            && next.version == self.task.version + 1
        {
            self.replace(next, end.as_ref(), call);
        }
        let oldest = if was_killed { self.durable } else { self.task.version };
        assert!((oldest..=self.task.version).contains(&task.version), "{task:?} instead of {:?}", self.task);
        let version = task.version;
        assert_eq!(look(&Task { version, ..self.task.clone() }), look(&task));
        assert!(end == self.end.as_ref(), "not the end of {task:?}");
        assert_eq!(call, self.call.as_ref(), "not the call of {task:?}");
        Self { durable: version, task, is_found: true, ..self }
    }
}
