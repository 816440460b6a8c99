//! The threads that read, each with a connection of its own.

use std::{collections::VecDeque, path::Path, sync::Arc, thread};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, OpenFlags};

use super::Unavailable;

/// How many threads read. A slow read holds up one of them.
const THREADS: usize = 2;
/// How many reads may wait.
const MAX_WAITING: usize = 4096;

/// Something to read.
pub(super) type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The threads that read.
#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Read>,
    closed: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Readers {
    /// Opens the connections and starts the threads.
    pub(super) fn start(path: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        let shared = Arc::new(Shared::default());
        let mut readers = Self { shared, threads: Vec::new() };
        for number in 0..THREADS {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            connection.pragma_update(None, "mmap_size", 0)?;
            connection.pragma_update(None, "query_only", true)?;
            let shared = Arc::clone(&readers.shared);
            let thread = thread::Builder::new().name(format!("disk-read-{number}"));
            readers.threads.push(thread.spawn(move || serve(&shared, &connection))?);
        }
        Ok(readers)
    }

    /// Puts a read into the queue.
    pub(super) fn submit(&self, read: Read) -> Result<(), Unavailable> {
        let mut queue = self.shared.queue.lock();
        if queue.waiting.len() >= MAX_WAITING {
            return Err(Unavailable(format!("{MAX_WAITING} reads wait for the disk").into()));
        }
        queue.waiting.push_back(read);
        self.shared.wake.notify_one();
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.wake.notify_all();
        // The last owner may be a read itself.
        for thread in self.threads.drain(..).filter(|thread| thread.thread().id() != thread::current().id()) {
            // A read that has panicked has said so.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared, connection: &Connection) {
    loop {
        let read = {
            let mut queue = shared.queue.lock();
            loop {
                match queue.waiting.pop_front() {
                    Some(read) => break read,
                    None if queue.closed => return,
                    None => shared.wake.wait(&mut queue),
                }
            }
        };
        read(connection);
    }
}
