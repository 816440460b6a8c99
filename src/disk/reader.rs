//! The threads that read, each with a connection of its own.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::Unavailable;

/// How many threads read. A slow read holds up one of them.
const THREADS: usize = 2;
/// How many reads may wait.
const MAX_WAITING: usize = 4096;
/// How long the end waits for reads: a disk that hangs must not keep the process.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Something to read.
pub(super) type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The threads that read.
#[derive(Debug)]
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<thread::ThreadId>,
    /// Disconnected when all threads have ended.
    ended: Mutex<mpsc::Receiver<()>>,
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
        let (ends, ended) = mpsc::channel();
        let mut readers = Self { shared: Arc::default(), threads: Vec::new(), ended: Mutex::new(ended) };
        // Dropped before `readers`, which waits for the threads, where one cannot be started.
        let ends = ends;
        for number in 0..THREADS {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = Connection::open_with_flags(path, flags)?;
            // As the connection that writes does, it trusts nothing that the file says of itself.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
            connection.pragma_update(None, "mmap_size", 0)?;
            connection.pragma_update(None, "cell_size_check", true)?;
            connection.pragma_update(None, "query_only", true)?;
            let (shared, ends) = (Arc::clone(&readers.shared), ends.clone());
            let thread = thread::Builder::new().name(format!("disk-read-{number}"));
            let spawned = thread.spawn(move || {
                serve(&shared, &connection);
                drop((connection, ends));
            })?;
            readers.threads.push(spawned.thread().id());
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
        let left = {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            std::mem::take(&mut queue.waiting)
        };
        self.shared.wake.notify_all();
        // Whoever waits for a read keeps the file open, so nobody waits for these.
        drop(left);
        // The last owner may be a read itself.
        if !self.threads.contains(&thread::current().id()) {
            // Where it is not in time, the file is closed without them.
            let _ = self.ended.lock().recv_timeout(CLOSE_TIMEOUT);
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
        // Its caller learns that it gave no answer. A panic of one read must not take the thread from all the others:
        // nothing waits for a thread that has ended, and once none is left, no read is answered.
        if catch_unwind(AssertUnwindSafe(|| read(connection))).is_err() {
            tracing::error!("a read of the store has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk, OpenOptions};

    fn opened() -> (tempfile::TempDir, Disk) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store");
        let options = OpenOptions { path, key: None, old_keys: Vec::new(), max_bytes: 1 << 26 };
        let (disk, _) = Disk::open(&options, &Arc::default()).expect("new");
        (folder, disk)
    }

    #[tokio::test]
    async fn reads_that_panic_are_answered_with_an_error_and_others_go_on() {
        let (_folder, disk) = opened();
        for _ in 0..2 * THREADS {
            let panics = |connection: &Connection| -> rusqlite::Result<()> {
                let mut all = connection.prepare("SELECT batch FROM state")?;
                let mut rows = all.query(())?;
                let row = rows.next()?;
                assert!(row.is_none(), "this panic is a part of the test");
                Ok(())
            };
            let refused = disk.read_all(panics).await.expect_err("it gave no answer");
            assert_eq!(&*refused.0, "it gave no answer");
        }
        let batch =
            disk.read(|connection| connection.query_row("SELECT batch FROM state", (), |row| row.get::<_, i64>(0)));
        assert!(batch.await.is_ok());
    }

    #[tokio::test]
    async fn a_read_that_hangs_does_not_keep_the_end_waiting() {
        let (_folder, disk) = opened();
        let ((go, hangs), (tell, begun)) = (mpsc::channel::<()>(), mpsc::channel());
        let read = disk.begin_read(move |_| {
            tell.send(()).expect("it is waited for");
            Ok(hangs.recv().is_err())
        });
        begun.recv().expect("it has begun");
        assert!(disk.close(), "nothing waited to be written");
        drop(disk);
        drop(go);
        assert_eq!(read.expect("room").await, Ok(Ok(true)), "it was still read");
    }

    #[tokio::test]
    async fn what_is_read_is_checked_as_what_is_written_is() {
        let (_folder, disk) = opened();
        let checks = |connection: &Connection| {
            let is_on = |config| connection.db_config(config);
            let sizes: bool = connection.pragma_query_value(None, "cell_size_check", |row| row.get(0))?;
            Ok([sizes, is_on(DbConfig::SQLITE_DBCONFIG_DEFENSIVE)?, !is_on(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA)?])
        };
        assert_eq!(disk.read(checks).await, Ok([true; 3]));
        assert_eq!(disk.write(checks).await, Ok([true; 3]));
    }
}
