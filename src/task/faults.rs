//! The engine over a store that fails, forgets to answer or is changed by others, at every call in the life of a task.

use std::{sync::Arc, time::Duration};

use super::{
    Change, Clock, End, Ending, Engine, Missing, NotCancelled, Refused, State, Task,
    ledger::NotChanged,
    outcome,
    state::tests::{result, task},
    store::{
        MaxKept, MemoryStore, Store,
        faulty::{Fault, Faulty},
    },
    tiny::{create, limits},
};
use crate::{
    identity::Owner,
    session::{self, Session},
};

const RESULT: &str = r#"{"content":[]}"#;

struct House {
    store: Arc<Faulty>,
    engine: Arc<Engine>,
    session: Arc<Session>,
}

impl House {
    fn new(fault: Fault) -> Self {
        let (clock, max) = (Clock::start(), MaxKept::of_tasks(usize::MAX, usize::MAX));
        let store = Faulty::new(MemoryStore::new(max, clock, Arc::default()), fault);
        let engine = Engine::start(Arc::clone(&store) as Arc<dyn Store>, clock, limits(), Arc::default());
        Self { store, engine, session: session::alone() }
    }

    fn owner(&self) -> &Owner {
        &self.session.caller.owner
    }

    async fn create(&self) -> Result<(), Refused> {
        create(&self.engine, &self.session).await.map(drop)
    }

    /// The tasks that there are, as the store has them when it works.
    async fn tasks(&self) -> Vec<Arc<Task>> {
        let page = self.until(|| self.store.page(self.owner(), None, usize::MAX)).await;
        page.into_iter().map(|(_, task)| task).collect()
    }

    async fn until<'a, T>(&self, ask: impl Fn() -> super::store::Answer<'a, T>) -> T {
        loop {
            if let Ok(answer) = ask().await {
                return answer;
            }
        }
    }

    /// Asks for the end until the store answers.
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

/// Every fault at every call that `life` makes: until a life has fewer calls than the fault waits for.
async fn at_every_call(life: impl AsyncFn(House)) {
    let faults: [fn(usize) -> Fault; 4] =
        [|at| Fault::Fails(at, 1), |at| Fault::Fails(at, 7), Fault::IsLost, Fault::LosesTheRace];
    life(House::new(Fault::Waits)).await;
    for fault in faults {
        for at in 0.. {
            let house = House::new(fault(at));
            let store = Arc::clone(&house.store);
            life(house).await;
            if store.calls() <= at {
                assert!(at > 0, "no call was made");
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_acknowledged_and_there_or_refused_and_never_left_running() {
    at_every_call(async |house| {
        let created = house.create().await;
        if let Err(refused) = &created {
            assert!(matches!(refused, Refused::Unavailable), "{refused}");
            // What may be there is ended behind the client's back.
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        let states: Vec<State> = house.tasks().await.iter().map(|task| task.state).collect();
        match created {
            Ok(()) => assert_eq!(states, [State::Working]),
            Err(_) => assert!(states.is_empty() || states == [State::Ended(Ending::Error)], "{states:?}"),
        }
        let running = house.engine.close().len();
        assert_eq!(running, states.iter().filter(|state| !state.is_terminal()).count(), "a call without its task");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_end_is_written_as_soon_as_that_is_possible_and_once() {
    at_every_call(async |house| {
        if house.create().await.is_err() {
            return;
        }
        let task = house.tasks().await.remove(0);
        house.engine.finish(house.owner(), task.id, result(RESULT), None).await;
        let ended = house.tasks().await.remove(0);
        assert_eq!(ended.state, State::Ended(Ending::Result));
        assert_eq!(house.collect(&task).await, Some(End::Result { raw: RESULT.into(), is_error: false }));
        assert_eq!(house.engine.close(), [], "its call is still said to run");
        // A late failure changes nothing.
        house.engine.finish(house.owner(), task.id, outcome::failed("late"), None).await;
        assert!(house.tasks().await.remove(0).is(&ended));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_holds_or_says_that_it_may_not() {
    at_every_call(async |house| {
        if house.create().await.is_err() {
            return;
        }
        let task = house.tasks().await.remove(0);
        if let Err(why) = house.engine.cancel(house.owner(), &house.session.caller.who, task.id).await {
            assert_eq!(why, NotCancelled::Missing(Missing::Unavailable));
            // It is cancelled behind the client's back, as soon as that is possible.
            tokio::time::sleep(Duration::from_secs(30)).await;
        }
        assert_eq!(house.tasks().await.remove(0).state, State::Ended(Ending::Cancelled));
        assert_eq!(house.engine.close(), [], "its call is still said to run");
        house.engine.finish(house.owner(), task.id, result(RESULT), None).await;
        assert_eq!(house.tasks().await.remove(0).state, State::Ended(Ending::Cancelled));
        assert_eq!(house.collect(&task).await, Some(End::Cancelled));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn polls_and_lists_tell_what_is_there_or_that_the_store_does_not_answer() {
    at_every_call(async |house| {
        if house.create().await.is_err() {
            return;
        }
        let task = house.tasks().await.remove(0);
        for _ in 0..3 {
            let polled = house.engine.poll(house.owner(), task.id, &house.session.caller.who).await;
            assert!(matches!(polled.map(|polled| polled.is(&task)), Ok(true) | Err(Missing::Unavailable)));
            let listed = house.engine.page(house.owner(), None, 10).await;
            assert!(matches!(listed.map(|listed| listed.len()), Ok(1) | Err(Missing::Unavailable)));
            assert!(house.engine.may_have(house.owner(), task.id).await);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_an_owner_that_goes_nothing_is_left() {
    at_every_call(async |house| {
        let _ = house.create().await;
        let _ = house.create().await;
        house.engine.end_session(&house.session).await;
        assert_eq!(house.engine.close(), [], "a call without a task runs");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(house.tasks().await.len(), 0);
        house.engine.without_tasks(house.owner()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_session_whose_tasks_are_not_known_is_kept() {
    let house = House::new(Fault::Fails(0, 1));
    assert!(!house.engine.release(&house.session, || true).await);
    assert!(house.engine.release(&house.session, || true).await);
}

#[tokio::test(start_paused = true)]
async fn what_expires_while_the_store_is_out_of_order_is_removed_and_its_call_is_forgotten() {
    for fault in [Fault::Fails(1, 1), Fault::IsLost(1)] {
        let house = House::new(fault);
        let expiring = Task { expires: house.engine.ledger.clock.steady() + 1000, ..task(house.owner()) };
        let stopped = house.engine.register(&expiring, &house.session.caller, false).expect("it does not stop");
        house.store.insert(expiring.clone()).await.expect("in order").expect("room");
        house.engine.without_tasks(house.owner()).await;
        assert_eq!(house.tasks().await.len(), 0, "{fault:?}");
        // Where nothing has said that it was removed, its call goes on to its end.
        house.engine.finish(house.owner(), expiring.id, result(RESULT), None).await;
        stopped.await.expect("a reason");
        assert_eq!(house.engine.close(), [], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_was_made_by_others_is_not_taken_for_ones_own() {
    let house = House::new(Fault::IsLost(2));
    let task = task(house.owner());
    house.store.insert(task.clone()).await.expect("in order").expect("room");
    let change =
        |text: &'static str| house.engine.change(house.owner(), task.id, move |_| Some(Change::Message(text.into())));
    assert!(matches!(change("one").await, Err(NotChanged::Unavailable(_))));
    let kept = house.tasks().await.remove(0);
    assert_eq!((kept.status_message.as_deref(), kept.version), (Some("one"), 1), "made, and not told");
    assert!(matches!(change("two").await, Ok(Some(task)) if task.version == 2));
    let end = house.engine.stop(house.owner(), task.id).await.expect("in order");
    assert_eq!(end.state, State::Ended(Ending::Cancelled));
    assert_eq!(house.store.end(house.owner(), task.id).await, Ok(Some(End::Cancelled)));
}
