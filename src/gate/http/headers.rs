//! What the headers of a client must say, and which of them go on to the upstream.

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use uuid::Uuid;

pub(super) use crate::upstream::http::{LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::{
    config::is_own_header,
    dialect::recognise::is_modern_version,
    gate::refuse::Refusal,
    upstream::{Server, Upstream},
    wire::{Version, headers_cost, ids},
};

/// What the headers that go on to a server may take in memory, in bytes: they are kept while a call or a stream lasts.
const MAX_ONWARD: usize = 24 * 1024;
/// What joins cookies that came in several headers, as HTTP/2 may split them, for a server that speaks HTTP/1.1 (RFC
/// 9113, section 8.2.3).
const BETWEEN_COOKIES: &[u8] = b"; ";

/// Returns the session that a request names. A malformed id names an unknown session.
pub(super) fn session_id(headers: &HeaderMap) -> Result<Uuid, Refusal> {
    let id = headers.get(SESSION_ID).ok_or_else(Refusal::no_session_id)?;
    id.to_str().ok().and_then(ids::parse).ok_or_else(Refusal::unknown_session)
}

/// Returns the headers of a request that go on to the upstream, in memory of their own. A child process gets none.
#[allow(clippy::needless_pass_by_value, reason = "as they came they must not outlive this")]
pub(super) fn onward(upstream: &Upstream, headers: HeaderMap) -> Result<HeaderMap, Refusal> {
    onward_but(upstream, &headers, &[])
}

/// Returns what [`onward`] returns, without the headers in `out`, and leaves `headers` to the caller.
pub(super) fn onward_but(upstream: &Upstream, headers: &HeaderMap, out: &[HeaderName]) -> Result<HeaderMap, Refusal> {
    match &upstream.server {
        Server::Http(_) => end_to_end(headers, out, upstream.forward_authorization),
        Server::Stdio(_) => Ok(HeaderMap::new()),
    }
}

/// Returns the end-to-end headers but those, for the upstream; with the client's `Authorization` only if it is for the
/// upstream. They may be kept: as they came they are parts of the buffer that their request was read into.
fn end_to_end(headers: &HeaderMap, out: &[HeaderName], authorization: bool) -> Result<HeaderMap, Refusal> {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        named.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    let ends = |name: &HeaderName| {
        is_own_header(name)
            || out.contains(name)
            || named.contains(name)
            || (*name == header::AUTHORIZATION && !authorization)
    };
    let onward: Vec<(&HeaderName, &HeaderValue)> = headers.iter().filter(|(name, _)| !ends(name)).collect();
    if headers_cost(onward.iter().copied()) > MAX_ONWARD {
        return Err(Refusal::too_many_headers(MAX_ONWARD));
    }
    let is_cookie = |name: &HeaderName| *name == header::COOKIE;
    let length = |name, value: &HeaderValue| value.len() + if is_cookie(name) { BETWEEN_COOKIES.len() } else { 0 };
    // One allocation for the values of all.
    let mut values = BytesMut::with_capacity(onward.iter().map(|(name, value)| length(name, value)).sum());
    let mut own = HeaderMap::with_capacity(onward.len());
    // The values of one name follow each other.
    for line in onward.chunk_by(|(name, _), (next, _)| is_cookie(name) && is_cookie(next)) {
        let [(name, first), rest @ ..] = line else { continue };
        values.extend_from_slice(first.as_bytes());
        for (_, value) in rest {
            values.extend_from_slice(BETWEEN_COOKIES);
            values.extend_from_slice(value.as_bytes());
        }
        // What came as values of headers is one.
        let copy = HeaderValue::from_maybe_shared(values.split().freeze()).unwrap_or_else(|_| (*first).clone());
        own.append(*name, copy);
    }
    Ok(own)
}

/// The headers with one value that decide something here. `Host` and `Origin` have been checked before, and the
/// revision is checked once it is known which generation the request is of.
const SINGLE: [HeaderName; 4] = [header::AUTHORIZATION, header::CONTENT_TYPE, LAST_EVENT_ID, SESSION_ID];

/// Refuses several values of a header that has one.
pub(super) fn said_once(headers: &HeaderMap) -> Result<(), Refusal> {
    // Usually no header is there twice.
    if headers.len() == headers.keys_len() {
        return Ok(());
    }
    let twice = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    SINGLE.iter().find(twice).map_or(Ok(()), |name| Err(Refusal::said_twice(name)))
}

/// What nearly every client sends, which then need not be taken apart.
const USUAL_ACCEPT: &str = "application/json, text/event-stream";

/// Checks that both kinds of answer are acceptable (section "Sending Messages to the Server" 2).
pub(super) fn accepts_answers(headers: &HeaderMap) -> Result<(), Refusal> {
    if headers.get(header::ACCEPT).is_some_and(|value| value == USUAL_ACCEPT)
        || accepts(headers, "application", "json") && accepts(headers, "text", "event-stream")
    {
        return Ok(());
    }
    Err(Refusal::not_acceptable("both application/json and text/event-stream"))
}

/// Checks that a stream is acceptable (section "Listening for Messages from the Server" 2).
pub(super) fn accepts_stream(headers: &HeaderMap) -> Result<(), Refusal> {
    if accepts(headers, "text", "event-stream") { Ok(()) } else { Err(Refusal::not_acceptable("text/event-stream")) }
}

/// Returns whether `Accept` takes a type: of the ranges that it is in, the narrowest decides (RFC 9110, section
/// 12.5.1).
fn accepts(headers: &HeaderMap, kind: &str, subtype: &str) -> bool {
    let (mut narrowest, mut accepted) = (0, false);
    for value in headers.get_all(header::ACCEPT) {
        // A header that is not text accepts nothing.
        let Ok(value) = value.to_str() else { return false };
        for range in value.split(',') {
            let (essence, parameters) = range.split_once(';').unwrap_or((range, ""));
            let Some((k, s)) = essence.trim().split_once('/') else { continue };
            let width = match (k, s) {
                ("*", "*") => 1,
                (_, "*") if k.eq_ignore_ascii_case(kind) => 2,
                _ if k.eq_ignore_ascii_case(kind) && s.eq_ignore_ascii_case(subtype) => 3,
                _ => continue,
            };
            if width > narrowest {
                (narrowest, accepted) = (width, false);
            }
            accepted |= width == narrowest && is_wanted(parameters);
        }
    }
    accepted
}

/// Returns whether the parameters of a range have no weight, or one above zero.
fn is_wanted(parameters: &str) -> bool {
    let mut named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    weight.is_none_or(|(_, weight)| weight.trim().parse::<f32>().is_ok_and(|weight| weight > 0.0))
}

/// Checks that the body is declared as JSON, which needs no decoding.
pub(super) fn is_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Refusal::content_encoding());
    }
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    if codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        return Err(Refusal::transfer_encoding());
    }
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") { Ok(()) } else { Err(Refusal::content_type()) }
}

/// Returns whether the revision that the headers name is one of the modern generation.
pub(super) fn names_modern_revision(headers: &HeaderMap) -> bool {
    let version = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    version.is_some_and(is_modern_version)
}

/// Refuses GET and DELETE of the modern generation, which has neither.
pub(super) fn speaks_version_with_sessions(upstream: &Upstream, headers: &HeaderMap) -> Result<(), Refusal> {
    if upstream.modern && names_modern_revision(headers) {
        return Err(Refusal::method_of_sessions());
    }
    speaks_version(headers)
}

/// Refuses a version that is not spoken, and two of them (section "Protocol Version Header"). Without the header, that
/// of the session holds.
pub(super) fn speaks_version(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut values = headers.get_all(PROTOCOL_VERSION).iter();
    let Some(value) = values.next() else { return Ok(()) };
    if values.next().is_some() {
        return Err(Refusal::said_twice(&PROTOCOL_VERSION));
    }
    let name = value.to_str().unwrap_or("?");
    match Version::parse(name) {
        Some(_) => Ok(()),
        None if is_modern_version(name) => Err(Refusal::modern()),
        None => Err(Refusal::version(name)),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::HEADER;

    fn with(name: HeaderName, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).expect("a header"));
        headers
    }

    #[test]
    fn both_kinds_of_answer_must_be_acceptable() {
        for accept in ["application/json, text/event-stream", "text/event-stream;q=1,APPLICATION/JSON", "*/*"] {
            assert!(accepts_answers(&with(header::ACCEPT, accept)).is_ok(), "{accept}");
        }
        for accept in ["application/json", "text/event-stream", "text/*", ""] {
            assert!(accepts_answers(&with(header::ACCEPT, accept)).is_err(), "{accept}");
        }
        assert!(accepts_answers(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_weight_of_zero_excludes_and_the_narrowest_range_decides() {
        for accept in [
            "application/json;q=0.1, text/event-stream;Q=1.000",
            "*/*;q=0, application/json, text/event-stream",
            "text/*;q=0, text/event-stream, application/*;q=0.5",
            "application/json;profile=x;q=0, application/json, text/event-stream",
        ] {
            assert!(accepts_answers(&with(header::ACCEPT, accept)).is_ok(), "{accept}");
        }
        for accept in [
            "application/json, text/event-stream;q=0",
            "application/json; q=0.000, text/event-stream",
            "*/*, text/event-stream;q=0",
            "*/*;q=0",
            "text/event-stream;q=0, */*",
            "*/*, text/*;charset=utf-8;q=0",
            "*/*;q=much",
        ] {
            assert!(accepts_answers(&with(header::ACCEPT, accept)).is_err(), "{accept}");
        }
    }

    #[test]
    fn a_header_with_one_value_may_be_there_once() {
        let mut headers = with(header::ACCEPT, "application/json");
        headers.append(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(SESSION_ID, HeaderValue::from_static("a"));
        assert!(said_once(&headers).is_ok());
        for name in SINGLE {
            let mut headers = headers.clone();
            headers.append(&name, HeaderValue::from_static("a"));
            headers.append(&name, HeaderValue::from_static("a"));
            assert!(said_once(&headers).is_err(), "{name}");
        }
    }

    #[test]
    fn a_content_type_may_have_parameters() {
        assert!(is_json(&with(header::CONTENT_TYPE, "application/json; charset=utf-8")).is_ok());
        assert!(is_json(&with(header::CONTENT_TYPE, "text/plain")).is_err());
        assert!(is_json(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_body_in_a_coding_is_refused_unless_that_is_the_chunked_one() {
        let coded = |name, value| {
            let mut headers = with(header::CONTENT_TYPE, "application/json");
            headers.insert(name, HeaderValue::from_static(value));
            is_json(&headers).is_err()
        };
        assert!(coded(header::CONTENT_ENCODING, "gzip") && !coded(header::CONTENT_ENCODING, "identity"));
        assert!(coded(header::TRANSFER_ENCODING, "gzip, chunked") && !coded(header::TRANSFER_ENCODING, "Chunked"));
    }

    #[test]
    fn headers_that_describe_the_message_stay_here_as_it_goes_on_changed() {
        let mut headers = with(header::RANGE, "bytes=0-1");
        for name in ["content-digest", "repr-digest", "digest", "content-md5", "if-none-match", "content-encoding"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        assert!(end_to_end(&headers, &[], true).expect("few").is_empty());
    }

    #[test]
    fn hop_by_hop_headers_and_those_named_by_connection_stay_here() {
        let mut headers = with(header::CONNECTION, "close, X-Hop");
        for name in ["x-hop", "authorization", "mcp-session-id", "x-custom", "te"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("v"));
        }
        let left = |authorization| {
            let headers = end_to_end(&headers, &[], authorization).expect("few");
            let mut left: Vec<_> = headers.keys().map(ToString::to_string).collect();
            left.sort();
            left
        };
        assert_eq!(left(true), ["authorization", "x-custom"]);
        assert_eq!(left(false), ["x-custom"]);
    }

    #[test]
    fn cookies_in_several_headers_go_on_in_one_and_count_as_they_came() {
        let onward = |cookies: &[&str]| {
            let mut headers = with(HeaderName::from_static("x-custom"), "a");
            headers.append(HeaderName::from_static("x-custom"), HeaderValue::from_static("b"));
            for cookie in cookies {
                headers.append(header::COOKIE, HeaderValue::from_str(cookie).expect("a header"));
            }
            end_to_end(&headers, &[], true)
        };
        let kept = onward(&["a=1", "b=2; c=3", "d=4"]).expect("few");
        assert_eq!(kept.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3; d=4"]);
        assert_eq!(kept.get_all("x-custom").iter().collect::<Vec<_>>(), ["a", "b"]);
        let half = "x".repeat(MAX_ONWARD / 2);
        assert!(onward(&[&half]).is_ok() && onward(&[&half, &half]).is_err());
    }

    #[test]
    fn headers_that_go_on_leave_the_buffer_that_they_were_read_into_and_are_bounded() {
        let buffer = Bytes::from("x".repeat(100_000));
        let mut headers = HeaderMap::new();
        for length in [10, 20] {
            let value = HeaderValue::from_maybe_shared(buffer.slice(..length)).expect("a header");
            headers.append(HeaderName::from_static("x-custom"), value);
        }
        let kept = end_to_end(&headers, &[], true).expect("few");
        drop(headers);
        assert_eq!(kept.get_all("x-custom").iter().map(HeaderValue::len).collect::<Vec<_>>(), [10, 20]);
        assert!(buffer.is_unique(), "a header keeps it");
        let with = |values: &[usize]| {
            let value = |length: &usize| HeaderValue::from_str(&"x".repeat(*length)).expect("a header");
            let headers = values.iter().map(|length| (HeaderName::from_static("x-custom"), value(length)));
            end_to_end(&headers.collect(), &[], true).ok()
        };
        let room = MAX_ONWARD - HEADER - "x-custom".len();
        assert!(with(&[room]).is_some() && with(&[room + 1]).is_none());
        assert!(with(&[0; 100]).is_some() && with(&[0; 120]).is_none());
    }
}
