//! Writes one event as one line: a client that could end a line could write one of its own.

use std::{
    io::{self, Write},
    sync::Arc,
};

use super::queue::StderrQueue;

/// Queues the text of an event, with its control characters escaped.
pub(super) struct LineWriter {
    pub(super) queue: Arc<StderrQueue>,
    /// Whether the text may have colours.
    pub(super) ansi: bool,
}

impl Write for LineWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.queue.push(&one_line(event, self.ansi));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(event: &[u8], ansi: bool) -> Vec<u8> {
    let text = String::from_utf8_lossy(event.strip_suffix(b"\n").unwrap_or(event));
    let mut line = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if char.is_control() && !(ansi && char == '\u{1b}') {
            line.extend(char.escape_default());
        } else {
            line.push(char);
        }
    }
    line.push('\n');
    line.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_and_other_control_characters_are_escaped_and_nothing_else_is() {
        let written = |event: &str, ansi| String::from_utf8(one_line(event.as_bytes(), ansi)).expect("text");
        assert_eq!(written("an é\n", false), "an é\n");
        assert_eq!(written("a\r\nINFO b\t\u{7}\u{9b}\u{1b}[2J\n", false), "a\\r\\nINFO b\\t\\u{7}\\u{9b}\\u{1b}[2J\n");
        assert_eq!(written("\u{1b}[32mgreen\u{7}\n", true), "\u{1b}[32mgreen\\u{7}\n");
    }
}
