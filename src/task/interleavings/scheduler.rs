//! Polls futures in a given order, and only those that were woken. The disk takes part as one of them.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use super::checked::CheckedStore;

/// A future that the scheduler polls until it is done.
struct Actor {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

/// Whether an actor was woken since its last poll. The thread that writes wakes only while the scheduler waits for it.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Decides which actor goes on.
pub(super) struct Scheduler {
    actors: Vec<Actor>,
    order: std::vec::IntoIter<u8>,
}

impl Scheduler {
    /// Returns a scheduler that chooses by the bytes of `order`, and then always the first.
    pub(super) fn new(order: Vec<u8>) -> Self {
        Self { actors: Vec::new(), order: order.into_iter() }
    }

    /// Adds an actor.
    pub(super) fn add(&mut self, future: impl Future<Output = ()> + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.actors.push(Actor { future: Box::pin(future), woken });
    }

    /// Runs until no actor can go on and the disk has nothing to do, and returns how many wait.
    pub(super) fn run(&mut self, store: &CheckedStore) -> usize {
        while self.turn(store) {}
        self.actors.len()
    }

    /// Runs for so many turns, and leaves every actor where it is.
    pub(super) fn run_and_stop(&mut self, store: &CheckedStore, turns: usize) {
        for _ in 0..turns {
            self.turn(store);
        }
        self.actors.clear();
    }

    /// Lets one actor go on, or the disk. Returns whether any could.
    fn turn(&mut self, store: &CheckedStore) -> bool {
        let able = |actor: &Actor| actor.woken.0.load(Ordering::Relaxed);
        let able: Vec<usize> = (0..self.actors.len()).filter(|at| able(&self.actors[*at])).collect();
        let choices = able.len() + usize::from(store.waits_for_disk());
        let Some(turn) = usize::from(self.order.next().unwrap_or(0)).checked_rem(choices) else { return false };
        let Some(&turn) = able.get(turn) else {
            store.step_disk();
            return true;
        };
        let actor = &mut self.actors[turn];
        actor.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&actor.woken));
        if actor.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(self.actors.swap_remove(turn));
        }
        true
    }
}
