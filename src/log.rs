//! Where the log goes: to stderr, each event as one line, whatever strangers have written into it.

use std::io::{self, Write};

/// Writes what one event says with its line ends escaped, so that nobody can write a log line of their own.
pub(crate) struct OneLine;

impl Write for OneLine {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        if !text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            return io::stderr().write_all(event).map(|()| event.len());
        }
        let mut line = Vec::with_capacity(event.len() + 16);
        for byte in text {
            match byte {
                b'\n' => line.extend_from_slice(b"\\n"),
                b'\r' => line.extend_from_slice(b"\\r"),
                byte => line.push(*byte),
            }
        }
        line.push(b'\n');
        io::stderr().write_all(&line).map(|()| event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
