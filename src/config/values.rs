//! Single values: each function turns one TOML value into a typed one, or says what it expected.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytesize::ByteSize;
use toml::de::DeValue;

use super::nearest::did_you_mean;
use super::reader::describe;

/// The longest duration: far beyond any need, and within what every timer and cache takes.
const MAX_DURATION: Duration = Duration::from_hours(365 * 24);
/// The largest count: far beyond any need, and within what every semaphore and channel takes.
const MAX_COUNT: u64 = 1_000_000_000;

fn expected<T>(what: &str, value: &DeValue<'_>) -> Result<T, String> {
    Err(format!("expected {what}, found {}", describe(value)))
}

/// Reads any text.
pub(super) fn text(value: &DeValue<'_>) -> Result<String, String> {
    value.as_str().map_or_else(|| expected("a string", value), |text| Ok(text.to_owned()))
}

/// Reads text that a process can be given.
pub(super) fn text_without_nul(value: &DeValue<'_>) -> Result<String, String> {
    let text = text(value)?;
    if text.contains('\0') { Err("expected text without NUL".to_owned()) } else { Ok(text) }
}

/// Reads `true` or `false`.
pub(super) fn flag(value: &DeValue<'_>) -> Result<bool, String> {
    value.as_bool().map_or_else(|| expected("true or false", value), Ok)
}

/// Reads text as `convert` understands it.
pub(super) fn text_as<T>(convert: impl Fn(&str) -> Result<T, String>) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| convert(&text(value)?)
}

/// Reads one of several words.
pub(super) fn one_of<T: Copy>(words: &[(&str, T)]) -> impl Fn(&DeValue<'_>) -> Result<T, String> {
    move |value| {
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
        let quoted = || words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>().join(", ");
        found.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let meant = did_you_mean(value.as_str().unwrap_or(""), words.iter().map(|(word, _)| *word));
            format!("expected one of {}, found {}{meant}", quoted(), describe(value))
        })
    }
}

/// Reads an address to listen on.
pub(super) fn address(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    match value.as_str() {
        Some(text) => listen_address(text),
        None => expected("an address such as \"127.0.0.1:8808\"", value),
    }
}

/// Checks an address to listen on: an IP address and a port, `localhost` and a port, or a port alone. The last two mean
/// 127.0.0.1.
///
/// # Errors
/// Says what is wrong with the text, and what would be right.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    let port = port.and_then(|port| port.parse::<u16>().ok());
    let hint = match (host, port) {
        ("localhost", Some(port)) => return Ok((Ipv4Addr::LOCALHOST, port).into()),
        // Other programs take this for every interface, for which taskgate wants an explicit address.
        ("" | "*", Some(port)) => {
            format!("; write \"127.0.0.1:{port}\" for this machine alone, \"0.0.0.0:{port}\" for every interface")
        }
        _ if text.contains("://") => "; an address is not a URL".to_owned(),
        _ if text.parse::<IpAddr>().is_ok() || text == "localhost" => "; it has no port".to_owned(),
        (_, Some(_)) => "; taskgate looks no name up, so give the IP address of an interface".to_owned(),
        _ => String::new(),
    };
    Err(format!("expected an address such as \"127.0.0.1:8808\", found {text:?}{hint}"))
}

/// Reads a duration of at least a millisecond, which is the protocol's unit.
pub(super) fn duration(value: &DeValue<'_>) -> Result<Duration, String> {
    let Some(duration) = value.as_str().and_then(|text| humantime::parse_duration(text).ok()) else {
        return expected("a duration such as \"15m\" or \"1h 30m\"", value);
    };
    if let Some(text) = value.as_str().filter(|text| text.contains('M')) {
        // One key too much, and a call would run for ten months. No other unit has the letter.
        let meant = text.replace('M', "m");
        return Err(format!("the unit M in {text:?} is months; write {meant:?} for minutes"));
    }
    if duration < Duration::from_millis(1) {
        return expected("a duration of at least 1ms", value);
    }
    if duration > MAX_DURATION {
        return expected("a duration of at most 365days", value);
    }
    Ok(duration)
}

/// Reads a duration as [`duration`] does, or none at all.
pub(super) fn duration_or_zero(value: &DeValue<'_>) -> Result<Duration, String> {
    match value.as_str().and_then(|text| humantime::parse_duration(text).ok()) {
        Some(Duration::ZERO) => Ok(Duration::ZERO),
        _ => duration(value),
    }
}

/// Reads a duration as [`duration`] does, or "off".
pub(super) fn duration_or_off(value: &DeValue<'_>) -> Result<Option<Duration>, String> {
    if value.as_str() == Some("off") {
        return Ok(None);
    }
    duration(value).map(Some).map_err(|why| why.replacen("expected a", "expected \"off\" or a", 1))
}

/// Reads a size in bytes, not zero.
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

/// Reads a whole number of at least `least`.
pub(super) fn count(least: u64) -> impl Fn(&DeValue<'_>) -> Result<usize, String> {
    move |value| {
        let number = integer(value).filter(|number| (least..=MAX_COUNT).contains(number));
        let number = number.and_then(|number| usize::try_from(number).ok());
        number.map_or_else(|| expected(&format!("a whole number from {least} to {MAX_COUNT}"), value), Ok)
    }
}

fn integer(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use toml::de::DeTable;

    use super::*;

    /// Reads one value.
    fn read<T>(text: &str, convert: impl Fn(&DeValue<'_>) -> Result<T, String>) -> Result<T, String> {
        let table = format!("key = {text}");
        let table = DeTable::parse(&table).expect("TOML");
        convert(table.get_ref().get("key").expect("the key").get_ref())
    }

    proptest! {
        #[test]
        fn a_duration_is_read_as_it_was_written(millis in 1_u64..=365 * 24 * 3_600_000) {
            let written = Duration::from_millis(millis);
            prop_assert_eq!(read(&format!("\"{}\"", humantime::format_duration(written)), duration), Ok(written));
        }

        #[test]
        fn a_duration_is_within_its_limits(text in "[0-9]{1,20}(ns|us|ms|s|m|h|d|w|M|y|days)?") {
            if let Ok(duration) = read(&format!("\"{text}\""), duration) {
                prop_assert!((Duration::from_millis(1)..=MAX_DURATION).contains(&duration));
            }
        }

        #[test]
        fn a_size_is_its_number_of_bytes(number in 1_usize..1 << 30, power in 0_u32..4) {
            let unit = ["B", "KiB", "MiB", "GiB"][power as usize];
            let bytes = number.checked_mul(1 << (10 * power)).expect("small");
            prop_assert_eq!(read(&format!("\"{number}{unit}\""), size), Ok(bytes));
            prop_assert_eq!(read(&bytes.to_string(), size), Ok(bytes));
        }

        #[test]
        fn a_count_is_accepted_within_its_limits_only(number: i64, least in 0_u64..3) {
            let fits = u64::try_from(number).ok().filter(|number| (least..=MAX_COUNT).contains(number));
            prop_assert_eq!(read(&number.to_string(), count(least)).ok().map(|count| count as u64), fits);
        }
    }
}
