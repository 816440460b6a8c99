//! The one thread that writes: takes what waits as one batch, with one sync, and tells each operation how it went.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use tokio::sync::Notify;

use super::{
    Unavailable,
    batch::Batches,
    cut::LogEnd,
    damage::Damages,
    failed::Outcome,
    mark::Mark,
    queue::{Later, LaterKey, Next, Operation, Queue, Taken},
    standing::Standing,
    time::FileTime,
    wakes::Gathering,
};
use crate::observe::{Observer, events};

/// How long the end of the process waits for the disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a disk that has failed is left alone.
const PAUSE: Duration = Duration::from_millis(50);

/// The thread that writes.
#[derive(Debug)]
pub(super) struct Writer {
    shared: Arc<Shared>,
    /// Disconnected when the thread has ended; taken out by who waits for that.
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Whether the last batch could be written.
    available: AtomicBool,
    /// Bytes of the file that are in use.
    used: AtomicU64,
    /// Notified when these have become fewer.
    freed: Notify,
    /// Whether the thread has ended with all written.
    is_whole: AtomicBool,
}

impl Writer {
    /// Starts the thread.
    pub(super) fn start(
        path: &Path,
        connection: Connection,
        mark: Mark,
        time: FileTime,
        observer: Arc<Observer>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let batches = Batches::new(connection, Standing::of(path)?, LogEnd::of(path)?, mark, time)?;
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            available: AtomicBool::new(true),
            used: AtomicU64::new(batches.used_bytes()),
            freed: Notify::new(),
            is_whole: AtomicBool::new(false),
        });
        let (serving, (ends, ended)) = (Arc::clone(&shared), mpsc::channel());
        let damages = Damages::new(path.to_owned(), Arc::clone(&observer));
        let thread = thread::Builder::new().name("disk-write".to_owned());
        thread.spawn(move || {
            let end = End { shared: Arc::clone(&serving), observer: Arc::clone(&observer) };
            serving.is_whole.store(serve(&serving, batches, damages, &observer), Ordering::Relaxed);
            drop((end, ends));
        })?;
        Ok(Self { shared, ended: Mutex::new(Some(ended)) })
    }

    /// Puts an operation into the queue.
    pub(super) fn submit(&self, operation: Operation) -> Result<(), Unavailable> {
        self.shared.queue.lock().push(operation)?;
        self.shared.wake.notify_one();
        Ok(())
    }

    /// Puts work into the queue that can wait.
    pub(super) fn later(&self, key: LaterKey, work: Later) {
        if self.shared.queue.lock().push_later(key, work) {
            self.shared.wake.notify_one();
        }
    }

    /// Writes what waits and closes the file. Returns whether all of it was written, and in time.
    pub(super) fn close(&self) -> bool {
        self.shared.queue.lock().close();
        self.shared.wake.notify_all();
        // A disk that hangs is waited for once.
        if let Some(ended) = self.ended.lock().take() {
            let _ = ended.recv_timeout(CLOSE_TIMEOUT);
        }
        self.shared.is_whole.load(Ordering::Relaxed)
    }

    pub(super) fn is_available(&self) -> bool {
        self.shared.available.load(Ordering::Relaxed)
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.shared.used.load(Ordering::Relaxed)
    }

    pub(super) async fn freed(&self) {
        self.shared.freed.notified().await;
    }
}

impl Shared {
    fn note_used(&self, used: u64) {
        if self.used.swap(used, Ordering::Relaxed) > used {
            self.freed.notify_one();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Takes no more operations when it is dropped, and drops those that wait: their callers learn that the thread has
/// ended. The operator learns of a panic as of a disk that takes nothing.
struct End {
    shared: Arc<Shared>,
    observer: Arc<Observer>,
}

impl Drop for End {
    fn drop(&mut self) {
        let was_available = self.shared.available.swap(false, Ordering::Relaxed);
        let left = self.shared.queue.lock().close_at_once();
        if thread::panicking() {
            self.observer.emit(events::BatchWritten {
                operations: 0,
                took: Duration::ZERO,
                failed: Some("the thread that writes has panicked, and only a restart of taskgate begins another one"),
                was_available,
                is_available: false,
                file_bytes: 0,
                log_bytes: 0,
                backlog: left.len(),
            });
        }
        drop(left);
    }
}

/// Writes until the queue is closed. Returns whether all was written that waited then.
fn serve(shared: &Shared, mut batches: Batches, mut damages: Damages, observer: &Observer) -> bool {
    let mut is_whole = true;
    // How much work that can wait has failed since it last rested, and, once the queue is closed, since any was done.
    let (mut since_rest, mut at_the_end) = (0, 0);
    while let Some(taken) = next(shared, &mut batches, observer) {
        let (begun, count, later) = (Instant::now(), taken.operations.len(), taken.later.len());
        let Outcome { operations, waiting, undone, untried, result, full, takes } = batches.write(taken);
        let was_available = shared.available.swap(takes, Ordering::Relaxed);
        shared.note_used(batches.used_bytes());
        let (in_vain, is_any_done) = (undone.len() - untried, undone.len() < later);
        let (backlog, is_all_in_vain, is_closed) = {
            let mut queue = shared.queue.lock();
            queue.put_back(waiting);
            queue.again(undone, untried);
            let (is_closed, waits) = (queue.is_closed(), queue.count_later());
            since_rest += in_vain;
            at_the_end = if is_any_done || !is_closed { 0 } else { at_the_end + in_vain };
            if since_rest >= waits {
                if waits > 0 {
                    queue.rest();
                }
                since_rest = 0;
            }
            // Operations that wait may still be done.
            (queue.count(), at_the_end > 0 && at_the_end >= waits && waits == queue.count(), is_closed)
        };
        observer.emit(events::BatchWritten {
            operations: operations.len(),
            took: begun.elapsed(),
            failed: result.as_ref().err().or(full.as_ref()).map(|Unavailable(why)| &**why),
            was_available,
            is_available: takes,
            file_bytes: batches.file_bytes(),
            log_bytes: batches.log_bytes(),
            backlog,
        });
        batches.take_damages().iter().for_each(|damage| damages.tell(damage));
        let (gathering, is_any_told) = (Gathering::begin(), !operations.is_empty());
        for operation in operations {
            operation.tell(&result);
        }
        drop(gathering);
        if is_closed && (result.is_err() || is_all_in_vain) {
            // The process does not wait for a disk that takes nothing, or not what is left.
            tracing::debug!(left = backlog, "the store is closed, and not all was written");
            is_whole = count + backlog == 0;
            break;
        } else if result.is_ok() {
            if is_any_told {
                // Lets those run who were told, so that what they submit can be a part of the next batch.
                thread::yield_now();
            }
            batches.checkpoint_if_long();
        } else {
            thread::sleep(PAUSE);
        }
    }
    batches.close();
    is_whole
}

/// Waits for the next batch, and tidies up while nothing waits. Returns `None` at the end.
fn next(shared: &Shared, batches: &mut Batches, observer: &Observer) -> Option<Taken> {
    let mut chore_at = Instant::now() + batches.chore_after();
    loop {
        // A step of `tidy` may have changed it.
        shared.note_used(batches.used_bytes());
        {
            let mut queue = shared.queue.lock();
            loop {
                let until = match queue.next() {
                    Next::Batch(taken) => return Some(taken),
                    Next::Closed => return None,
                    Next::Wait(flush_at) => flush_at.map_or(chore_at, |flush_at| flush_at.min(chore_at)),
                };
                if Instant::now() >= chore_at {
                    break;
                }
                let _ = shared.wake.wait_until(&mut queue, until);
            }
        }
        if batches.needs_a_batch() {
            return Some(Taken::default());
        }
        match batches.tidy() {
            Ok(()) => {
                let (file_bytes, log_bytes) = (batches.file_bytes(), batches.log_bytes());
                observer.emit(events::StoreTidied { file_bytes, log_bytes });
            }
            Err(why) => tracing::debug!(%why, "the store could not be tidied"),
        }
        chore_at = Instant::now() + batches.chore_after();
    }
}
