//! The lines that wait for the reader of stderr. Logging never waits for it: a line that finds no room is lost, and
//! counted. A report does wait, behind the lines before it.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use taskgate::observe::log_lines_lost;

use super::limit::EventRates;

/// How many bytes of lines may wait. The thread may be writing as many again.
const MAX_WAITING: usize = 1 << 20;
/// How often sums are logged, where nothing else is.
const SUM_UP_EVERY: Duration = Duration::from_secs(10);
/// The pause before another try where stderr takes nothing at the moment.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// Lines on their way to stderr.
#[derive(Debug, Default)]
pub(super) struct StderrQueue {
    pending: Mutex<PendingLines>,
    /// Notified when a first line waits.
    some: Condvar,
    /// Notified when the thread has written the lines that it took.
    written: Condvar,
}

#[derive(Debug, Default)]
struct PendingLines {
    lines: Vec<u8>,
    /// How many lines found no room since the thread last took lines.
    lost: u64,
    /// Whether the thread is writing lines that it took.
    writing: bool,
    /// How many times it has written what it took.
    written: u64,
}

impl StderrQueue {
    /// Queues a line, if there is room for it.
    pub(super) fn push(&self, line: &[u8]) {
        let mut pending = self.pending.lock();
        if pending.lines.len() + line.len() > MAX_WAITING {
            pending.lost += 1;
            drop(pending);
            return log_lines_lost("full", 1);
        }
        let first = pending.lines.is_empty();
        pending.lines.extend_from_slice(line);
        drop(pending);
        if first {
            self.some.notify_one();
        }
    }

    /// Writes lines behind those that wait, however many they are, and returns when stderr has them or takes no more.
    pub(super) fn write_through(&self, lines: &[u8]) {
        let mut pending = self.pending.lock();
        pending.lines.extend_from_slice(lines);
        self.some.notify_one();
        let done = pending.written + 1 + u64::from(pending.writing);
        while pending.written < done {
            self.written.wait(&mut pending);
        }
    }

    /// Waits until every line is written, for at most `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut pending = self.pending.lock();
        while pending.writing || !pending.lines.is_empty() {
            if self.written.wait_until(&mut pending, until).timed_out() {
                return;
            }
        }
    }

    /// Writes lines as they come, for ever.
    pub(super) fn write_forever(&self, rates: &EventRates) {
        let mut unreported = 0;
        loop {
            let Some((lines, lost)) = self.next() else {
                rates.sum_up();
                continue;
            };
            unreported += lost;
            match write_all(&lines, &mut io::stderr()) {
                Ok(()) if unreported > 0 => {
                    tracing::warn!(target: "taskgate", "{unreported} lines of the log were dropped: stderr did not take them");
                    unreported = 0;
                }
                Ok(()) => {}
                // The next write that succeeds logs it. That line may be lost itself.
                Err(lost) => {
                    unreported += lost;
                    log_lines_lost("unwritable", lost);
                }
            }
        }
    }

    /// Takes the lines that wait, and how many found no room since the last time. `None` if it is time for a sum.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut pending = self.pending.lock();
        pending.written += u64::from(pending.writing);
        pending.writing = false;
        self.written.notify_all();
        let until = Instant::now() + SUM_UP_EVERY;
        while pending.lines.is_empty() {
            if self.some.wait_until(&mut pending, until).timed_out() {
                return None;
            }
        }
        pending.writing = true;
        Some((std::mem::take(&mut pending.lines), std::mem::take(&mut pending.lost)))
    }
}

/// Writes lines.
///
/// # Errors
/// The number of lines that could not be written.
fn write_all(mut lines: &[u8], to: &mut impl Write) -> Result<(), u64> {
    while !lines.is_empty() {
        match to.write(lines) {
            Ok(written) if written > 0 => lines = &lines[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Another process that shares the other end may have made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(RETRY_AFTER),
            _ => return Err(memchr::memchr_iter(b'\n', lines).count() as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A pipe that first fails with each of `errors`, the last one first, and then takes two bytes at a time.
    struct TestPipe {
        taken: Vec<u8>,
        errors: Vec<io::ErrorKind>,
    }

    impl Write for TestPipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(kind) = self.errors.pop() {
                return Err(kind.into());
            }
            let count = bytes.len().min(2);
            self.taken.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_written_in_parts_and_at_the_second_try_are_whole() {
        let mut pipe = TestPipe { taken: vec![], errors: vec![io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted] };
        assert_eq!(write_all(b"one\ntwo\n", &mut pipe), Ok(()));
        assert_eq!(pipe.taken, b"one\ntwo\n");
    }

    #[test]
    fn lines_that_no_reader_takes_are_counted() {
        let mut pipe = TestPipe { taken: vec![], errors: vec![io::ErrorKind::BrokenPipe] };
        assert_eq!(write_all(b"one\ntwo\n", &mut pipe), Err(2));
    }

    #[test]
    fn a_report_is_never_lost_and_waits_until_it_is_written() {
        let queue = Arc::new(StderrQueue::default());
        queue.push(b"a line\n");
        let reporter = Arc::clone(&queue);
        let reporting = std::thread::spawn(move || reporter.write_through(&vec![b'x'; 2 * MAX_WAITING]));
        let mut taken = 0;
        while taken < 7 + 2 * MAX_WAITING {
            assert!(!reporting.is_finished());
            let (lines, lost) = queue.next().expect("the report");
            assert_eq!(lost, 0);
            taken += lines.len();
        }
        assert!(!reporting.is_finished());
        queue.push(b"a line behind it\n");
        assert!(queue.next().is_some());
        reporting.join().expect("no panic");
    }

    #[test]
    fn lines_beyond_what_may_wait_are_lost_and_a_flush_gives_up() {
        let queue = StderrQueue::default();
        let line = vec![b'x'; MAX_WAITING / 4];
        for _ in 0..6 {
            queue.push(&line);
        }
        let pending = queue.pending.lock();
        assert_eq!((pending.lines.len(), pending.lost), (MAX_WAITING, 2));
        drop(pending);
        // No thread writes.
        queue.flush(Duration::from_millis(1));
    }
}
