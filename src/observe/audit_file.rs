//! The file of the audit log. A thread of its own writes it: a disk that hangs holds up nothing but that thread.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// How many bytes of lines may wait to be written. More come only where the disk does not take them.
const MAX_WAITING: usize = 16 << 20;
/// How long lines wait for more, so that each does not cost a write of its own.
const GATHER: Duration = Duration::from_millis(50);
/// How long the disk is left alone after it has not taken lines.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// How long the file may take to open at the start.
const OPENS_WITHIN: Duration = Duration::from_secs(5);
/// How long the last lines may take at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A file that lines are appended to. The thread that writes it ends, when it can, after this is dropped.
#[derive(Debug)]
pub(super) struct AuditFile(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
    /// Told when the thread has something to do.
    wake: Condvar,
    /// Told when the thread has done something.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// The bytes of lines that are being written.
    on_their_way: usize,
    /// What came of the first attempt to open the file.
    opened: Option<io::Result<()>>,
    /// Why the last write failed, since somebody has begun to wait for it.
    failed: Option<io::Error>,
    /// Whether somebody waits.
    urgent: bool,
    /// Whether no line comes any more.
    closed: bool,
}

impl AuditFile {
    /// Opens the file, so that a wrong one is found at the start.
    ///
    /// # Errors
    /// If it cannot be opened, or not in time.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let shared = Shared { path, state: Mutex::default(), wake: Condvar::new(), done: Condvar::new() };
        let file = Self(Arc::new(shared));
        let shared = Arc::clone(&file.0);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || shared.write_on())?;
        let until = Instant::now() + OPENS_WITHIN;
        let mut state = file.0.state.lock();
        loop {
            if let Some(opened) = state.opened.take() {
                drop(state);
                return opened.map(|()| file);
            }
            if file.0.done.wait_until(&mut state, until).timed_out() {
                let why = format!("it does not open within {OPENS_WITHIN:?}; a FIFO needs a reader");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
    }

    /// Takes a line, without its end. `false` if there is no room for it.
    pub(super) fn take(&self, line: Vec<u8>) -> bool {
        let mut state = self.0.state.lock();
        if state.waiting.len() + state.on_their_way >= MAX_WAITING {
            return false;
        }
        let first = state.waiting.is_empty();
        state.waiting.extend(line);
        state.waiting.push(b'\n');
        drop(state);
        if first {
            self.0.wake.notify_one();
        }
        true
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// If it cannot be, or not in time. What is left goes on waiting.
    pub(super) fn finish(&self) -> io::Result<()> {
        let Shared { path, state, wake, done } = &*self.0;
        let until = Instant::now() + LAST_LINES;
        let mut state = state.lock();
        state.failed = None;
        state.urgent = true;
        wake.notify_one();
        while !state.waiting.is_empty() || state.on_their_way > 0 {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if done.wait_until(&mut state, until).timed_out() {
                let why = format!("{}: it did not take them within {LAST_LINES:?}", path.display());
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
        }
        Ok(())
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl Shared {
    /// What the thread does.
    fn write_on(&self) {
        let opened = open(&self.path).map(drop);
        self.state.lock().opened = Some(opened);
        self.done.notify_all();
        while let Some(lines) = self.next() {
            let mut left = &*lines;
            let written = open(&self.path).and_then(|mut file| append(&mut file, &mut left));
            let mut state = self.state.lock();
            state.on_their_way = 0;
            if let Err(error) = written {
                let newer = std::mem::replace(&mut state.waiting, left.to_vec());
                state.waiting.extend(newer);
                let error = io::Error::new(error.kind(), format!("{}: {error}", self.path.display()));
                if state.closed {
                    return;
                }
                if !state.urgent {
                    tracing::error!(%error, "the audit log cannot be written; its lines wait");
                }
                state.failed = Some(error);
                state.urgent = false;
                self.done.notify_all();
                let until = Instant::now() + AGAIN_AFTER;
                while !state.urgent && !state.closed && !self.wake.wait_until(&mut state, until).timed_out() {}
            }
            drop(state);
            self.done.notify_all();
        }
    }

    /// The lines to be written next; `None` when there are none left and none will come.
    fn next(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let until = Instant::now() + GATHER;
        while !state.urgent && !state.closed && !self.wake.wait_until(&mut state, until).timed_out() {}
        let lines = std::mem::take(&mut state.waiting);
        state.on_their_way = lines.len();
        Some(lines)
    }
}

/// The file is opened anew for each write, so that it may be moved away and begins anew.
fn open(path: &Path) -> io::Result<File> {
    // Principals are nobody else's business.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes what is left. What a full disk has taken, be it a part of a line, is not written again.
fn append(to: &mut impl Write, left: &mut &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        match to.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => *left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that has room for so many bytes.
    struct Disk(usize, Vec<u8>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0 - self.1.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.extend_from_slice(&bytes[..room.min(bytes.len())]);
            Ok(room.min(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn where_a_full_disk_took_a_part_of_a_line_the_rest_follows_and_nothing_comes_twice() {
        let (mut disk, mut left) = (Disk(7, Vec::new()), &b"first\nsecond\n"[..]);
        let error = append(&mut disk, &mut left).expect_err("it is full");
        assert_eq!((error.kind(), left), (io::ErrorKind::StorageFull, &b"econd\n"[..]));
        disk.0 = 100;
        append(&mut disk, &mut left).expect("room");
        assert_eq!(disk.1, b"first\nsecond\n");
    }

    #[test]
    fn lines_beyond_what_may_wait_are_lost_and_the_others_are_written_later() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let file = AuditFile::open(path.clone()).expect("a file");
        // A folder takes no lines.
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("a folder in its place");
        let line = vec![b'x'; (1 << 20) - 1];
        let taken = (0..20).filter(|_| file.take(line.clone())).count();
        assert_eq!(taken, 16);
        assert!(file.finish().expect_err("a folder").to_string().contains("audit.jsonl"));
        std::fs::remove_dir(&path).expect("an empty folder");
        while file.finish().is_err() {}
        let written = std::fs::read(&path).expect("text");
        assert_eq!(written, [line, vec![b'\n']].concat().repeat(16));
    }
}
