//! The engine's changes over the real store, in random interleavings: actors go on in a random order at every point
//! where they wait for the store, and each answer of the store is compared with a model's.

mod checked;
mod disk;
mod model;
mod scheduler;
mod sessions;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use proptest::{collection::vec, prelude::*};

use self::{
    checked::{CheckedStore, Kind},
    scheduler::Scheduler,
};
use super::{
    Change, Clock, Engine, Limits, MaxWaiters, Missing, NotCancelled, Task, TaskId, WaitLimit,
    ledger::NotChanged,
    state::tests::{error, result, task},
    store::{MaxKept, PageOrder, SavedCall, Store, file::testing::file_cases},
};
use crate::{flow::Capacity, identity::Owner, limit::Totals};

const MAX_PER_OWNER: usize = 4;
const MAX: usize = 6;
/// A result that the file takes in pieces.
const LARGE: usize = 300_000;
const MAX_WAITERS: usize = 2;
const WAITERS: MaxWaiters = MaxWaiters { task: MAX_WAITERS, owner: usize::MAX, all: usize::MAX };

/// When the tasks of tests are created, by the clock of tests.
const BEGINNING: u64 = 1000;

/// What one actor does, to the task or the owner that its number chooses.
#[derive(Clone, Copy, Debug)]
enum Act {
    Create {
        lives: u64,
        /// How long it is kept after its end, in seconds.
        keep: u64,
        /// Whether its end may make its ttl shorter.
        shortens: bool,
    },
    Complete,
    CompleteLarge,
    Fail,
    Cancel,
    Ask,
    Resume,
    Tell,
    Await,
    List,
    /// Another owner does whatever needs the task's owner.
    Intrude,
    Expire {
        after: u64,
    },
    /// The cache evicts a task.
    Evict,
    /// The disk fails once.
    Break,
    EndOwner,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An actor begins.
    Act(Act, usize),
    /// The process ends after so many turns, and starts again. A store that ends with it skips this.
    Restart { turns: usize, is_killed: bool },
}

fn steps() -> impl Strategy<Value = Step> {
    let act = prop_oneof![
        6 => (0..4_u64, 58..66_u64, any::<bool>())
            .prop_map(|(lives, keep, shortens)| Act::Create { lives, keep, shortens }),
        2 => Just(Act::Complete),
        1 => Just(Act::CompleteLarge),
        2 => Just(Act::Fail),
        2 => Just(Act::Cancel),
        1 => Just(Act::Ask),
        1 => Just(Act::Resume),
        2 => Just(Act::Tell),
        3 => Just(Act::Await),
        1 => Just(Act::List),
        1 => Just(Act::Intrude),
        1 => (0..6_u64).prop_map(|after| Act::Expire { after }),
        1 => Just(Act::Evict),
        1 => Just(Act::Break),
        1 => Just(Act::EndOwner),
    ];
    prop_oneof![
        20 => (act, 0..MAX).prop_map(|(act, number)| Step::Act(act, number)),
        1 => (0..80_usize, any::<bool>()).prop_map(|(turns, is_killed)| Step::Restart { turns, is_killed }),
    ]
}

/// What the actors share.
struct Setup {
    engine: Arc<Engine>,
    store: Arc<CheckedStore>,
    /// What was created, in the order of the acknowledgements.
    acknowledged: Mutex<Vec<Task>>,
    /// What each actor that ended a task made of it.
    ended: Mutex<BTreeMap<TaskId, Vec<Task>>>,
}

fn owner(number: usize) -> Owner {
    Owner::principal("/mcp".into(), ["ann", "bob"][number % 2].into())
}

impl Setup {
    fn new(kind: Kind) -> Arc<Self> {
        let clock = Clock::starting_at(BEGINNING);
        let store = CheckedStore::new(kind, MaxKept::of_tasks(MAX_PER_OWNER, MAX), clock);
        Arc::new(Self::on(store, clock))
    }

    fn on(store: CheckedStore, clock: Clock) -> Self {
        let turns = Totals {
            running_per_owner: 1,
            running: 1,
            queued_per_owner: 1,
            queued: 1,
            queued_bytes_per_owner: usize::MAX,
            queued_bytes: usize::MAX,
        };
        let (limits, store) =
            (Limits { waiters: WAITERS, turns, capacity: Capacity::new(1024, 1024) }, Arc::new(store));
        let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, clock, limits, Arc::default());
        Self { engine, store, acknowledged: Mutex::default(), ended: Mutex::default() }
    }

    /// Returns what a process is that starts after this one; `None` where nothing outlives a process.
    fn restarted(&self, is_killed: bool) -> Option<Arc<Self>> {
        let store = self.store.restarted(is_killed)?;
        let take = |ended: &Mutex<_>| Mutex::new(std::mem::take(&mut *ended.lock()));
        let acknowledged = Mutex::new(std::mem::take(&mut *self.acknowledged.lock()));
        let next = Self::on(store, self.engine.ledger.clock);
        Some(Arc::new(Self { acknowledged, ended: take(&self.ended), ..next }))
    }

    /// Returns the moment so many seconds after the first ttl is over.
    fn at(seconds: u64) -> u64 {
        BEGINNING + 1000 * (60 + seconds)
    }

    async fn act(self: Arc<Self>, act: Act, number: usize) {
        let task = {
            let acknowledged = self.acknowledged.lock();
            number.checked_rem(acknowledged.len()).map(|at| acknowledged[at].clone())
        };
        match (act, task) {
            (Act::Create { lives, keep, shortens }, _) => {
                let (expires, keep) = (Self::at(lives), 1000 * keep);
                let created = super::state::tests::task(&owner(number));
                self.create(Task { keep, shortens, expires, ..created }).await;
            }
            (Act::Break, _) => self.store.fail_next_batch(true),
            (Act::Evict, Some(task)) => self.store.evict(task.id),
            (Act::Expire { after }, _) => drop(self.store.expire(Self::at(after)).await),
            (Act::EndOwner, _) => self.engine.end_owner(&owner(number)).await,
            (Act::List, _) => self.list(&owner(number)).await,
            (Act::Await, Some(task)) => self.wait(&task).await,
            (Act::Intrude, Some(task)) => self.intrude(&task).await,
            (_, Some(task)) => self.change(&task, act).await,
            (_, None) => {}
        }
    }

    async fn create(&self, task: Task) {
        let call = SavedCall(task.id.to_string().into());
        if self.store.insert(task.clone(), Some(call)).await == Ok(Ok(())) {
            self.acknowledged.lock().push(task);
        }
    }

    /// Has the engine change a task, and compares its answer with what the store knows.
    async fn change(&self, task: &Task, act: Act) {
        let (owner, id) = (&task.owner, task.id);
        let change = match act {
            Act::Complete => result("{}"),
            Act::CompleteLarge => result(vec![b' '; LARGE]),
            Act::Fail => error("{}"),
            Act::Cancel => Change::cancel(),
            Act::Ask => Change::Ask("what".into()),
            Act::Resume => Change::Resume,
            _ => Change::Message("text".into()),
        };
        match self.engine.change(owner, id, |_| Some(change.clone())).await {
            Ok(Some(task)) if task.state.is_terminal() => self.ended.lock().entry(id).or_default().push(task),
            // The model knows whether the disk has failed.
            Ok(Some(_)) | Err(NotChanged::Unavailable(_)) => {}
            Ok(None) => assert!(!self.store.knows(id), "there, and said to be gone"),
            Err(NotChanged::HasEnded(_)) => {
                assert_eq!(self.store.ends(id), 1, "refused because of an end that never was");
            }
        }
    }

    /// Waits for the end as `tasks/result` does: looks once the watch has begun, and after each change.
    async fn wait(&self, task: &Task) {
        let watch = self.engine.wakes.watch(&task.owner, task.id);
        let Ok(mut watch) = watch else {
            assert_eq!(watch.err(), Some(WaitLimit::Task(MAX_WAITERS)));
            assert_eq!(self.store.count_watchers(task.id, 0), MAX_WAITERS);
            return;
        };
        assert!(self.store.count_watchers(task.id, 1) <= MAX_WAITERS);
        let mut seen = None;
        while let Ok(Some(found)) = self.store.get(&task.owner, task.id).await {
            assert!(seen <= Some(found.version), "versions go back");
            seen = Some(found.version);
            if found.state.is_terminal() {
                break;
            }
            watch.changed().await;
        }
        drop(watch);
        self.store.count_watchers(task.id, -1);
    }

    /// Goes through an owner's tasks in pages of two, as `tasks/list` does: one more tells whether there is a next
    /// page.
    async fn list(&self, owner: &Owner) {
        let before = self.store.of(owner);
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = self.store.page(owner, PageOrder::OldestFirst { after }, 3).await.expect("memory");
            found.extend(page.iter().take(2).map(|(_, task)| task.id));
            if page.len() <= 2 {
                break;
            }
            after = Some(page[1].0);
        }
        // The model checks what it answers.
        self.store.page(owner, PageOrder::NewestFirst { before: after }, 2).await.expect("memory");
        let after = self.store.of(owner);
        let found_once: BTreeSet<TaskId> = found.iter().copied().collect();
        assert_eq!(found_once.len(), found.len(), "listed twice");
        assert!(before.intersection(&after).all(|id| found_once.contains(id)), "kept all the time, and not listed");
    }

    /// Checks that another owner finds nothing of a task.
    async fn intrude(&self, task: &Task) {
        let other = if task.owner == owner(0) { owner(1) } else { owner(0) };
        assert!(matches!(self.store.get(&other, task.id).await, Ok(None)));
        let stopped = self.engine.stop(&other, task.id).await;
        assert_eq!(stopped.err(), Some(NotCancelled::Missing(Missing::NotFound(task.id))));
        assert!(matches!(self.engine.change(&other, task.id, |_| Some(Change::cancel())).await, Ok(None)));
        let listed = self.store.page(&other, PageOrder::ALL, usize::MAX).await.expect("memory");
        assert!(listed.iter().all(|(_, listed)| listed.id != task.id && listed.owner == other));
    }
}

/// Runs every test over each store.
macro_rules! over_each_store {
    ($($test:ident($($argument:ident in $strategy:expr),*);)*) => {
        mod memory {
            use super::*;

            proptest! {
                $(#[test]
                fn $test($($argument in $strategy),*) {
                    super::$test(Kind::Memory, $($argument),*)?;
                })*
            }
        }

        mod file {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(file_cases()))]
                $(#[test]
                fn $test($($argument in $strategy),*) {
                    super::$test(Kind::File, $($argument),*)?;
                })*
            }
        }
    };
}
use over_each_store;

over_each_store! {
    in_every_interleaving_a_task_ends_once_is_kept_and_is_its_owners_alone(
        steps in vec(steps(), 1..40), order in vec(any::<u8>(), 0..200)
    );
}

fn in_every_interleaving_a_task_ends_once_is_kept_and_is_its_owners_alone(
    kind: Kind,
    steps: Vec<Step>,
    order: Vec<u8>,
) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let _entered = runtime.enter();
    let mut setup = Setup::new(kind);
    let mut scheduler = Scheduler::new(order);
    for step in steps {
        match step {
            Step::Act(act, number) => scheduler.add(Arc::clone(&setup).act(act, number)),
            Step::Restart { .. } if kind == Kind::Memory => {}
            Step::Restart { turns, is_killed } => {
                scheduler.run_and_stop(&setup.store, turns);
                setup = setup.restarted(is_killed).expect("it outlives the process");
            }
        }
    }
    let waiting = scheduler.run(&setup.store);
    prop_assert!(waiting <= setup.store.watchers_of_running(), "an actor sleeps through the end of a task");
    for (id, ends) in &*setup.ended.lock() {
        prop_assert_eq!(ends.len(), 1, "{} ended as {:?}", id, ends);
    }
    setup.store.fail_next_batch(false);
    // Every ttl is over.
    let last = Arc::clone(&setup);
    scheduler.add(async move { drop(last.store.expire(Setup::at(3600)).await) });
    prop_assert_eq!(scheduler.run(&setup.store), 0, "an actor waits for a task that is gone");
    for owner in [owner(0), owner(1)] {
        let empty = Arc::clone(&setup);
        scheduler.add(async move {
            assert!(!empty.engine.has_tasks(&owner).await);
            for _ in 0..MAX / 2 {
                assert_eq!(empty.store.insert(task(&owner), None).await, Ok(Ok(())), "what is gone takes room");
            }
        });
    }
    prop_assert_eq!(scheduler.run(&setup.store), 0);
    for task in &*setup.acknowledged.lock() {
        let watches: Vec<_> = (0..MAX_WAITERS).map(|_| setup.engine.wakes.watch(&task.owner, task.id)).collect();
        prop_assert!(watches.iter().all(Result::is_ok), "a watch that has ended takes room");
    }
    Ok(())
}
