//! A file whose writing thread goes on only when the test lets it, and stops in the middle of each batch and after it.

use std::{
    fs,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::disk::{Disk, Operation};

/// How long the thread may take for one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open file with its folder.
#[derive(Debug)]
pub(super) struct SteppedDisk {
    /// Dropped first, so that the thread goes on by itself.
    gate: Mutex<Option<Gate>>,
    disk: Disk,
    folder: TempDir,
}

/// An operation that holds up the thread twice: where it runs, and where it is told.
#[derive(Debug)]
struct Gate {
    reached: Receiver<()>,
    /// What opens it when it is dropped: in the middle of the batch, and once the operations before it were told.
    middle: Option<Sender<()>>,
    _end: Sender<()>,
}

impl Gate {
    /// Puts a gate behind what waits for the disk.
    fn put(disk: &Disk) -> Self {
        let (reach, reached) = channel();
        let ((middle, middle_opens), (end, end_opens)) = (channel::<()>(), channel::<()>());
        let tell = reach.clone();
        let hold = move |reach: Sender<()>, opens: Receiver<()>| {
            // The test may have left.
            let _ = reach.send(());
            let _ = opens.recv();
        };
        let run = move |_: &_| {
            hold(reach, middle_opens);
            Ok(())
        };
        disk.submit(Operation::new(run, move |_| hold(tell, end_opens))).expect("room");
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
        Self { gate: Mutex::new(Some(gate)), disk, folder }
    }

    /// Lets the writing thread run the operations that wait, or commit them and tell those before the gate.
    pub(super) fn step(&self) {
        let mut gate = self.gate.lock();
        let Some(held) = &mut *gate else { return };
        if held.middle.take().is_none() {
            let next = Gate::put(&self.disk);
            *gate = Some(next);
        }
        if let Some(held) = &*gate {
            held.wait();
        }
    }

    /// Writes what waits, and closes the file.
    pub(super) fn close(&self) {
        drop(self.gate.lock().take());
        assert!(self.disk.close(), "the disk takes everything");
    }

    /// Returns a folder with the file as it is now, as the end of the process would leave it.
    pub(super) fn copy(&self) -> TempDir {
        let copy = tempfile::tempdir().expect("a folder");
        for suffix in ["", "-wal", "-mark"] {
            let name = format!("store{suffix}");
            let (from, to) = (self.folder.path().join(&name), copy.path().join(&name));
            assert!(!from.exists() || fs::copy(from, to).is_ok(), "no room");
        }
        copy
    }
}
