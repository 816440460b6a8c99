//! Lines on pipes: one message each, up to a limit.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncBufReadExt, AsyncWrite, AsyncWriteExt};

/// What has been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its end.
    Whole(Bytes),
    /// The beginning of a line that is longer than the limit; the rest was skipped.
    TooLong(Bytes),
    /// There are no more lines.
    End,
}

/// What some programs on Windows write before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads one line of at most `limit` bytes, without a byte order mark, and keeps no memory for the next one.
pub(crate) async fn read(reader: &mut (impl AsyncBufReadExt + Unpin), limit: usize) -> Line {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let Ok(chunk) = reader.fill_buf().await else { return Line::End };
        let at_end = chunk.is_empty();
        if at_end && line.is_empty() {
            return Line::End;
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let room = limit - line.len();
        too_long |= part.len() > room;
        let part = &part[..part.len().min(room)];
        let wanted = line.len() + part.len();
        if wanted > line.capacity() {
            // Exact if the line ends here, as most do; doubled if it goes on, but never beyond the limit.
            let capacity = if end.is_some() { wanted } else { (2 * wanted).min(limit) };
            line.reserve_exact(capacity - line.len());
        }
        line.extend_from_slice(part);
        let used = end.map_or(chunk.len(), |at| at + 1);
        reader.consume(used);
        if end.is_some() || at_end {
            // Without spare room, because the message may be kept.
            let mut line: Bytes = line.into_boxed_slice().into();
            if line.starts_with(BYTE_ORDER_MARK) {
                line.advance(BYTE_ORDER_MARK.len());
            }
            return if too_long { Line::TooLong(line) } else { Line::Whole(line) };
        }
    }
}

/// Writes one message as a line.
pub(crate) async fn write(writer: &mut (impl AsyncWrite + Unpin), message: &Bytes) -> std::io::Result<()> {
    writer.write_all_buf(&mut message.clone().chain(&b"\n"[..])).await
}

/// Replaces line ends in a message, which must be one line here. In JSON they are only white space.
pub(crate) fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let mut out = BytesMut::from(&message[..]);
    for byte in out.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    /// Reads the lines of `text` through a buffer of `buffer` bytes.
    async fn lines(text: &str, limit: usize, buffer: usize) -> Vec<Line> {
        let mut reader = BufReader::with_capacity(buffer, text.as_bytes());
        let mut lines = Vec::new();
        loop {
            match read(&mut reader, limit).await {
                Line::End => return lines,
                line => lines.push(line),
            }
        }
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_found_however_the_bytes_arrive() {
        for buffer in [1, 2, 3, 64] {
            let read = lines("one\n\ntwo\r\nthe last has no end", 100, buffer).await;
            assert_eq!(read, [whole("one"), whole(""), whole("two\r"), whole("the last has no end")], "{buffer}");
        }
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_no_part_of_its_line() {
        for buffer in [1, 2, 64] {
            let read = lines("\u{feff}first\n\u{feff}second\u{feff}\n\u{feff}\n\u{feff}long\n", 12, buffer).await;
            assert_eq!(read, [whole("first"), whole("second\u{feff}"), whole(""), whole("long")], "{buffer}");
        }
    }

    #[tokio::test]
    async fn a_line_over_the_limit_keeps_its_beginning_and_the_next_line_is_whole() {
        for buffer in [1, 2, 3, 64] {
            let read = lines("exact\nlonger than that\nnext\nlonger at the end", 5, buffer).await;
            let too_long = |text: &'static str| Line::TooLong(Bytes::from_static(text.as_bytes()));
            assert_eq!(read, [whole("exact"), too_long("longe"), whole("next"), too_long("longe")], "{buffer}");
        }
    }

    #[tokio::test]
    async fn a_line_takes_no_more_memory_than_its_size() {
        for size in [1, 1000, 100_000] {
            let text = format!("{}\n", "x".repeat(size));
            let Line::Whole(line) = read(&mut BufReader::with_capacity(64, text.as_bytes()), 1 << 20).await else {
                panic!("not read");
            };
            let line = Vec::from(line);
            assert_eq!(line.capacity(), size);
        }
    }

    #[tokio::test]
    async fn a_message_is_written_as_one_line() {
        let mut written = Vec::new();
        let message = one_line(Bytes::from_static(b"{\"a\":\r\n1}"));
        write(&mut written, &message).await.expect("memory");
        assert_eq!(written, b"{\"a\":  1}\n");
    }
}
