//! The engine over a store that fails, loses its answer or is changed by others, at every call in the life of a task.

use std::{sync::Arc, time::Duration};

use super::{
    Change, Clock, End, Ending, Engine, Missing, NotCancelled, NotCreated, State, Task,
    ledger::NotChanged,
    pace::Pace,
    state::tests::{result, task},
    status_message,
    store::{
        MaxKept, MemoryStore, PageOrder, Store,
        faulty::{Fault, FaultyStore},
        file::testing::{folder, opened},
    },
    tiny::{create, unlimited},
};
use crate::{
    identity::Owner,
    session::{self, Session},
};

const RESULT: &str = r#"{"content":[]}"#;

/// An engine over a store with a fault, and a client's session.
struct Setup {
    store: Arc<FaultyStore>,
    engine: Arc<Engine>,
    session: Arc<Session>,
}

/// What keeps the tasks.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Memory,
    File,
}

const KINDS: [Kind; 2] = [Kind::Memory, Kind::File];

impl Setup {
    async fn new(kind: Kind, fault: Fault) -> Self {
        let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
        let store = match kind {
            Kind::Memory => FaultyStore::new(MemoryStore::new(max, clock, Arc::default()), fault),
            Kind::File => {
                let folder = folder();
                FaultyStore::in_folder(opened(&folder, max, None, Some(clock)).await, Some(folder), fault)
            }
        };
        let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, clock, unlimited(), Arc::default());
        Self { store, engine, session: session::alone() }
    }

    fn owner(&self) -> &Owner {
        &self.session.caller.owner
    }

    async fn create(&self) -> Result<(), NotCreated> {
        create(&self.engine, &self.session).await.map(drop)
    }

    /// Returns the tasks that the store has, once it answers.
    async fn tasks(&self) -> Vec<Arc<Task>> {
        let page = self.until(|| self.store.page(self.owner(), PageOrder::ALL, usize::MAX)).await;
        page.into_iter().map(|(_, task)| task).collect()
    }

    async fn until<'a, T>(&self, ask: impl Fn() -> super::store::StoreFuture<'a, T>) -> T {
        loop {
            if let Ok(answer) = ask().await {
                return answer;
            }
        }
    }

    /// Asks the engine for the end of a task until the store answers.
    async fn collect(&self, task: &Task) -> Option<End> {
        loop {
            match self.engine.retrieve(self.owner(), task.id, &self.session.caller.who).await {
                Ok(end) => return end,
                Err(missing) => {
                    assert_eq!(missing, Missing::Unavailable, "an acknowledged task is said not to be there");
                }
            }
        }
    }
}

/// Runs `life` with every fault at every call that it makes, over each store.
async fn at_every_call(life: impl AsyncFn(Setup)) {
    let faults: [fn(usize) -> Fault; 5] = [
        |at| Fault::Fails { at, count: 1 },
        |at| Fault::Fails { at, count: 7 },
        Fault::IsLost,
        Fault::IsLate,
        Fault::LosesTheRace,
    ];
    for kind in KINDS {
        life(Setup::new(kind, Fault::Waits).await).await;
        for fault in faults {
            for at in 0.. {
                let setup = Setup::new(kind, fault(at)).await;
                let store = Arc::clone(&setup.store);
                life(setup).await;
                if store.calls() <= at {
                    assert!(at > 0, "no call was made");
                    break;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_acknowledged_and_there_or_refused_and_never_left_running() {
    at_every_call(async |setup| {
        let created = setup.create().await;
        if let Err(refused) = &created {
            assert!(matches!(refused, NotCreated::Unavailable), "{refused}");
            // If the store has the task all the same, the engine ends it in the background.
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        let states: Vec<State> = setup.tasks().await.iter().map(|task| task.state).collect();
        match created {
            Ok(()) => assert_eq!(states, [State::Working]),
            Err(_) => assert!(states.is_empty() || states == [State::Ended(Ending::Error)], "{states:?}"),
        }
        let running = setup.engine.close().len();
        assert_eq!(running, states.iter().filter(|state| !state.is_terminal()).count(), "a call without its task");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_end_is_written_as_soon_as_that_is_possible_and_once() {
    at_every_call(async |setup| {
        if setup.create().await.is_err() {
            return;
        }
        let task = setup.tasks().await.remove(0);
        setup.engine.finish(setup.owner(), task.id, result(RESULT), None).await;
        let ended = setup.tasks().await.remove(0);
        assert_eq!(ended.state, State::Ended(Ending::Result));
        assert_eq!(setup.collect(&task).await, Some(End::Result { raw: RESULT.into(), is_error: false }));
        assert_eq!(setup.engine.close(), [], "its call is still said to run");
        // A late failure changes nothing.
        setup.engine.finish(setup.owner(), task.id, status_message::failed("late"), None).await;
        assert!(setup.tasks().await.remove(0).is(&ended));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_holds_or_says_that_it_may_not() {
    at_every_call(async |setup| {
        if setup.create().await.is_err() {
            return;
        }
        let task = setup.tasks().await.remove(0);
        if let Err(why) = setup.engine.cancel(setup.owner(), &setup.session.caller.who, task.id).await {
            assert_eq!(why, NotCancelled::Missing(Missing::Unavailable));
            // The engine cancels it in the background, as soon as the store answers.
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        assert_eq!(setup.tasks().await.remove(0).state, State::Ended(Ending::Cancelled));
        assert_eq!(setup.engine.close(), [], "its call is still said to run");
        setup.engine.finish(setup.owner(), task.id, result(RESULT), None).await;
        assert_eq!(setup.tasks().await.remove(0).state, State::Ended(Ending::Cancelled));
        assert_eq!(setup.collect(&task).await, Some(End::Cancelled));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_the_store_does_not_take_is_tried_again_once_however_often_it_is_asked_for() {
    let Setup { engine, session, store } = Setup::new(Kind::Memory, Fault::Fails { at: 1, count: 100 }).await;
    let task = create(&engine, &session).await.expect("available");
    for _ in 0..20 {
        let refused = engine.cancel(&session.caller.owner, &session.caller.who, task.id).await;
        assert!(matches!(refused, Err(NotCancelled::Missing(Missing::Unavailable))), "{refused:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(engine.ledger.untaken(), 1);
    engine.without_tasks(&session.caller.owner).await;
    assert!(store.calls() > 100 && engine.ledger.untaken() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_fail_a_task_whose_end_the_store_has_not_taken_yet() {
    let Setup { engine, session, store } = Setup::new(Kind::Memory, Fault::Fails { at: 1, count: 1 }).await;
    let task = create(&engine, &session).await.expect("available");
    let (finishing, owner) = (Arc::clone(&engine), session.caller.owner.clone());
    let finishing = tokio::spawn(async move { finishing.finish(&owner, task.id, result(RESULT), None).await });
    while store.calls() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.fail_all("taskgate is stopping").await, 0, "its call has ended");
    finishing.await.expect("no panic");
    let end = engine.retrieve(&session.caller.owner, task.id, &session.caller.who).await;
    assert_eq!(end, Ok(Some(End::Result { raw: RESULT.into(), is_error: false })));
}

#[tokio::test(start_paused = true)]
async fn polls_and_lists_tell_what_is_there_or_that_the_store_does_not_answer() {
    at_every_call(async |setup| {
        if setup.create().await.is_err() {
            return;
        }
        let task = setup.tasks().await.remove(0);
        for _ in 0..3 {
            let polled = setup.engine.poll(setup.owner(), task.id, &setup.session.caller.who).await;
            assert!(matches!(polled.map(|polled| polled.task.is(&task)), Ok(true) | Err(Missing::Unavailable)));
            let listed = setup.engine.page(setup.owner(), PageOrder::ALL, 10).await;
            assert!(matches!(listed.map(|listed| listed.len()), Ok(1) | Err(Missing::Unavailable)));
            assert!(setup.engine.may_have(setup.owner(), task.id).await);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_an_owner_that_goes_nothing_is_left() {
    at_every_call(async |setup| {
        let _ = setup.create().await;
        let _ = setup.create().await;
        setup.engine.end_session(&setup.session).await;
        assert_eq!(setup.engine.close(), [], "a call without a task runs");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(setup.tasks().await.len(), 0);
        setup.engine.without_tasks(setup.owner()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_tasks_are_not_known_is_kept() {
    for kind in KINDS {
        let setup = Setup::new(kind, Fault::Fails { at: 0, count: 1 }).await;
        assert!(!setup.engine.release(&setup.session, || true).await);
        assert!(setup.engine.release(&setup.session, || true).await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_expires_while_the_store_is_out_of_order_is_removed_and_its_call_is_forgotten() {
    for (kind, fault) in KINDS
        .into_iter()
        .flat_map(|kind| [Fault::Fails { at: 1, count: 1 }, Fault::IsLost(1)].map(|fault| (kind, fault)))
    {
        let setup = Setup::new(kind, fault).await;
        let expiring = Task { expires: setup.engine.ledger.clock.steady() + 1000, ..task(setup.owner()) };
        let (caller, pace) = (&setup.session.caller, Pace::Fixed(1000));
        let stopped = setup.engine.register(&expiring, caller, false, pace).expect("it does not stop");
        setup.store.insert(expiring.clone(), None).await.expect("in order").expect("room");
        setup.engine.without_tasks(setup.owner()).await;
        assert_eq!(setup.tasks().await.len(), 0, "{fault:?}");
        // If the store has not reported the removal, the call goes on to its end.
        setup.engine.finish(setup.owner(), expiring.id, result(RESULT), None).await;
        stopped.await.expect("a reason");
        assert_eq!(setup.engine.close(), [], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_does_not_take_a_change_by_others_for_its_own() {
    for kind in KINDS {
        the_engine_knows_its_own_change(Setup::new(kind, Fault::IsLost(2)).await).await;
    }
}

async fn the_engine_knows_its_own_change(setup: Setup) {
    let task = Task { expires: u64::MAX, ..task(setup.owner()) };
    setup.store.insert(task.clone(), None).await.expect("in order").expect("room");
    let change =
        |text: &'static str| setup.engine.change(setup.owner(), task.id, move |_| Some(Change::Message(text.into())));
    assert!(matches!(change("one").await, Err(NotChanged::Unavailable(_))));
    let kept = setup.tasks().await.remove(0);
    assert_eq!((kept.status_message.as_deref(), kept.version), (Some("one"), 1), "made, and not told");
    assert!(matches!(change("two").await, Ok(Some(task)) if task.version == 2));
    let end = setup.engine.stop(setup.owner(), task.id).await.expect("in order");
    assert_eq!(end.state, State::Ended(Ending::Cancelled));
    assert_eq!(setup.store.end(setup.owner(), task.id).await, Ok(Some(End::Cancelled)));
}
