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
            b'"' => step_over_string(tail).map_or(&[], |string| string.after),
            _ => tail,
        };
    }
    false
}

/// A string in JSON that has been stepped over.
pub(super) struct Stepped<'a> {
    /// What follows its closing quote.
    pub after: &'a [u8],
    /// Whether it has an escape.
    pub is_escaped: bool,
}

/// Steps over a string whose opening quote has been read; `None` if it has no end.
pub(super) fn step_over_string(mut rest: &[u8]) -> Option<Stepped<'_>> {
    let mut is_escaped = false;
    while let Some(at) = memchr::memchr2(b'"', b'\\', rest) {
        if rest[at] == b'"' {
            return Some(Stepped { after: &rest[at + 1..], is_escaped });
        }
        is_escaped = true;
        rest = rest.get(at + 2..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_counts_brackets_outside_of_strings_only() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let objects = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
        assert!(!nests_too_deep(nested(MAX_DEPTH).as_bytes()));
        assert!(nests_too_deep(nested(MAX_DEPTH + 1).as_bytes()));
        assert!(!nests_too_deep(objects(MAX_DEPTH).as_bytes()));
        assert!(nests_too_deep(objects(MAX_DEPTH + 1).as_bytes()));
        // Counts of bytes of chunks that are too long would begin again at 0.
        assert!(nests_too_deep(nested(1024).as_bytes()));
        assert!(nests_too_deep(format!("{:500}{}", "", nested(MAX_DEPTH + 1)).as_bytes()));
        assert!(!nests_too_deep(format!("\"{}\"", "[\\\"".repeat(500)).as_bytes()));
    }
}
