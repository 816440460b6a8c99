//! Single values: each function turns one TOML value into a typed one, or says what it expected.

use std::net::SocketAddr;
use std::time::Duration;

use bytesize::ByteSize;
use toml::de::DeValue;

use super::reader::describe;

/// Far beyond any need, and within what every timer and cache takes.
const LONGEST: Duration = Duration::from_hours(365 * 24);
/// Far beyond any need, and within what every semaphore and channel takes.
const MOST: u64 = 1_000_000_000;

fn expected<T>(what: &str, value: &DeValue<'_>) -> Result<T, String> {
    Err(format!("expected {what}, found {}", describe(value)))
}

/// Any text.
pub(super) fn text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map_or_else(|| expected("a string", value), |text| Ok(text.to_owned()))
}

/// `true` or `false`.
pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().map_or_else(|| expected("true or false", value), Ok)
}

/// Text that `convert` understands.
pub(super) fn text_as<T>(convert: impl Fn(&str) -> Result<T, String>) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| convert(&text(value)?)
}

/// One of several words.
pub(super) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        let quoted = || words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        found.map_or_else(|| expected(&format!("one of {}", quoted()), value), |(_, meaning)| Ok(*meaning))
    }
}

/// An address and a port.
pub(super) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let parsed = value.as_str().and_then(|text| text.parse().ok());
    parsed.map_or_else(|| expected("an address such as \"127.0.0.1:8808\"", value), Ok)
}

/// A duration of at least a millisecond, as the protocol counts in those.
pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    let Some(duration) = value.as_str().and_then(|text| humantime::parse_duration(text).ok()) else {
        return expected("a duration such as \"15m\" or \"1h 30m\"", value);
    };
    if duration < Duration::from_millis(1) {
        return expected("a duration of at least 1ms", value);
    }
    if duration > LONGEST {
        return expected("a duration of at most 365days", value);
    }
    Ok(duration)
}

/// A size in bytes, not zero.
pub(super) fn size(value: &DeValue<'_>) -> Result<usize, String> {
    let bytes = match value {
        DeValue::String(text) => text.parse::<ByteSize>().ok().map(|size| size.as_u64()),
        _ => integer(value),
    };
    match bytes {
        None => expected("a size such as \"4MiB\", or a number of bytes", value),
        Some(0) => expected("a size of at least 1 byte", value),
        Some(bytes) => match isize::try_from(bytes) {
            Ok(size) => Ok(size.unsigned_abs()),
            Err(_) => expected("a size that fits in memory", value),
        },
    }
}

/// A whole number of at least `least`.
pub(super) fn count(least: u64) -> impl Fn(&DeValue<'_>) -> Result<usize, String> {
    move |value| {
        let number = integer(value).filter(|number| (least..=MOST).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map_or_else(|| expected(&format!("a whole number from {least} to {MOST}"), value), Ok)
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}
