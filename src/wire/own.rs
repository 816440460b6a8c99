//! Bytes that may be kept, and the memory that they take.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};

/// From this size on, bytes are more than half of any buffer that hyper reads into.
const LARGE: usize = 256 * 1024;

/// Returns the same bytes without the buffer that they were cut from, unless they are most of it: a slice that is kept
/// keeps its whole buffer.
#[must_use]
pub fn own(slice: Bytes) -> Bytes {
    if slice.len() < LARGE { Bytes::copy_from_slice(&slice) } else { slice }
}

/// Appends to a buffer of at most `limit` bytes. The buffer doubles when it grows, but never beyond the limit; the
/// first part gets no spare room, because it may be the only one.
pub fn extend(buffer: &mut Vec<u8>, part: &[u8], limit: usize) {
    let wanted = buffer.len() + part.len();
    if !buffer.is_empty() && wanted > buffer.capacity() {
        buffer.reserve_exact((2 * wanted).min(limit).max(wanted) - buffer.len());
    }
    buffer.extend_from_slice(part);
}

/// What a header takes besides its text, in bytes. The map may have room for twice as many headers.
pub const HEADER: usize = 200;

/// Returns what headers take in memory, in bytes.
pub fn headers_cost<'a>(headers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> usize {
    headers.into_iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_slice_leaves_its_buffer_and_a_large_one_is_not_copied() {
        let buffer = Bytes::from(vec![b'x'; 2 * LARGE]);
        assert_eq!(Vec::from(own(buffer.slice(7..17))).capacity(), 10);
        assert_eq!(own(buffer.slice(7..LARGE + 7)).as_ptr(), buffer[7..].as_ptr());
    }
}
