//! Wake-ups of a connection by itself, followed on the spot.
//!
//! hyper wakes a connection's own task whenever its handler takes a part of a body. Through the scheduler, the request
//! would go on only after all other connections of its thread have had their turn.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// How often in a row a future is polled before other tasks and sockets have their turn. In one poll hyper answers up to
/// 16 requests that a client has sent without waiting for answers.
const MOST_POLLS: usize = 4;

const IDLE: u8 = 0;
const POLLING: u8 = 1;
const AGAIN: u8 = 2;

/// Polls a future again at once where it was woken while it was being polled.
pub(super) struct Inline<F> {
    future: Pin<Box<F>>,
    inner: Arc<Inner>,
    waker: Waker,
}

struct Inner {
    task: AtomicWaker,
    state: AtomicU8,
}

impl Wake for Inner {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let polling = |state| (state != IDLE).then_some(AGAIN);
        // Idle: the task has to be woken. Otherwise the one that polls sees AGAIN: its compare_exchange fails, which
        // pairs with this release.
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, polling).is_err() {
            self.task.wake();
        }
    }
}

impl<F: Future> Inline<F> {
    pub(super) fn new(future: F) -> Self {
        let inner = Arc::new(Inner { task: AtomicWaker::new(), state: AtomicU8::new(IDLE) });
        Self { future: Box::pin(future), waker: Arc::clone(&inner).into(), inner }
    }
}

impl<F: Future> Future for Inline<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        this.inner.task.register(cx.waker());
        for _ in 0..MOST_POLLS {
            // Release: pairs with the acquire of a waker that finds POLLING here. Acquire: this poll sees what a waker did
            // before it stored the AGAIN that is replaced here.
            this.inner.state.swap(POLLING, Ordering::AcqRel);
            if let Poll::Ready(output) = this.future.as_mut().poll(&mut Context::from_waker(&this.waker)) {
                return Poll::Ready(output);
            }
            // Acquire: what a waker did before it stored AGAIN is seen by the next poll. Release: a waker that finds
            // IDLE wakes the task after this poll.
            let still = this.inner.state.compare_exchange(POLLING, IDLE, Ordering::AcqRel, Ordering::Acquire);
            if still.is_ok() {
                return Poll::Pending;
            }
        }
        // Both as above.
        this.inner.state.swap(IDLE, Ordering::AcqRel);
        // Has tokio wake the task after its next look at the sockets. Woken at once, the only task with work would be
        // polled again and again until then.
        let _ = pin!(tokio::task::yield_now()).poll(cx);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::net::UnixStream, sync::atomic::AtomicUsize};

    use super::*;
    use crate::gate::http::Workers;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn polls_with_wakes(wakes: usize) -> (usize, usize, Option<Waker>) {
        let count = Arc::<Count>::default();
        let (mut polls, mut last) = (0, None);
        let future = std::future::poll_fn(|cx| {
            if polls < wakes {
                cx.waker().wake_by_ref();
            }
            polls += 1;
            last = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        let mut inline = Box::pin(Inline::new(future));
        let pending = inline.as_mut().poll(&mut Context::from_waker(&Arc::clone(&count).into())).is_pending();
        assert!(pending);
        drop(inline);
        if let Some(waker) = &last {
            waker.wake_by_ref();
        }
        (polls, count.0.load(Ordering::SeqCst), last)
    }

    #[test]
    fn a_wake_up_by_itself_is_a_poll_and_no_turn_of_the_scheduler() {
        // The one wake-up that is counted came from outside, after the poll.
        assert!(matches!(polls_with_wakes(3), (4, 1, Some(_))));
    }

    #[test]
    fn a_future_that_always_wakes_itself_leaves_the_thread_to_others() {
        assert!(matches!(polls_with_wakes(usize::MAX), (MOST_POLLS, 2, Some(_))));
    }

    #[test]
    fn a_future_that_always_wakes_itself_lets_the_thread_look_at_sockets_first() {
        const BEFORE: usize = 10 * MOST_POLLS;
        let polls = Arc::<Count>::default();
        let seen = Workers::runtime().expect("descriptors").block_on(async {
            let (mut client, ours) = UnixStream::pair().expect("descriptors");
            ours.set_nonblocking(true).expect("it can");
            let ours = tokio::net::UnixStream::from_std(ours).expect("a runtime");
            let counted = Arc::clone(&polls);
            tokio::spawn(Inline::new(std::future::poll_fn(move |cx| {
                if counted.0.fetch_add(1, Ordering::SeqCst) == BEFORE {
                    client.write_all(b"x").expect("it is open");
                }
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })));
            ours.readable().await.expect("it is open");
            polls.0.load(Ordering::SeqCst)
        });
        assert!(seen <= BEFORE + 2 * MOST_POLLS, "{seen} polls until the socket was looked at");
    }
}
