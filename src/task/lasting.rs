//! Work that goes on to its end even if the handler that has begun it is dropped: hyper drops a handler whose client
//! has left.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

/// Work that goes on, in a task of its own, when it is dropped before its end.
pub struct LastingWork<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send> LastingWork<T> {
    /// Prepares work, which begins when it is first polled, or dropped.
    pub fn new(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl<T: Send> Future for LastingWork<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out, so that work that panics is not polled again.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<T: Send> Drop for LastingWork<T> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

impl<T: Send> fmt::Debug for LastingWork<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastingWork").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_whether_it_is_waited_for_or_not() {
        for waits in [true, false] {
            let ((go, went), (done, ended)) = (oneshot::channel::<()>(), oneshot::channel());
            let mut work = Box::pin(LastingWork::new(async move {
                let _ = went.await;
                let _ = done.send(());
            }));
            assert!((&mut work).now_or_never().is_none());
            drop(go);
            if waits {
                work.await;
            } else {
                drop(work);
            }
            ended.await.expect("it came to its end");
        }
    }
}
