//! How an answer passes from a thread of this room to a task of the runtime.

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    task::Context,
    time::Duration,
};

use tokio::sync::oneshot::Receiver;

use super::{Unavailable, wakes::gatherable};

/// How long a caller waits for a small write or a read.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits for the answer to something small.
///
/// # Errors
/// [`Unavailable`] if the answer does not come in time; it may still come.
pub async fn answer<T>(answered: &mut Receiver<T>) -> Result<T, Unavailable> {
    let slow = |_| Unavailable(format!("the disk did not answer within {} s", PATIENCE.as_secs()).into());
    tokio::time::timeout(PATIENCE, answer_at_last(answered)).await.map_err(slow)?
}

/// Waits for an answer for as long as it takes.
///
/// # Errors
/// [`Unavailable`] if the thread has ended, or the operation has panicked.
pub async fn answer_at_last<T>(answered: &mut Receiver<T>) -> Result<T, Unavailable> {
    // A paused clock jumps to the next timer while tasks only wait for a thread, unless a blocking task runs.
    #[cfg(test)]
    let (_awake, asleep) = std::sync::mpsc::channel::<()>();
    #[cfg(test)]
    tokio::task::spawn_blocking(move || asleep.recv());
    let told = poll_fn(|cx| Pin::new(&mut *answered).poll(&mut Context::from_waker(&gatherable(cx.waker()))));
    told.await.map_err(|_| Unavailable("it gave no answer".into()))
}
