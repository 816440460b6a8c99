//! Polls futures in a given order, and only those that were woken.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// A future that the scheduler polls until it is done.
struct Actor {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

/// Whether an actor was woken since its last poll. Everything happens on one thread.
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

    /// Runs until no actor can go on, and returns how many wait.
    pub(super) fn run(&mut self) -> usize {
        loop {
            let able = |actor: &Actor| actor.woken.0.load(Ordering::Relaxed);
            let able: Vec<usize> = (0..self.actors.len()).filter(|at| able(&self.actors[*at])).collect();
            let Some(turn) = usize::from(self.order.next().unwrap_or(0)).checked_rem(able.len()) else {
                return self.actors.len();
            };
            let actor = &mut self.actors[able[turn]];
            actor.woken.0.store(false, Ordering::Relaxed);
            let waker = Waker::from(Arc::clone(&actor.woken));
            if actor.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.actors.swap_remove(able[turn]));
            }
        }
    }
}
