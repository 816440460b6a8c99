//! The headers that mirror a request's body (revision 2026-07-28, "Streamable HTTP", section "Request Metadata").

use std::{borrow::Cow, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Refused;
use crate::{
    upstream::http::{METHOD, NAME, PROTOCOL_VERSION},
    wire::{Message, Method, excerpt, object::Members},
};

/// The headers of a request that mirror its body.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mirrors<'a> {
    headers: &'a HeaderMap,
    /// Those that are certainly there once.
    version: Option<&'a HeaderValue>,
    method: Option<&'a HeaderValue>,
    name: Option<&'a HeaderValue>,
}

/// Returns the member of `params` that says what a request is about, and whether a header has to mirror it.
fn member_of(method: Method) -> Option<(&'static str, bool)> {
    match method {
        Method::ToolsCall | Method::PromptsGet => Some(("name", true)),
        Method::ResourcesRead => Some(("uri", true)),
        // A well-known client sends none.
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => Some(("taskId", false)),
        _ => None,
    }
}

/// Returns what a request with these `params` is about: the name of a tool or a prompt, a resource, a task.
pub(super) fn subject(method: Method, params: &Members<'_>) -> Option<Arc<str>> {
    params.text(member_of(method)?.0).map(Arc::from)
}

/// The headers besides the revision that mirror the body.
pub const MIRRORED: [HeaderName; 2] = [METHOD, NAME];

impl<'a> Mirrors<'a> {
    /// Finds them among all headers: looking each of them up takes longer.
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut mirrors = Self { headers, version: None, method: None, name: None };
        // Usually no header is there twice.
        if headers.len() == headers.keys_len() {
            for (name, value) in headers {
                if *name == PROTOCOL_VERSION {
                    mirrors.version = Some(value);
                } else if *name == METHOD {
                    mirrors.method = Some(value);
                } else if *name == NAME {
                    mirrors.name = Some(value);
                }
            }
        }
        mirrors
    }

    /// Checks the revision that the headers name against the one in the body's `_meta`.
    ///
    /// # Errors
    /// -32020
    pub(super) fn check_version(&self, version: &str) -> Result<(), Refused> {
        self.agrees(self.version, &PROTOCOL_VERSION, version)
    }

    /// Checks the headers but that of the revision against the body, and against what it is about.
    ///
    /// # Errors
    /// -32020 for the first header that is missing, unreadable or unlike the body.
    pub(super) fn check(&self, request: &Message, subject: Option<&str>) -> Result<(), Refused> {
        self.agrees(self.method, &METHOD, &request.method_name())?;
        let Some((member, required)) = member_of(request.method()) else { return Ok(()) };
        if let Some(subject) = subject.filter(|subject| !is_encoded(subject))
            && says(self.name, subject)
        {
            return Ok(());
        }
        match (value(self.headers, &NAME)?, subject) {
            (Some(said), Some(subject)) if decoded(said)? == subject => Ok(()),
            (Some(_), Some(_)) => {
                Err(Refused::header(format!("Mcp-Name is another one than params.{member} of the body")))
            }
            (Some(_), None) => {
                Err(Refused::header(format!("Mcp-Name is there, and params.{member} of the body is no string")))
            }
            (None, Some(_)) if required => {
                Err(Refused::header(format!("Mcp-Name is missing; it has to be params.{member}")))
            }
            // Without a name the server refuses the request itself.
            (None, _) => Ok(()),
        }
    }

    /// Checks that a header says what the body says. `once` is its value if it is certainly there once.
    fn agrees(&self, once: Option<&HeaderValue>, name: &HeaderName, body: &str) -> Result<(), Refused> {
        if says(once, body) {
            return Ok(());
        }
        let shown = || excerpt(body);
        match value(self.headers, name)? {
            Some(said) if said == body => Ok(()),
            Some(_) => Err(Refused::header(format!("{name} does not say {:?}, as the body does", shown()))),
            None => Err(Refused::header(format!("{name} is missing; it has to be {:?}, as in the body", shown()))),
        }
    }
}

/// Returns the headers that mirror the body of a request, which is about `subject`.
pub(super) fn mirrored(request: &Message, subject: Option<&str>) -> HeaderMap {
    let mut mirrored = HeaderMap::new();
    mirrored.insert(PROTOCOL_VERSION, HeaderValue::from_static(super::VERSION));
    let mut set = |name, text: &str| {
        if let Ok(value) = HeaderValue::from_str(&encoded(text)) {
            mirrored.insert(name, value);
        }
    };
    set(METHOD, &request.method_name());
    if let Some(subject) = subject {
        set(NAME, subject);
    }
    mirrored
}

/// Returns a text as the value of a header (section "Value Encoding").
fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && text.trim_matches(' ') == text;
    if is_plain && !is_encoded(text) {
        return text.into();
    }
    format!("=?base64?{}?=", BASE64.encode(text)).into()
}

/// Returns whether a value has the form of an encoded one.
fn is_encoded(value: &str) -> bool {
    value.starts_with("=?base64?") && value.ends_with("?=")
}

/// Returns whether a header says just what the body says, in characters that a header can have.
fn says(header: Option<&HeaderValue>, body: &str) -> bool {
    header.is_some_and(|said| said == body) && body.is_ascii()
}

fn value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refused::header(format!("{name} is there twice")));
    }
    let text =
        value.to_str().map_err(|_| Refused::header(format!("{name} has characters that a header cannot have")))?;
    Ok(Some(text.trim_ascii()))
}

/// Returns the text that the value of a header stands for (section "Value Encoding").
fn decoded(value: &str) -> Result<Cow<'_, str>, Refused> {
    let Some(encoded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Ok(value.into());
    };
    let bytes = BASE64.decode(encoded).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.map(Cow::from).ok_or_else(|| Refused::header("Mcp-Name is no Base64 of UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(pairs: &[(&'static str, &str)], method: &str, params: &str) -> Result<(), String> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"));
        }
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = Message::parse(text.into()).expect("a request");
        let params = Members::parse(request.params().expect("params")).expect("an object");
        let mirrors = Mirrors::of(&headers);
        mirrors
            .check_version(super::super::VERSION)
            .and_then(|()| mirrors.check(&request, subject(request.method(), &params).as_deref()))
            .map_err(|refused| String::from_utf8(refused.to_response("1").to_vec()).expect("text"))
    }

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

    #[test]
    fn headers_that_say_what_the_body_says_are_accepted() {
        let call = r#"{"name":"get_weather"}"#;
        let encoded = BASE64.encode("gewürz");
        for (name, params) in [
            ("get_weather", call.to_owned()),
            (&format!("=?base64?{encoded}?="), r#"{"name":"gewürz"}"#.to_owned()),
            (" get_weather ", call.to_owned()),
        ] {
            let pairs = [VERSION, ("mcp-method", "tools/call"), ("mcp-name", name)];
            assert_eq!(checked(&pairs, "tools/call", &params), Ok(()), "{name}");
        }
        assert_eq!(checked(&[VERSION, ("mcp-method", "tools/list")], "tools/list", "{}"), Ok(()));
        let uri = [VERSION, ("mcp-method", "resources/read"), ("mcp-name", "file:///a")];
        assert_eq!(checked(&uri, "resources/read", r#"{"uri":"file:///a"}"#), Ok(()));
        // Sent without by a well-known client.
        assert_eq!(checked(&[VERSION, ("mcp-method", "tasks/get")], "tasks/get", r#"{"taskId":"x"}"#), Ok(()));
    }

    #[test]
    fn a_server_gets_the_headers_that_mirror_the_body() {
        for (name, said) in [("tool", "tool"), ("gew\u{fc}rz", "=?base64?Z2V3w7xyeg==?="), (" a", "=?base64?IGE=?=")] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
            let headers = mirrored(&Message::parse(text.into()).expect("a request"), Some(name));
            assert_eq!((&headers[METHOD], &headers[NAME]), (&"tools/call".parse().unwrap(), &said.parse().unwrap()));
            assert_eq!(headers[PROTOCOL_VERSION], "2026-07-28");
        }
    }

    #[test]
    fn a_header_that_is_missing_or_unlike_the_body_is_refused_with_32020() {
        let call = r#"{"name":"get_weather"}"#;
        let (method, name) = (("mcp-method", "tools/call"), ("mcp-name", "get_weather"));
        for (pairs, about) in [
            (vec![method, name], "mcp-protocol-version"),
            (vec![("mcp-protocol-version", "2025-11-25"), method, name], "mcp-protocol-version"),
            (vec![VERSION, name], "mcp-method"),
            (vec![VERSION, ("mcp-method", "tools/list"), name], "mcp-method"),
            (vec![VERSION, ("mcp-method", "TOOLS/CALL"), name], "mcp-method"),
            (vec![VERSION, method], "Mcp-Name"),
            (vec![VERSION, method, ("mcp-name", "other")], "Mcp-Name"),
            (vec![VERSION, method, ("mcp-name", "=?base64?###?=")], "Base64"),
            (vec![VERSION, method, name, name], "twice"),
        ] {
            let error = checked(&pairs, "tools/call", call).expect_err("refused");
            assert!(error.contains("-32020") && error.contains(about), "{pairs:?}: {error}");
        }
        for nameless in ["{}", r#"{"name":7}"#] {
            let error = checked(&[VERSION, method, ("mcp-name", "7")], "tools/call", nameless).expect_err("refused");
            assert!(error.contains("-32020") && error.contains("Mcp-Name"), "{error}");
        }
        let task = [VERSION, ("mcp-method", "tasks/get"), ("mcp-name", "another")];
        assert!(checked(&task, "tasks/get", r#"{"taskId":"one"}"#).is_err());
    }
}
