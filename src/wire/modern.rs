//! What both sides of taskgate share of revision 2026-07-28: names, and how a server shows that it speaks the revision.

use serde_json::value::RawValue;

use super::{
    Message, Version, excerpt,
    message::Outcome,
    object::{Members, unquote},
    params::unambiguous,
};

/// The revision.
pub const VERSION: &str = "2026-07-28";
/// The tasks extension.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The `_meta` key of the revision of a request.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key of what a client can be asked.
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key of a server's name.
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// The `_meta` key of the subscription that a notification belongs to.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The `_meta` key of a client's name.
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// The code of an error that says that the server does not speak the revision.
const UNSUPPORTED_VERSION: &str = "-32022";
/// The code of an error about headers.
const HEADER_MISMATCH: &str = "-32020";
/// The code of an error that names capabilities.
const MISSING_CAPABILITY: &str = "-32021";
/// The member of such an error's data that names them.
const REQUIRED: &str = "requiredCapabilities";

/// The generation of a server, as its answer to `server/discover` shows it.
#[derive(Debug)]
pub enum Discovered {
    /// It speaks [`VERSION`].
    Modern,
    /// It is of the modern generation, and of no use to taskgate. Why not.
    Other(String),
    /// It knows sessions only.
    Legacy,
}

/// The raw `Implementation` of taskgate.
pub const OWN_INFO: &str = concat!(r#"{"name":"taskgate","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#);

/// The raw member of a result that taskgate itself gives ("Per-response protocol fields").
pub const OWN_META: &str = concat!(
    r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"taskgate","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// Returns the `params` of a request of taskgate's own, with this raw `cursor` if it asks for a further page.
#[must_use]
pub fn own_params(cursor: Option<&str>) -> String {
    let cursor = cursor.map_or_else(String::new, |cursor| format!(r#""cursor":{cursor},"#));
    let meta =
        format!(r#"{{"{PROTOCOL_VERSION}":"{VERSION}","{CLIENT_INFO}":{OWN_INFO},"{CLIENT_CAPABILITIES}":{{}}}}"#);
    format!(r#"{{{cursor}"_meta":{meta}}}"#)
}

/// Reads the answer to `server/discover`. An error that is not one of the modern generation is that of a legacy server
/// ("Versioning", section "Backward Compatibility with Initialization-Based Versions").
#[must_use]
pub fn discovered(answer: &Message) -> Discovered {
    match answer.outcome() {
        Some((Outcome::Result, raw)) => {
            let Ok((result, _)) = unambiguous(raw) else { return Discovered::Legacy };
            let names = names(result.get("supportedVersions"));
            if names.iter().any(|name| name == VERSION) { Discovered::Modern } else { without_ours(&names) }
        }
        Some((Outcome::Error, raw)) => {
            let Ok(error) = Members::parse(raw) else { return Discovered::Legacy };
            let data = error.object("data");
            match error.get("code") {
                Some(UNSUPPORTED_VERSION) => without_ours(&names(data.and_then(|data| data.get("supported")))),
                Some(code @ HEADER_MISMATCH) => refused(code, &error),
                // Servers with sessions may have these codes for themselves; this one has to name what it requires.
                Some(code @ MISSING_CAPABILITY) if data.is_some_and(|data| data.object(REQUIRED).is_some()) => {
                    refused(code, &error)
                }
                _ => Discovered::Legacy,
            }
        }
        None => Discovered::Legacy,
    }
}

/// Returns the raw id of the subscription that a notification names.
#[must_use]
pub fn subscription(notification: &Message) -> Option<&str> {
    let params = notification.params()?;
    // Most notifications name none, and are not parsed.
    memchr::memmem::find(params.as_bytes(), b"subscriptionId")?;
    Members::parse(params).ok()?.object("_meta")?.get(SUBSCRIPTION_ID)
}

/// Returns the strings in a raw list; none where it is no list.
fn names(list: Option<&str>) -> Vec<String> {
    let list: Option<Vec<&RawValue>> = list.and_then(|list| serde_json::from_str(list).ok());
    list.into_iter().flatten().filter_map(|raw| unquote(raw.get()).map(Into::into)).collect()
}

/// Returns the revisions that a server and taskgate both speak, of the members of its `DiscoverResult`.
#[must_use]
pub fn shared_versions(result: &Members<'_>) -> Vec<String> {
    let mut names = names(result.get("supportedVersions"));
    names.retain(|name| name == VERSION || Version::parse(name).is_some());
    names
}

/// Judges a server that names these revisions and not [`VERSION`].
fn without_ours(names: &[String]) -> Discovered {
    // A server with sessions may name its revisions too.
    if names.is_empty() || names.iter().any(|name| Version::parse(name).is_some()) {
        return Discovered::Legacy;
    }
    Discovered::Other(format!("it speaks {} only, and taskgate speaks {VERSION}", names.join(", ")))
}

/// Judges a server that refuses the request with an error of the revision.
fn refused(code: &str, error: &Members<'_>) -> Discovered {
    let message = error.text("message").unwrap_or_default();
    let message = excerpt(&message);
    Discovered::Other(format!("it refuses server/discover with the error {code} of revision {VERSION}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(rest: &str) -> String {
        let answer = Message::parse(format!(r#"{{"jsonrpc":"2.0","id":1,{rest}}}"#).into()).expect("a response");
        match discovered(&answer) {
            Discovered::Modern => "modern".to_owned(),
            Discovered::Other(names) => names,
            Discovered::Legacy => "legacy".to_owned(),
        }
    }

    #[test]
    fn a_server_that_names_the_revision_is_modern_also_where_it_speaks_older_ones() {
        assert_eq!(judged(r#""result":{"supportedVersions":["2025-11-25","2026-07-28"],"capabilities":{}}"#), "modern");
        let other = "it speaks 2027-01-01 only, and taskgate speaks 2026-07-28";
        assert_eq!(judged(r#""result":{"supportedVersions":["2027-01-01"]}"#), other);
        assert_eq!(judged(r#""error":{"code":-32022,"data":{"supported":["2027-01-01"]}}"#), other);
    }

    #[test]
    fn a_server_that_refuses_with_an_error_of_the_revision_is_modern_and_of_no_use() {
        let headers = judged(r#""error":{"code":-32020,"message":"no header"}"#);
        assert_eq!(headers, "it refuses server/discover with the error -32020 of revision 2026-07-28: no header");
        let lacks = judged(r#""error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{"roots":{}}}}"#);
        assert!(lacks.contains("-32021"), "{lacks}");
    }

    #[test]
    fn any_other_answer_is_that_of_a_server_with_sessions() {
        for rest in [
            r#""result":{}"#,
            r#""result":{"supportedVersions":["2025-11-25"]}"#,
            r#""result":{"supportedVersions":7}"#,
            r#""error":{"code":-32601,"message":"no such method"}"#,
            r#""error":{"code":-32022,"data":{"supported":["2025-11-25"]}}"#,
            r#""error":{"code":-32022}"#,
            r#""error":{"code":-32021,"message":"a code of its own"}"#,
        ] {
            assert_eq!(judged(rest), "legacy", "{rest}");
        }
    }
}
