//! How an answer passes from a thread of this room to a task of the runtime.

use tokio::sync::oneshot::Receiver;

use super::Unavailable;

/// Waits for an answer of the disk.
///
/// # Errors
/// [`Unavailable`] if its thread has ended.
pub async fn answer<T>(answered: &mut Receiver<T>) -> Result<T, Unavailable> {
    // A paused clock jumps to the next timer while tasks only wait for a thread, unless a blocking task runs.
    #[cfg(test)]
    let (_awake, asleep) = std::sync::mpsc::channel::<()>();
    #[cfg(test)]
    tokio::task::spawn_blocking(move || asleep.recv());
    answered.await.map_err(|_| Unavailable("its thread has ended".into()))
}
