//! The written form of a call that has not ended: by it a later process sends the call, or hears the rest of its
//! answer.
//!
//! It begins with its number, and the fields follow in their order. Files of the formats 1 and 2 have JSON instead,
//! with the number as its member `v`.

use std::fmt::Display;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{
    identity::is_credential,
    observe::Who,
    upstream::SavedUpstream,
    wire::{ClientCapabilities, Message},
};

/// The number of the form. No JSON begins with that byte.
const FORM: u8 = 2;
/// About the length of a head.
const USUAL: usize = 512;
/// The number of the form that is JSON.
const JSON: u8 = 1;

/// A call as it is kept for a later process.
#[derive(Debug)]
pub(super) struct CallForm {
    /// Whose call it is, and how it goes on.
    pub(super) head: CallHead,
    /// The request, while it was not sent.
    pub(super) request: Option<Message>,
}

/// Whose call it is, and how it goes on. The order of the fields is a part of the form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallHead {
    /// The path of the upstream.
    pub(super) upstream: String,
    /// The dialect of its client, as [`super::TaskWriter::name`] tells it.
    pub(super) dialect: String,
    /// Whether the client is told of changes of the task's state.
    pub(super) announced: bool,
    /// The session in which the task was created.
    pub(super) session: Option<Uuid>,
    /// How audit lines name the client.
    pub(super) who: SavedWho,
    /// What the client can be asked.
    pub(super) client: ClientCapabilities,
    /// The end-to-end headers, each character a byte.
    headers: Vec<(String, String)>,
    /// Whether headers with credentials were left out.
    pub(super) withheld: bool,
    /// Whether the request is one for a modern server, and not for a session.
    pub(super) modern: bool,
    /// When the request was sent, in milliseconds since the Unix epoch by the clock of tasks; `None` while it waits.
    pub(super) sent: Option<u64>,
    /// The session with the server in which it was sent.
    pub(super) server: Option<SavedUpstream>,
}

/// The names of a [`Who`]. The order of the fields is a part of the form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedWho {
    pub(super) owner: String,
    pub(super) session: String,
}

/// Where the answer to a call can be resumed. The order of the fields is a part of the form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallNote {
    /// The number of the exchange.
    pub(super) number: u64,
    /// The id of the event after which the answer goes on; `None` while it cannot be resumed.
    pub(super) event: Option<String>,
    /// The raw progress token that the client gave.
    pub(super) token: Option<String>,
}

/// What a call is written from.
#[derive(Debug)]
pub(super) struct CallFacts<'a> {
    pub(super) upstream: &'a str,
    pub(super) dialect: &'static str,
    pub(super) announced: bool,
    pub(super) session: Option<Uuid>,
    pub(super) who: &'a Who,
    pub(super) client: ClientCapabilities,
    pub(super) headers: &'a HeaderMap,
    /// Whether the request is one for a modern server.
    pub(super) modern: bool,
    /// Whether the store keeps secrets.
    pub(super) seals: bool,
}

impl CallHead {
    /// Returns the head of a call that was not sent.
    pub(super) fn of(facts: &CallFacts<'_>) -> Self {
        // Only a store that seals keeps credentials.
        let kept = |name: &&HeaderName| facts.seals || !is_credential(name);
        let headers = facts.headers.iter().filter(|(name, _)| kept(name));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_string(), to_text(value.as_bytes()))).collect();
        Self {
            upstream: facts.upstream.to_owned(),
            dialect: facts.dialect.to_owned(),
            announced: facts.announced,
            session: facts.session,
            who: SavedWho { owner: facts.who.owner().to_owned(), session: facts.who.session().to_owned() },
            client: facts.client,
            withheld: headers.len() < facts.headers.len(),
            headers,
            modern: facts.modern,
            sent: None,
            server: None,
        }
    }

    /// Returns the headers.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub(super) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let bytes: Option<Vec<u8>> = value.chars().map(|char| u8::try_from(u32::from(char)).ok()).collect();
            let value = bytes.and_then(|bytes| HeaderValue::from_bytes(&bytes).ok());
            let pair = HeaderName::try_from(name).ok().zip(value);
            let (name, value) = pair.ok_or("one of its headers cannot be read")?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

impl CallForm {
    /// Returns the bytes of a call: its head, and then the request if it was not sent.
    pub(super) fn write(head: &CallHead, request: Option<&Message>) -> Vec<u8> {
        write(head, request.map_or(&[], |request| request.bytes()))
    }

    /// Reads the bytes of a call.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub(super) fn read(form: &[u8]) -> Result<Self, String> {
        let (head, request): (CallHead, _) = read("form", form)?;
        let request = (!request.is_empty()).then(|| Message::parse(Bytes::copy_from_slice(request)));
        let request = request.transpose().map_err(|_| "its request cannot be read")?;
        if head.sent.is_some() == request.is_some() {
            return Err("it has a request that was sent, or none to send".to_owned());
        }
        Ok(Self { head, request })
    }
}

impl CallNote {
    /// Returns where the answer to exchange `number` can be resumed.
    pub(super) fn new(number: u64, event: Option<&Bytes>, token: Option<&str>) -> Self {
        // An id that is no text cannot be sent back.
        let event = event.and_then(|event| std::str::from_utf8(event).ok()).map(str::to_owned);
        Self { number, event, token: token.map(str::to_owned) }
    }

    /// Returns its bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        write(self, &[])
    }

    /// Reads its bytes.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub(super) fn read(note: &[u8]) -> Result<Self, String> {
        match read("note", note)? {
            (note, []) => Ok(note),
            _ => Err("its note has more than it should have".to_owned()),
        }
    }
}

/// Returns the number of the form, the fields of a value, and what is `behind` them.
fn write(fields: &impl Serialize, behind: &[u8]) -> Vec<u8> {
    let fields = postcard::to_extend(fields, Vec::with_capacity(USUAL));
    let fields = fields.unwrap_or_else(|error| unreachable!("numbers, texts and flags can be written: {error}"));
    [&[FORM], &*fields, behind].concat()
}

/// Reads what [`write()`] has written, or JSON in one line, and returns what is behind it too. `what` names it in
/// errors.
fn read<'de, T: Deserialize<'de>>(what: &str, written: &'de [u8]) -> Result<(T, &'de [u8]), String> {
    let refused = |why: &dyn Display| format!("its {what} cannot be read: {why}");
    match written.split_first() {
        Some((&FORM, fields)) => postcard::take_from_bytes(fields).map_err(|error| refused(&error)),
        Some((b'{', _)) => {
            let end = memchr::memchr(b'\n', written).unwrap_or(written.len());
            let (json, rest) = written.split_at(end);
            let mut members: Map<String, Value> = serde_json::from_slice(json).map_err(|error| refused(&error))?;
            let form = members.remove("v").unwrap_or_default();
            if form != JSON {
                return Err(refused(&format_args!("as JSON it has form {form}, and taskgate reads {JSON}")));
            }
            let value = T::deserialize(Value::Object(members)).map_err(|error| refused(&error))?;
            Ok((value, rest.strip_prefix(b"\n").unwrap_or(rest)))
        }
        Some((form, _)) => Err(refused(&format_args!("it has form {form}, and taskgate reads {FORM}"))),
        None => Err(refused(&"it is empty")),
    }
}

/// Returns bytes as text, each as the character of its number.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;
    use crate::{observe::Observer, task::tiny::request, upstream::SavedLink, wire::Version};

    fn head(seals: bool) -> CallHead {
        let mut headers = HeaderMap::new();
        headers.insert("x-trace", HeaderValue::from_bytes(b"caf\xE9").expect("a header"));
        headers.append("x-trace", HeaderValue::from_static("two"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret-token"));
        headers.insert("x-api-key", HeaderValue::from_static("secret-key"));
        headers.insert("x-amzn-oidc-data", HeaderValue::from_static("secret-claims"));
        let who = Observer::default().who(Some("ann"), Uuid::nil(), &"/mcp".into());
        let client = ClientCapabilities { roots: true, ..ClientCapabilities::default() };
        CallHead::of(&CallFacts {
            upstream: "/mcp",
            dialect: "tiny",
            announced: true,
            session: Some(Uuid::nil()),
            who: &who,
            client,
            headers: &headers,
            modern: false,
            seals,
        })
    }

    #[test]
    fn a_call_is_read_as_it_was_written_byte_for_byte() {
        let (head, request) = (head(true), request());
        let read = CallForm::read(&CallForm::write(&head, Some(&request))).expect("a form");
        assert_eq!((&read.head, read.request.expect("the request").bytes()), (&head, request.bytes()));
        let headers = head.headers().expect("headers");
        assert_eq!(
            headers.get_all("x-trace").iter().map(HeaderValue::as_bytes).collect::<Vec<_>>(),
            [b"caf\xE9".as_slice(), b"two"]
        );
        assert_eq!(
            (headers[header::AUTHORIZATION].as_bytes(), head.withheld),
            (b"Bearer secret-token".as_slice(), false)
        );
        let sent = CallHead { sent: Some(7), ..head };
        assert!(CallForm::read(&CallForm::write(&sent, None)).expect("a form").request.is_none());
    }

    #[test]
    fn credentials_are_written_only_where_the_store_seals() {
        let form = CallForm::write(&head(false), Some(&request()));
        let text = String::from_utf8_lossy(&form);
        assert!(text.contains("two") && !text.contains("secret"), "{text}");
        assert!(CallForm::read(&form).expect("a form").head.withheld);
    }

    #[test]
    fn what_is_saved_of_a_call_that_was_sent_is_small() {
        let upstream = SavedUpstream {
            link: Some(SavedLink {
                address: "9d1a3c5e7f".repeat(6),
                session: Some(Uuid::nil().to_string()),
                version: Version::LATEST,
            }),
            client: ClientCapabilities::default(),
            next: 1 << 40,
            native: None,
        };
        let sent = CallHead { sent: Some(1 << 41), server: Some(upstream), headers: Vec::new(), ..head(false) };
        let written = CallForm::write(&sent, None);
        assert!(written.len() < 260, "{}", written.len());
    }

    #[test]
    fn the_form_of_a_call_and_of_a_note_stays_as_it_is() {
        let flags = |roots, sampling, sampling_tools, elicitation_form, elicitation_url| ClientCapabilities {
            roots,
            sampling,
            sampling_tools,
            elicitation_form,
            elicitation_url,
        };
        let waits = CallHead {
            upstream: "/mcp".to_owned(),
            dialect: "tiny".to_owned(),
            announced: true,
            session: Some(Uuid::from_u128(1)),
            who: SavedWho { owner: "ann".to_owned(), session: "9f".to_owned() },
            client: flags(true, false, false, false, true),
            headers: vec![("x-a".to_owned(), "b".to_owned())],
            withheld: false,
            modern: true,
            sent: None,
            server: None,
        };
        let link = SavedLink { address: "9d".to_owned(), session: Some("s".to_owned()), version: Version::LATEST };
        let client = flags(false, true, false, true, false);
        let server = SavedUpstream { link: Some(link), client, next: 300, native: Some(true) };
        let sent = CallHead { sent: Some(5), server: Some(server), session: None, ..waits.clone() };
        let begins = b"\x02\x04/mcp\x04tiny\x01".as_slice();
        let names = b"\x03ann\x029f\x01\0\0\0\x01\x01\x03x-a\x01b\0\x01";
        let id = b"\x01\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01";
        let there = b"\x01\x05\x01\x01\x029d\x01\x01s\x0a2025-11-25\0\x01\0\x01\0\xac\x02\x01\x01";
        for (head, request, written) in [
            (waits, Some(request()), [begins, id, names, b"\0\0", request().bytes()].concat()),
            (sent, None, [begins, b"\0", names, there].concat()),
        ] {
            assert_eq!(CallForm::write(&head, request.as_ref()), written, "{head:?}");
            assert_eq!(CallForm::read(&written).expect("a form").head, head);
        }
        let note = CallNote::new(7, Some(&Bytes::from_static(b"e")), Some("1"));
        assert_eq!(note.write(), b"\x02\x07\x01\x01e\x01\x011");
    }

    /// What versions before format 3 wrote.
    const JSON_CALL: &str = concat!(
        r#"{"v":1,"upstream":"/mcp","dialect":"tiny","announced":true,"session":"00000000-0000-0000-0000-000000000000","#,
        r#""who":{"owner":"ann","session":"9f"},"client":{"roots":true,"sampling":false,"sampling_tools":false,"#,
        r#""elicitation_form":false,"elicitation_url":false},"headers":[["x-trace","caf\u00e9"]],"withheld":false,"#,
        r#""modern":false,"sent":5,"server":{"link":{"address":"9d","session":null,"version":"2025-11-25"},"client":"#,
        r#"{"roots":false,"sampling":false,"sampling_tools":false,"elicitation_form":true,"elicitation_url":false},"#,
        r#""next":7,"native":null}}"#,
    );

    #[test]
    fn a_call_that_earlier_versions_wrote_is_read() {
        let CallForm { head: sent, request: none } = CallForm::read(JSON_CALL.as_bytes()).expect("a form");
        let link = sent.server.as_ref().and_then(|server| server.link.as_ref()).expect("a link");
        assert_eq!(
            (none.is_some(), sent.sent, &*sent.who.owner, link.version),
            (false, Some(5), "ann", Version::LATEST)
        );
        assert_eq!(sent.headers().expect("headers")["x-trace"].as_bytes(), b"caf\xE9");
        let waits = JSON_CALL.replace("\"sent\":5", "\"sent\":null");
        let form = [waits.as_bytes(), b"\n", request().bytes()].concat();
        let read = CallForm::read(&form).expect("a form");
        assert_eq!(read.request.expect("the request").bytes(), request().bytes());
        for wrong in [
            JSON_CALL.replace("\"v\":1,", ""),
            JSON_CALL.replace("\"v\":1", "\"v\":2"),
            JSON_CALL.replace("\"v\":1", "\"v\":1,\"more\":0"),
            JSON_CALL.trim_end_matches('}').to_owned(),
            waits,
        ] {
            assert!(CallForm::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        let note = CallNote::read(br#"{"v":1,"number":7,"event":"stream-1/9","token":"\"mine\""}"#);
        assert_eq!(note, Ok(CallNote::new(7, Some(&Bytes::from_static(b"stream-1/9")), Some("\"mine\""))));
        assert!(CallNote::read(br#"{"v":9,"number":1,"event":null,"token":null}"#).is_err());
    }

    #[test]
    fn a_form_that_is_not_one_is_refused() {
        let (head, request) = (head(true), request());
        let form = CallForm::write(&head, Some(&request));
        let sent = CallForm::write(&CallHead { sent: Some(5), ..head }, Some(&request));
        let newer = [&[FORM + 1], &form[1..]].concat();
        for wrong in [&newer, &sent, &Vec::new()] {
            assert!(CallForm::read(wrong).is_err(), "{wrong:?}");
        }
        for cut in 0..form.len() {
            assert!(CallForm::read(&form[..cut]).is_err(), "{cut} bytes");
        }
        let note = CallNote::new(7, None, Some("1")).write();
        assert!(CallNote::read(&[&note, b"1".as_slice()].concat()).is_err());
        assert!(CallNote::read(&note[..note.len() - 1]).is_err());
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = CallNote::new(7, Some(&Bytes::from_static(b"stream-1/9")), Some("\"mine\""));
        assert_eq!(CallNote::read(&note.write()), Ok(note));
        assert_eq!(CallNote::new(7, Some(&Bytes::from_static(b"\xFF")), None).event, None);
    }
}
