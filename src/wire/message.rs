//! One JSON-RPC message: the bytes as received, and where the envelope's members stand in them.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use bytestring::ByteString;
use serde_json::value::RawValue;

use super::{
    Malformed, Method,
    envelope::Envelope,
    object::unquote,
    outcome::{check_error, check_result},
    span::span,
    splice::Edits,
};

/// The longest id and the longest progress token that a client may give a request, in bytes of JSON: they are kept
/// while the request is in flight.
pub const MAX_ID: usize = 1024;

/// A validated JSON-RPC message that keeps its bytes untouched.
#[derive(Clone, Debug)]
pub struct Message {
    text: ByteString,
    kind: Kind,
    id: Option<Range<usize>>,
    method: Option<(Method, Range<usize>)>,
    params: Option<Range<usize>>,
    outcome: Option<(Outcome, Range<usize>)>,
}

/// What a message is, by the members that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `method` and `id`
    Request,
    /// `method` without `id`
    Notification,
    /// `result` or `error`
    Response,
}

/// The two forms of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The `result` member.
    Result,
    /// The `error` member.
    Error,
}

impl Message {
    /// Reads one message.
    ///
    /// # Errors
    /// [`Malformed`] for anything but exactly one request, notification or response. A duplicate member of the envelope
    /// is malformed too: it would mean different things to different readers.
    pub fn parse(bytes: Bytes) -> Result<Self, Malformed> {
        if bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
            return Err(Malformed::Batch);
        }
        let text = ByteString::try_from(bytes).map_err(|error| Malformed::NotJson(error.to_string()))?;
        let envelope = Envelope::read(&text).map_err(|error| refuse(text.as_bytes(), &error))?;
        let invalid = |reason: &str| Malformed::Invalid {
            reason: reason.to_owned(),
            id: id_of_request(&envelope).map(str::to_owned),
        };
        if envelope.jsonrpc.as_deref() != Some("2.0") {
            return Err(invalid("the member \"jsonrpc\" must be \"2.0\""));
        }
        let span = |raw: &str| span(text.as_bytes(), raw);
        let method = match envelope.method {
            None => None,
            Some(raw) => {
                let name = unquote(raw).ok_or_else(|| invalid("\"method\" must be a string"))?;
                Some((Method::of(&name), span(raw)))
            }
        };
        let outcome = match (envelope.result, envelope.error) {
            (None, None) => None,
            // JSON-RPC 1.0 had both members, and some servers still write the unused one as null.
            (Some(raw), None | Some("null")) => Some((Outcome::Result, span(raw))),
            (None | Some("null"), Some(raw)) => Some((Outcome::Error, span(raw))),
            (Some(_), Some(_)) => return Err(invalid("a response has either \"result\" or \"error\", not both")),
        };
        let kind = match (&method, envelope.id, &outcome) {
            (Some(_), Some(id), None) if is_id(id) => Kind::Request,
            (Some(_), Some(_), None) => return Err(invalid("\"id\" must be a string or an integer")),
            (Some(_), None, None) => Kind::Notification,
            // An error that answers no particular request may have a null id, or none.
            (None, Some(id), Some(_)) if is_id(id) => Kind::Response,
            (None, id, Some((Outcome::Error, _))) if id.is_none_or(|id| id == "null") => Kind::Response,
            (None, _, Some(_)) => return Err(invalid("a response needs the \"id\" of its request")),
            (Some(_), _, Some(_)) => return Err(invalid("a message is a request or a response, not both")),
            (None, _, None) => return Err(invalid("a message needs \"method\", \"result\" or \"error\"")),
        };
        if envelope.params.is_some_and(|raw| !raw.starts_with('{') && kind != Kind::Response) {
            return Err(invalid("\"params\" must be an object"));
        }
        let (id, params) = (envelope.id.map(span), envelope.params.map(span));
        Ok(Self { text, kind, id, method, params, outcome })
    }

    /// Reads one message of a client.
    ///
    /// # Errors
    /// As for [`Message::parse`], and for an id of more than [`MAX_ID`] bytes.
    pub fn of_client(bytes: Bytes) -> Result<Self, Malformed> {
        let message = Self::parse(bytes)?;
        if message.id().is_some_and(|id| id.len() > MAX_ID) {
            return Err(Malformed::Invalid { reason: format!("the id is longer than {MAX_ID} bytes"), id: None });
        }
        Ok(message)
    }

    /// Reads one message of a server.
    ///
    /// # Errors
    /// As for [`Message::parse`], for a response with a malformed `result` or `error`, and for a request that is named
    /// like a notification: a client could take the ids in it, which are those of taskgate, for its own.
    pub fn of_server(bytes: Bytes) -> Result<Self, Malformed> {
        let message = Self::parse(bytes)?;
        let checked = match message.outcome() {
            Some((Outcome::Result, raw)) => check_result(raw),
            Some((Outcome::Error, raw)) => check_error(raw),
            None if message.kind() == Kind::Request && message.method().is_notification() => {
                Err("the method is that of a notification, which has no id".to_owned())
            }
            None => Ok(()),
        };
        checked.map_err(|reason| Malformed::Invalid { reason, id: None })?;
        Ok(message)
    }

    /// Returns the message with edits that are all within its `params`, which stay an object.
    #[must_use]
    pub fn with_edited_params(&self, edits: Edits<'_>) -> Self {
        let edited = ByteString::try_from(edits.apply().into_bytes());
        let text = edited.unwrap_or_else(|why| unreachable!("text in the place of text: {why}"));
        let end = self.params.as_ref().map_or(0, |params| params.end);
        let moved = |at: usize| if at < end { at } else { at + text.len() - self.text.len() };
        let span = |span: &Range<usize>| moved(span.start)..moved(span.end);
        let (id, params) = (self.id.as_ref().map(span), self.params.as_ref().map(span));
        let method = self.method.as_ref().map(|(method, name)| (*method, span(name)));
        let outcome = self.outcome.as_ref().map(|(outcome, raw)| (*outcome, span(raw)));
        Self { text, kind: self.kind, id, method, params, outcome }
    }

    /// Returns the same message in an allocation of its own size, to be kept.
    #[must_use]
    pub fn compact(self) -> Self {
        Self { text: ByteString::from(&*self.text), ..self }
    }

    /// Returns the whole message as received.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        self.text.as_bytes()
    }

    /// Returns whether it is a request, a notification or a response.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the method; for a response, [`Method::Other`].
    #[must_use]
    pub fn method(&self) -> Method {
        self.method.as_ref().map_or(Method::Other, |(method, _)| *method)
    }

    /// Returns the name of the method; empty for a response.
    #[must_use]
    pub fn method_name(&self) -> Cow<'_, str> {
        self.method.as_ref().and_then(|(_, name)| unquote(self.part(name))).unwrap_or_default()
    }

    /// Returns the raw JSON of the id.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_ref().map(|span| self.part(span))
    }

    /// Returns the raw id of the response to this message: `null` if the message has none.
    #[must_use]
    pub fn id_to_answer(&self) -> &str {
        self.id().unwrap_or("null")
    }

    /// Returns where the raw id stands in [`Message::bytes`].
    #[must_use]
    pub fn id_span(&self) -> Option<Range<usize>> {
        self.id.clone()
    }

    /// Returns the raw JSON of `params`, an object.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.params.as_ref().map(|span| self.part(span))
    }

    /// Returns the raw JSON of a response's `result` or `error`.
    #[must_use]
    pub fn outcome(&self) -> Option<(Outcome, &str)> {
        self.outcome.as_ref().map(|(outcome, span)| (*outcome, self.part(span)))
    }

    /// Returns the whole message as text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn part(&self, span: &Range<usize>) -> &str {
        &self.text[span.clone()]
    }
}

/// Returns the raw id, if it is a valid one of a request. That of a response is one that the receiver gave.
fn id_of_request<'a>(envelope: &Envelope<'a>) -> Option<&'a str> {
    let has_outcome = envelope.result.or(envelope.error).is_some();
    let is_request = envelope.method.is_some_and(|method| !has_outcome || method.starts_with('"'));
    envelope.id.filter(|id| is_request && is_id(id) && id.len() <= MAX_ID)
}

/// Returns whether raw JSON is an id: a string or an integer of any length.
pub(super) fn is_id(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    raw.starts_with('"') || digits.bytes().all(|b| b.is_ascii_digit())
}

/// Returns the number behind an id or a token that taskgate gave out, also where the peer echoes it as a string.
#[must_use]
pub fn echoed_number(raw: &str) -> Option<u64> {
    let digits = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(raw);
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

pub(super) fn refuse(bytes: &[u8], error: &serde_json::Error) -> Malformed {
    // A parser that stopped at a wrong type or a duplicate has not checked whether the rest is JSON.
    if error.is_data() && serde_json::from_slice::<&RawValue>(bytes).is_ok() {
        let object = bytes.trim_ascii_start().starts_with(b"{");
        let reason = if object { error.to_string() } else { "a message must be a JSON object".to_owned() };
        return Malformed::Invalid { reason, id: None };
    }
    let error = serde_json::from_slice::<&RawValue>(bytes).err().map_or_else(|| error.to_string(), |e| e.to_string());
    Malformed::NotJson(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::object::Members;

    fn parse(text: &str) -> Result<Message, Malformed> {
        Message::parse(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn reason(text: &str) -> String {
        parse(text).expect_err("malformed").to_string()
    }

    #[test]
    fn a_request_keeps_its_raw_members() {
        let message =
            parse(r#"{"jsonrpc":"2.0","id":"a\u0041","method":"x/y","params":{"n":12345678901234567890123}}"#)
                .expect("valid");
        assert_eq!(message.kind(), Kind::Request);
        assert_eq!(message.id(), Some(r#""a\u0041""#));
        assert_eq!(message.params(), Some(r#"{"n":12345678901234567890123}"#));
        assert_eq!(message.method(), Method::Other);
    }

    #[test]
    fn a_missing_id_is_a_notification_and_a_null_id_is_refused() {
        assert_eq!(parse(r#"{"jsonrpc":"2.0","method":"x"}"#).expect("valid").kind(), Kind::Notification);
        assert!(reason(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#).contains("string or an integer"));
        assert!(reason(r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#).contains("string or an integer"));
        assert!(reason(r#"{"jsonrpc":"2.0","id":{},"method":"x"}"#).contains("string or an integer"));
    }

    #[test]
    fn an_error_without_an_id_is_a_response() {
        let message = parse(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#).expect("valid");
        assert_eq!(message.kind(), Kind::Response);
        for odd in [r#""result":{}"#, r#""id":1.5,"error":{}"#, r#""id":7.0,"error":{}"#, r#""id":[],"error":{}"#] {
            assert!(reason(&format!(r#"{{"jsonrpc":"2.0",{odd}}}"#)).contains("needs the \"id\""), "{odd}");
        }
    }

    #[test]
    fn duplicate_members_are_refused() {
        assert!(reason(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#).contains("duplicate field `id`"));
        assert!(reason(r#"{"jsonrpc":"2.0","id":1,"method":"x","method":"y"}"#).contains("duplicate field `method`"));
    }

    #[test]
    fn broken_json_is_distinguished_from_json_that_is_not_a_message() {
        assert!(matches!(parse("{"), Err(Malformed::NotJson(_))));
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","id":1,"id":2"#), Err(Malformed::NotJson(_))));
        assert!(matches!(parse(r#"{"jsonrpc":"2.0","id":1,"method":"x"} tail"#), Err(Malformed::NotJson(_))));
        assert!(matches!(parse("7"), Err(Malformed::Invalid { .. })));
        assert!(matches!(parse("[]"), Err(Malformed::Batch)));
        assert!(matches!(parse("{}"), Err(Malformed::Invalid { .. })));
    }

    #[test]
    fn an_invalid_request_keeps_the_id_to_answer() {
        let Err(Malformed::Invalid { id, .. }) = parse(r#"{"jsonrpc":"1.0","id":7,"method":"x"}"#) else {
            panic!("not refused as invalid");
        };
        assert_eq!(id.as_deref(), Some("7"));
    }

    #[test]
    fn params_must_be_an_object() {
        assert!(reason(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}"#).contains("must be an object"));
    }

    #[test]
    fn a_message_with_edited_params_is_what_its_bytes_say() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"a/b","params":{"x":1,"y":2}}"#,
            r#"{"params": {"y":2,"x":1} , "method":"a/b","id":"c","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":"2.0","id":1,"params":{"w":0,"x":1},"method":"a/b"}"#,
        ] {
            let message = Message::parse(text.into()).expect("a request");
            let params = Members::parse(message.params().expect("params")).expect("an object");
            let mut edits = Edits::of(message.bytes());
            edits.set(&params, "z", r#"{"long":"enough"}"#);
            edits.remove(&params, "x");
            let edited = message.with_edited_params(edits);
            let read = Message::parse(edited.bytes().clone()).expect("a request");
            let parts = |message: &Message| {
                let [id, params] = [message.id(), message.params()].map(|part| part.map(str::to_owned));
                (message.kind(), message.method(), message.method_name().into_owned(), id, params)
            };
            assert_eq!(parts(&edited), parts(&read), "{text}");
            assert!(edited.params().is_some_and(|params| params.contains("enough") && !params.contains("\"x\"")));
        }
    }

    #[test]
    fn a_number_of_taskgate_is_recognised_when_a_peer_echoes_it_as_a_string() {
        assert_eq!(echoed_number("42"), Some(42));
        assert_eq!(echoed_number("\"42\""), Some(42));
        assert_eq!(echoed_number("\"x\""), None);
        assert_eq!(echoed_number("\"+4\""), None);
    }
}
