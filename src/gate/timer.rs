//! The time that heads of requests have to arrive, which is over at once when the process stops: hyper's graceful end
//! waits for a head that has begun.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use hyper::rt::{Sleep, Timer};
use pin_project_lite::pin_project;

/// hyper's timer for heads.
#[derive(Clone, Debug, Default)]
pub(super) struct HeadTimer {
    stopped: Arc<AtomicBool>,
}

impl HeadTimer {
    /// From now on no time is left. A connection notices it when it is told to end.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: std::time::Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        let sleep = tokio::time::sleep_until(deadline.into());
        Box::pin(HeadTime { stopped: Arc::clone(&self.stopped), sleep })
    }

    fn now(&self) -> Instant {
        // The clock of the tests, too.
        tokio::time::Instant::now().into()
    }
}

pin_project! {
    struct HeadTime {
        stopped: Arc<AtomicBool>,
        #[pin]
        sleep: tokio::time::Sleep,
    }
}

impl Sleep for HeadTime {}

impl Future for HeadTime {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.stopped.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        self.project().sleep.poll(cx)
    }
}
