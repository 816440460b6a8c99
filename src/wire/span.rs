//! Where a part of a text stands in it.

use std::ops::Range;

/// Returns where `inner` stands in `outer`, of which it must be a part.
pub(super) fn span(outer: &[u8], inner: &str) -> Range<usize> {
    let start = (inner.as_ptr() as usize).saturating_sub(outer.as_ptr() as usize);
    start..start + inner.len()
}
