//! Work that has to be done to its end, whether the one who has begun it waits for that or not: hyper drops a handler
//! whose client has left.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

/// Such work. Dropped before its end, it goes on in a task of its own.
pub(super) struct Lasting(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Lasting {
    pub(super) fn new(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl Future for Lasting {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(work) = &mut self.0 {
            ready!(work.as_mut().poll(cx));
        }
        self.0 = None;
        Poll::Ready(())
    }
}

impl Drop for Lasting {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
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
            let mut work = Box::pin(Lasting::new(async move {
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
