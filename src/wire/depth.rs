//! How deep JSON nests, counted before anything recurses into it.

/// How deep a client's message may nest. Deeper ones are refused before any code recurses into them.
pub const MAX_DEPTH: usize = 128;

/// Returns whether `bytes` nest deeper than [`MAX_DEPTH`]. They may be invalid JSON.
#[must_use]
pub fn nests_too_deep(bytes: &[u8]) -> bool {
    // Most have too few brackets for that, wherever they stand: `{` and `[` differ in one bit. A byte counts up to the
    // length of a chunk, so that many are counted at once.
    let opened = |chunk: &[u8]| chunk.iter().map(|byte| u8::from(byte | 0x20 == b'{')).sum::<u8>();
    if bytes.chunks(u8::MAX.into()).map(|chunk| usize::from(opened(chunk))).sum::<usize>() <= MAX_DEPTH {
        return false;
    }
    let (mut depth, mut rest) = (0_usize, bytes);
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
                tail
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                tail
            }
            // Nothing nests in what has no end.
            b'"' => after_string(tail).unwrap_or_default(),
            _ => tail,
        };
    }
    false
}

/// Returns what follows the closing quote of a string whose opening quote has been read; `None` if it has no end.
pub(super) fn after_string(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        let skip = if rest[at] == b'"' { 1 } else { 2 };
        let end = (at + skip).min(rest.len());
        if rest[at] == b'"' {
            return Some(&rest[end..]);
        }
        rest = &rest[end..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_of_strings_only() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!nests_too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(nests_too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(!nests_too_deep(format!("\"{}\"", "[\\\"".repeat(500)).as_bytes()));
    }
}
