//! Polls futures in an order that is given, and only those that were woken.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// One that acts, until it is done.
struct Actor {
    future: Pin<Box<dyn Future<Output = ()>>>,
    woken: Arc<Woken>,
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Decides who goes on.
pub(super) struct Scheduler {
    actors: Vec<Actor>,
    order: std::vec::IntoIter<u8>,
}

impl Scheduler {
    /// Chooses by the bytes of `order`, and when they are used up in turn.
    pub(super) fn new(order: Vec<u8>) -> Self {
        Self { actors: Vec::new(), order: order.into_iter() }
    }

    /// Adds somebody.
    pub(super) fn add(&mut self, future: impl Future<Output = ()> + 'static) {
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        self.actors.push(Actor { future: Box::pin(future), woken });
    }

    /// Runs until nobody can go on, and returns how many wait.
    pub(super) fn run(&mut self) -> usize {
        loop {
            let able = |actor: &Actor| actor.woken.0.load(Ordering::SeqCst);
            let able: Vec<usize> = (0..self.actors.len()).filter(|at| able(&self.actors[*at])).collect();
            let Some(turn) = usize::from(self.order.next().unwrap_or(0)).checked_rem(able.len()) else {
                return self.actors.len();
            };
            let actor = &mut self.actors[able[turn]];
            actor.woken.0.store(false, Ordering::SeqCst);
            let waker = Waker::from(Arc::clone(&actor.woken));
            if actor.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                drop(self.actors.swap_remove(able[turn]));
            }
        }
    }
}
