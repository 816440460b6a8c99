//! A file whose writing thread goes on only when the test lets it, and stops in the middle of each batch and after it.

use std::{
    fs,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::{
    disk::{Disk, Operation, rusqlite},
    task::store::file::testing::folder,
};

/// How long the thread may take for one step.
const PATIENCE: Duration = Duration::from_mins(1);

/// An open file with its folder.
#[derive(Debug)]
pub(super) struct SteppedDisk {
    /// Dropped first, so that the thread goes on by itself.
    gate: Mutex<Option<Gate>>,
    /// Whether the next batch fails.
    fails: AtomicBool,
    disk: Disk,
    folder: TempDir,
}

/// An operation that holds up the thread twice: where it runs, and where it is told.
#[derive(Debug)]
struct Gate {
    reached: Receiver<()>,
    /// What opens it when it is dropped: in the middle of the batch, which fails if something is sent instead, and once
    /// the operations before it were told.
    middle: Option<Sender<()>>,
    _end: Sender<()>,
}

impl Gate {
    /// Puts a gate behind what waits for the disk.
    fn put(disk: &Disk) -> Self {
        let (reach, reached) = channel();
        let ((middle, middle_opens), (end, end_opens)) = (channel::<()>(), channel::<()>());
        let tell = reach.clone();
        // The test may have left.
        let run = move |_: &_| {
            let _ = reach.send(());
            let fails = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None);
            middle_opens.recv().map_or(Ok(()), |()| Err(fails()))
        };
        let done = move |_| {
            let _ = tell.send(());
            let _ = end_opens.recv();
        };
        disk.submit(Operation::new(run, done)).expect("room");
        Self { reached, middle: Some(middle), _end: end }
    }

    fn wait(&self) {
        self.reached.recv_timeout(PATIENCE).expect("the thread that writes has ended or hangs");
    }
}

impl SteppedDisk {
    /// Stops the writing thread between two batches.
    pub(super) fn new(disk: Disk, folder: TempDir) -> Self {
        let mut gate = Gate::put(&disk);
        gate.wait();
        gate.middle = None;
        gate.wait();
        Self { gate: Mutex::new(Some(gate)), fails: AtomicBool::default(), disk, folder }
    }

    /// Lets the writing thread run the operations that wait, or commit them and tell those before the gate.
    pub(super) fn step(&self) {
        let mut gate = self.gate.lock();
        let Some(held) = &mut *gate else { return };
        match held.middle.take() {
            Some(middle) if self.fails.swap(false, Ordering::Relaxed) => middle.send(()).expect("the thread waits"),
            Some(middle) => drop(middle),
            None => *gate = Some(Gate::put(&self.disk)),
        }
        if let Some(held) = &*gate {
            held.wait();
        }
    }

    /// Has the next batch fail, or not.
    pub(super) fn fail_next_batch(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Writes what waits, and closes the file.
    pub(super) fn close(&self) {
        drop(self.gate.lock().take());
        assert!(self.disk.close(), "the disk takes everything");
    }

    /// Returns a folder with the file as it is now, as the end of the process would leave it.
    pub(super) fn copy(&self) -> TempDir {
        let copy = folder();
        for suffix in ["", "-wal", "-mark"] {
            let name = format!("store{suffix}");
            let (from, to) = (self.folder.path().join(&name), copy.path().join(&name));
            assert!(!from.exists() || fs::copy(from, to).is_ok(), "no room");
        }
        copy
    }
}
