//! The file of the audit log. A thread of its own writes it, so that a disk that hangs holds up that thread alone.

use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use tokio::{sync::SetOnce, time::timeout};

/// How many bytes of lines may wait. So many wait only where the disk takes none.
const MAX_WAITING: usize = 16 << 20;
/// How long lines wait for more, so that each does not cost a write of its own.
const GATHER: Duration = Duration::from_millis(50);
/// How long to wait after a failed write before the next one.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long the file may take for lines before the log says that they wait.
const STALLED: Duration = Duration::from_secs(5);
/// How long the file may take to open at the start.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How long writing the last lines may take at the end of the process.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A file that lines are appended to. The thread that writes it ends, when it can, after this is dropped.
#[derive(Debug)]
pub(super) struct AuditFile(Arc<AuditWriter>);

/// What the thread that writes shares with those that push lines.
#[derive(Debug)]
struct AuditWriter {
    path: PathBuf,
    /// What became of opening the file for the first time.
    opened: SetOnce<io::Result<()>>,
    backlog: Mutex<Backlog>,
    /// Notified when the thread has something to do.
    wake: Condvar,
    /// Notified when the thread has done something.
    done: Condvar,
}

/// The lines to be written, and what happened to those before.
#[derive(Debug, Default)]
struct Backlog {
    waiting: Vec<u8>,
    /// Bytes of the lines that the thread is writing.
    writing: usize,
    /// Since when it is writing them, until the log has said that it takes too long.
    unreported: Option<Instant>,
    /// Whether the last thing that the log says of the file is that its lines wait.
    reported: bool,
    /// Why the last write that failed did so. A `finish` clears it when it begins.
    failed: Option<io::Error>,
    /// Whether a `finish` waits.
    urgent: bool,
    /// Whether the last line has come.
    closed: bool,
}

impl AuditFile {
    /// Starts a thread that opens the file, so that a wrong path is found at the start, and writes the lines that come.
    ///
    /// # Errors
    /// If the system gives no thread. The error names the path.
    pub(super) fn start(path: PathBuf) -> io::Result<Self> {
        let (opened, backlog) = (SetOnce::new(), Mutex::default());
        let writer = AuditWriter { path, opened, backlog, wake: Condvar::new(), done: Condvar::new() };
        let file = Self(Arc::new(writer));
        let writer = Arc::clone(&file.0);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run());
        thread.map_err(|error| file.0.named(error.kind(), &format!("no thread for it: {error}")))?;
        Ok(file)
    }

    /// Waits until the file is open.
    ///
    /// # Errors
    /// If it cannot be opened, or not within 5 s. The error names the path.
    pub(super) async fn opened(&self) -> io::Result<()> {
        match timeout(OPEN_TIMEOUT, self.0.opened.wait()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                let advice = "name a file in a folder that exists and that taskgate's user may write to";
                Err(self.0.named(error.kind(), &format!("{error}; {advice}")))
            }
            Err(_) => {
                let why = format!("it does not open within {OPEN_TIMEOUT:?}; a FIFO needs a reader");
                Err(self.0.named(io::ErrorKind::TimedOut, &why))
            }
        }
    }

    /// Takes a line, without its end. Returns `false` if there is no room for it.
    pub(super) fn push(&self, line: Vec<u8>) -> bool {
        let mut backlog = self.0.backlog.lock();
        let stalled = backlog.unreported.take_if(|since| since.elapsed() > STALLED).is_some();
        backlog.reported |= stalled;
        let has_room = backlog.waiting.len() + backlog.writing < MAX_WAITING;
        let first = has_room && backlog.waiting.is_empty();
        if has_room {
            backlog.waiting.extend(line);
            backlog.waiting.push(b'\n');
        }
        if stalled {
            // Under the lock, so that the end of this is logged after it.
            let why = format!("it has taken no lines for {STALLED:?}; a FIFO needs a reader");
            AuditWriter::report(&self.0.named(io::ErrorKind::TimedOut, &why));
        }
        drop(backlog);
        if first {
            self.0.wake.notify_one();
        }
        has_room
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// If a write fails, or takes too long. The lines that are left go on waiting.
    pub(super) fn finish(&self) -> io::Result<()> {
        let AuditWriter { backlog, wake, done, .. } = &*self.0;
        let until = Instant::now() + FINISH_TIMEOUT;
        let mut backlog = backlog.lock();
        backlog.failed = None;
        backlog.urgent = true;
        wake.notify_one();
        while !backlog.waiting.is_empty() || backlog.writing > 0 {
            if let Some(error) = backlog.failed.take() {
                return Err(error);
            }
            if done.wait_until(&mut backlog, until).timed_out() {
                let why = format!("it did not take them within {FINISH_TIMEOUT:?}");
                return Err(self.0.named(io::ErrorKind::TimedOut, &why));
            }
        }
        Ok(())
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        self.0.backlog.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl AuditWriter {
    /// Opens the file. Then writes lines as they come, until the last one.
    fn run(&self) {
        // Nothing else sets it, so that this cannot fail.
        let _ = self.opened.set(open(&self.path).map(drop));
        while let Some(lines) = self.next() {
            let mut left = &*lines;
            let written = open(&self.path).and_then(|mut file| append(&mut file, &mut left));
            let mut backlog = self.backlog.lock();
            (backlog.writing, backlog.unreported) = (0, None);
            if written.is_ok() && std::mem::take(&mut backlog.reported) {
                tracing::info!(path = %self.path.display(), "the audit log is written again");
            }
            if let Err(error) = written {
                let newer = std::mem::replace(&mut backlog.waiting, left.to_vec());
                backlog.waiting.extend(newer);
                let error = self.named(error.kind(), &error);
                if backlog.closed {
                    return;
                }
                if !backlog.urgent {
                    Self::report(&error);
                    backlog.reported = true;
                }
                backlog.failed = Some(error);
                backlog.urgent = false;
                self.done.notify_all();
                let until = Instant::now() + RETRY_AFTER;
                while !backlog.urgent && !backlog.closed && !self.wake.wait_until(&mut backlog, until).timed_out() {}
            }
            drop(backlog);
            self.done.notify_all();
        }
    }

    fn report(error: &io::Error) {
        tracing::error!(%error, "the audit log cannot be written; its lines wait");
    }

    /// Returns an error that names the path.
    fn named(&self, kind: io::ErrorKind, why: &dyn Display) -> io::Error {
        io::Error::new(kind, format!("{}: {why}", self.path.display()))
    }

    /// Waits for the lines to be written next; `None` when all are written and no more will come.
    fn next(&self) -> Option<Vec<u8>> {
        let mut backlog = self.backlog.lock();
        while backlog.waiting.is_empty() {
            if backlog.closed {
                return None;
            }
            self.wake.wait(&mut backlog);
        }
        let until = Instant::now() + GATHER;
        while !backlog.urgent && !backlog.closed && !self.wake.wait_until(&mut backlog, until).timed_out() {}
        let lines = std::mem::take(&mut backlog.waiting);
        (backlog.writing, backlog.unreported) = (lines.len(), Some(Instant::now()));
        Some(lines)
    }
}

/// Opens the file. This happens for each write, so that an operator may move the file away and a new one begins.
fn open(path: &Path) -> io::Result<File> {
    // The names of principals are for this user alone.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes the lines that are left. Does not write again what a full disk has taken, even if that is a part of a line.
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

    /// A disk with little room.
    struct Disk {
        room: usize,
        written: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.room - self.written.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.extend_from_slice(&bytes[..room.min(bytes.len())]);
            Ok(room.min(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn where_a_full_disk_took_a_part_of_a_line_the_rest_follows_and_nothing_comes_twice() {
        let (mut disk, mut left) = (Disk { room: 7, written: Vec::new() }, &b"first\nsecond\n"[..]);
        let error = append(&mut disk, &mut left).expect_err("it is full");
        assert_eq!((error.kind(), left), (io::ErrorKind::StorageFull, &b"econd\n"[..]));
        disk.room = 100;
        append(&mut disk, &mut left).expect("room");
        assert_eq!(disk.written, b"first\nsecond\n");
    }

    #[tokio::test]
    async fn lines_beyond_what_may_wait_are_lost_and_the_others_are_written_later() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let file = AuditFile::start(path.clone()).expect("a thread");
        file.opened().await.expect("a file");
        // A folder takes no lines.
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("a folder in its place");
        let line = vec![b'x'; (1 << 20) - 1];
        let taken = (0..20).filter(|_| file.push(line.clone())).count();
        assert_eq!(taken, 16);
        assert!(file.finish().expect_err("a folder").to_string().contains("audit.jsonl"));
        std::fs::remove_dir(&path).expect("an empty folder");
        while file.finish().is_err() {}
        let written = std::fs::read(&path).expect("text");
        assert_eq!(written, [line, vec![b'\n']].concat().repeat(16));
    }
}
