//! A try to make a task of a call that runs. The call goes on meanwhile, as a disk may hang for long, and may end
//! first.

use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Adopted;

/// How long the call has to take over its task. After that, the task is given up.
const UNTAKEN: Duration = Duration::from_secs(5);

type Work<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;
/// What a try gives, until the call or [`finish`] takes it.
type Made<T, E> = Arc<Mutex<Option<Result<T, E>>>>;

/// A try, which begins when it is first polled. From then on it comes to its end by itself: the stream that would poll
/// it may have no connection, and the end of a session waits for it. The task that comes of it ends without a word to
/// its client where this is dropped, or is not polled for long. In the second case the try gives `None`.
pub struct Trying<T: Into<Adopted> + Send + 'static, E: Send + 'static>(Stage<T, E>);

enum Stage<T, E> {
    New(Work<T, E>),
    /// In a task of its own, as its first poll was not its last. The sender is dropped when the call has taken what was
    /// made, or wants it no more.
    Goes(oneshot::Receiver<Made<T, E>>, oneshot::Sender<()>),
    Over,
}

impl<T: Into<Adopted> + Send, E: Send> Trying<T, E> {
    /// Prepares a try.
    pub fn new(work: impl Future<Output = Result<T, E>> + Send + 'static) -> Self {
        Self(Stage::New(Box::pin(work)))
    }
}

/// Brings a try to its end, and gives up the task that the call does not take until `over`.
async fn finish<T: Into<Adopted>, E>(work: Work<T, E>, end: oneshot::Sender<Made<T, E>>, over: oneshot::Receiver<()>) {
    let made = Arc::new(Mutex::new(Some(work.await)));
    if end.send(Arc::clone(&made)).is_ok() {
        let _ = tokio::time::timeout(UNTAKEN, over).await;
    }
    let untaken = made.lock().take();
    if let Some(Ok(untaken)) = untaken {
        untaken.into().give_up().await;
    }
}

impl<T: Into<Adopted> + Send, E: Send> Future for Trying<T, E> {
    type Output = Option<Result<T, E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // Taken out, so that work that panics is not polled again.
        let (mut end, taken) = match mem::replace(&mut self.0, Stage::Over) {
            Stage::New(mut work) => {
                // A store in memory is done at once.
                if let Poll::Ready(tried) = work.as_mut().poll(cx) {
                    return Poll::Ready(Some(tried));
                }
                let ((told, end), (taken, over)) = (oneshot::channel(), oneshot::channel());
                tokio::spawn(finish(work, told, over));
                (end, taken)
            }
            Stage::Goes(end, taken) => (end, taken),
            Stage::Over => return Poll::Pending,
        };
        match Pin::new(&mut end).poll(cx) {
            Poll::Ready(Ok(made)) => Poll::Ready(made.lock().take()),
            // It has panicked, and nothing comes of it.
            Poll::Ready(Err(_)) => Poll::Pending,
            Poll::Pending => {
                self.0 = Stage::Goes(end, taken);
                Poll::Pending
            }
        }
    }
}

impl<T: Into<Adopted> + Send, E: Send> fmt::Debug for Trying<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trying").finish_non_exhaustive()
    }
}
