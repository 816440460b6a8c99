//! What waits for the reader of stderr. Logging never waits for that reader: a line that finds no room is lost, and counted.

use std::{
    io::{self, Write},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use taskgate::observe::log_lines_lost;

use super::limit::Limits;

/// How many bytes of lines may wait. As many again may be on their way.
const MAX_WAITING: usize = 1 << 20;
/// How often it is looked whether there is a sum to be told.
const SUM_UP_EVERY: Duration = Duration::from_secs(10);
/// The pause before stderr is tried again where it takes nothing at the moment.
const NOT_NOW: Duration = Duration::from_millis(20);

/// Lines on their way to stderr.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Told when there is a first line that waits.
    some: Condvar,
    /// Told when the thread looks for more.
    written: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no room, and of which no line has told yet.
    lost: u64,
    /// Whether lines are on their way.
    writing: bool,
}

impl Queue {
    /// Takes a line, if there is room for it.
    pub(super) fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.lines.len() + line.len() > MAX_WAITING {
            waiting.lost += 1;
            drop(waiting);
            return log_lines_lost("full", 1);
        }
        let first = waiting.lines.is_empty();
        waiting.lines.extend_from_slice(line);
        drop(waiting);
        if first {
            self.some.notify_one();
        }
    }

    /// Waits until every line is written, or for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let mut waiting = self.waiting.lock();
        while waiting.writing || !waiting.lines.is_empty() {
            if self.written.wait_until(&mut waiting, until).timed_out() {
                return;
            }
        }
    }

    /// Writes lines as they come, for ever.
    pub(super) fn write_on(&self, limits: &Limits) {
        let mut untold = 0;
        loop {
            let Some((lines, lost)) = self.next() else {
                limits.sum_up();
                continue;
            };
            untold += lost;
            match write_all(&lines, &mut io::stderr()) {
                Ok(()) if untold > 0 => {
                    tracing::warn!(target: "taskgate", "{untold} lines of the log were dropped: stderr did not take them");
                    untold = 0;
                }
                Ok(()) => {}
                // Told when a reader is there again. The line itself may be one of those that are lost.
                Err(lost) => {
                    untold += lost;
                    log_lines_lost("unwritable", lost);
                }
            }
        }
    }

    /// What waits, and how many lines have found no room since the last time; `None` if it is time for a sum.
    fn next(&self) -> Option<(Vec<u8>, u64)> {
        let mut waiting = self.waiting.lock();
        waiting.writing = false;
        self.written.notify_all();
        let until = Instant::now() + SUM_UP_EVERY;
        while waiting.lines.is_empty() {
            if self.some.wait_until(&mut waiting, until).timed_out() {
                return None;
            }
        }
        waiting.writing = true;
        Some((std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.lost)))
    }
}

/// Writes lines.
///
/// # Errors
/// The number of those that could not be written.
fn write_all(mut lines: &[u8], to: &mut impl Write) -> Result<(), u64> {
    while !lines.is_empty() {
        match to.write(lines) {
            Ok(written) if written > 0 => lines = &lines[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Whoever shares the other end may have made it so.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(NOT_NOW),
            _ => return Err(memchr::memchr_iter(b'\n', lines).count() as u64),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An end that takes two bytes at a time, and none while it is shut or gone.
    struct End {
        taken: Vec<u8>,
        answers: Vec<io::ErrorKind>,
    }

    impl Write for End {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if let Some(kind) = self.answers.pop() {
                return Err(kind.into());
            }
            let some = bytes.len().min(2);
            self.taken.extend_from_slice(&bytes[..some]);
            Ok(some)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_written_in_parts_and_at_the_second_try_is_whole() {
        let mut end = End { taken: vec![], answers: vec![io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted] };
        assert_eq!(write_all(b"one\ntwo\n", &mut end), Ok(()));
        assert_eq!(end.taken, b"one\ntwo\n");
    }

    #[test]
    fn lines_that_nobody_takes_are_counted() {
        let mut end = End { taken: vec![], answers: vec![io::ErrorKind::BrokenPipe] };
        assert_eq!(write_all(b"one\ntwo\n", &mut end), Err(2));
    }

    #[test]
    fn lines_beyond_what_may_wait_are_lost_and_a_flush_gives_up() {
        let queue = Queue::default();
        let line = vec![b'x'; MAX_WAITING / 4];
        for _ in 0..6 {
            queue.push(&line);
        }
        let waiting = queue.waiting.lock();
        assert_eq!((waiting.lines.len(), waiting.lost), (MAX_WAITING, 2));
        drop(waiting);
        // Nobody writes.
        queue.flush(Duration::from_millis(1));
    }
}
