//! The written form of a call that has not ended: by it a later process sends the call, or hears the rest of its answer.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    observe::Who,
    upstream::SavedUpstream,
    wire::{ClientCapabilities, Message},
};

/// The version of the forms.
const FORM: u8 = 1;

/// A call as it is kept for a later process.
#[derive(Debug)]
pub(super) struct CallForm {
    /// Whose call it is, and how it goes on.
    pub(super) head: CallHead,
    /// The request, while it was not sent.
    pub(super) request: Option<Message>,
}

/// Whose call it is, and how it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallHead {
    v: u8,
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

/// The names of a [`Who`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedWho {
    pub(super) owner: String,
    pub(super) session: String,
}

/// Where the answer to a call can be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallNote {
    v: u8,
    /// The number of the exchange.
    pub(super) number: u64,
    /// The id of the event behind which the answer goes on; `None` while it cannot be resumed.
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
        let kept = |name: &&HeaderName| facts.seals || !is_credential(name);
        let headers = facts.headers.iter().filter(|(name, _)| kept(name));
        let headers: Vec<_> = headers.map(|(name, value)| (name.to_string(), to_text(value.as_bytes()))).collect();
        Self {
            v: FORM,
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
    /// Returns the bytes of a call: its head in one line, and behind that the request if it was not sent.
    pub(super) fn write(head: &CallHead, request: Option<&Message>) -> Vec<u8> {
        // Numbers, texts and flags can always be written.
        let mut form = serde_json::to_vec(head).unwrap_or_default();
        if let Some(request) = request {
            form.push(b'\n');
            form.extend_from_slice(request.bytes());
        }
        form
    }

    /// Reads the bytes of a call.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub(super) fn read(form: &[u8]) -> Result<Self, String> {
        let (head, request) = match memchr::memchr(b'\n', form) {
            Some(end) => (&form[..end], Some(&form[end + 1..])),
            None => (form, None),
        };
        let head: CallHead = serde_json::from_slice(head).map_err(|why| format!("its form cannot be read: {why}"))?;
        check(head.v)?;
        let request = request.map(|request| Message::parse(Bytes::copy_from_slice(request)));
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
        Self { v: FORM, number, event, token: token.map(str::to_owned) }
    }

    /// Returns its bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        // Numbers and texts can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads its bytes.
    ///
    /// # Errors
    /// A sentence that says what is wrong with them.
    pub(super) fn read(note: &[u8]) -> Result<Self, String> {
        let note: Self = serde_json::from_slice(note).map_err(|why| format!("its note cannot be read: {why}"))?;
        check(note.v)?;
        Ok(note)
    }
}

fn check(version: u8) -> Result<(), String> {
    if version == FORM { Ok(()) } else { Err(format!("its form is {version}, and taskgate reads {FORM}")) }
}

/// Returns bytes as text, each as the character of its number.
fn to_text(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// What the names of headers with credentials have in them.
const SECRETS: [&str; 9] =
    ["auth", "token", "secret", "key", "password", "credential", "cookie", "session", "signature"];

/// Returns whether a header may prove who the client is. Only a store that seals keeps it.
fn is_credential(name: &HeaderName) -> bool {
    *name == header::AUTHORIZATION || SECRETS.iter().any(|secret| name.as_str().contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{observe::Observer, task::tiny::request};

    fn head(seals: bool) -> CallHead {
        let mut headers = HeaderMap::new();
        headers.insert("x-trace", HeaderValue::from_bytes(b"caf\xE9").expect("a header"));
        headers.append("x-trace", HeaderValue::from_static("two"));
        headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret-token"));
        headers.insert("x-api-key", HeaderValue::from_static("secret-key"));
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
    fn a_form_that_is_not_one_is_refused() {
        let (head, request) = (head(true), request());
        let form = CallForm::write(&head, Some(&request));
        let text = String::from_utf8(form.clone()).expect("text");
        for wrong in [
            text.replace("\"v\":1", "\"v\":2"),
            text.replace("\"v\":1", "\"v\":1,\"more\":0"),
            text.replace("\"sent\":null", "\"sent\":5"),
            text.trim_end_matches('}').to_owned(),
            text.lines().next().expect("a line").to_owned(),
            String::new(),
        ] {
            assert!(CallForm::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        for cut in 0..form.len() {
            assert!(CallForm::read(&form[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let note = CallNote::new(7, Some(&Bytes::from_static(b"stream-1/9")), Some("\"mine\""));
        assert_eq!(CallNote::read(&note.write()), Ok(note));
        assert_eq!(CallNote::new(7, Some(&Bytes::from_static(b"\xFF")), None).event, None);
        assert!(CallNote::read(br#"{"v":9,"number":1,"event":null,"token":null}"#).is_err());
    }
}
