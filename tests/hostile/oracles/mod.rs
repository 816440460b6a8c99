//! What must hold for every input: each `check` takes one input apart, feeds it to the pure part that its file is named
//! for, and panics where a promise is broken. The fuzz targets run them on what the fuzzer makes, `corpora.rs` on the
//! committed inputs, `properties.rs` on random ones.

pub mod config;
pub mod cursor;
pub mod envelope;
pub mod ids;
pub mod json;
mod meaning;
pub mod relay;
pub mod splice;
pub mod sse;

use std::borrow::Cow;

/// The check of one promise on one input.
pub type Check = fn(&[u8]);

/// Every target: its name, and its check.
pub const TARGETS: [(&str, Check); 7] = [
    ("config", config::check),
    ("cursor", cursor::check),
    ("envelope", envelope::check),
    ("ids", ids::check),
    ("relay", relay::check),
    ("splice", splice::check),
    ("sse", sse::check),
];

/// Returns the first line of an input, which says how the rest is to be treated, and the rest.
fn script(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(input.len());
    (&input[..end], input.get(end + 1..).unwrap_or_default())
}

/// Returns the JSON text that an input stands for: the input itself, or after a byte that UTF-8 does not know, one that
/// is made from it.
fn document(input: &[u8]) -> Cow<'_, [u8]> {
    match input.split_first() {
        Some((0xFF, choices)) => json::made(choices).into_bytes().into(),
        _ => input.into(),
    }
}

/// Cuts `whole` into chunks as long as `script` says: the low four bits of its characters, over and over.
fn chunks<'a>(script: &[u8], whole: &'a [u8]) -> Vec<&'a [u8]> {
    let lengths: Vec<usize> = script.iter().map(|byte| usize::from(byte & 15)).collect();
    if lengths.iter().all(|length| *length == 0) {
        return vec![whole];
    }
    let (mut rest, mut chunks) = (whole, Vec::new());
    for length in lengths.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, behind) = rest.split_at(length.min(rest.len()));
        chunks.push(chunk);
        rest = behind;
    }
    chunks
}
