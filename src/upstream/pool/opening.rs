//! The handshake of taskgate itself, and what a server says of itself in it.

use crate::wire::{
    ClientCapabilities, Message, Version,
    message::Outcome,
    modern::{OWN_INFO, SERVER_INFO, shared_versions},
    object::{Members, quote},
};

/// What a server said of itself in the handshake, raw.
#[derive(Debug)]
pub struct ServerFacts {
    /// `serverInfo`
    pub server_info: String,
    /// `capabilities`
    pub capabilities: String,
    /// `instructions`, if it gave any
    pub instructions: Option<String>,
    /// The members that a result gets in revision 2026-07-28, where it has neither.
    pub complete: String,
    /// The revisions that a modern server and taskgate both speak; none of a legacy one.
    pub versions: Vec<String>,
}

impl ServerFacts {
    /// Returns what taskgate says of itself.
    #[must_use]
    pub fn own() -> Self {
        Self::of(OWN_INFO.to_owned(), "{}", None)
    }

    fn of(server_info: String, capabilities: &str, instructions: Option<&str>) -> Self {
        let complete = format!(r#""resultType":"complete","_meta":{{"{SERVER_INFO}":{server_info}}}"#);
        let (capabilities, instructions) = (capabilities.to_owned(), instructions.map(str::to_owned));
        Self { server_info, capabilities, instructions, complete, versions: Vec::new() }
    }
}

pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Returns taskgate's own `initialize`, with the capabilities `client`.
pub(super) fn initialize(client: ClientCapabilities) -> Message {
    let version = quote(Version::LATEST.as_str());
    let params =
        format!(r#"{{"protocolVersion":{version},"capabilities":{},"clientInfo":{OWN_INFO}}}"#, client.to_raw());
    let text = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    Message::parse(text.into()).unwrap_or_else(|why| unreachable!("it is a request: {why}"))
}

/// Reads the answer to `initialize`.
pub(super) fn facts(answer: &Message) -> Result<ServerFacts, String> {
    let Some((Outcome::Result, result)) = answer.outcome() else { return Err("it is no result".to_owned()) };
    let result = Members::parse(result)?;
    read(&result, result.get("serverInfo"))
}

/// Reads the answer to `server/discover`. Where it leaves the name of the server out, taskgate writes its own name in
/// that place.
pub(super) fn discovered_facts(answer: &Message) -> Result<ServerFacts, String> {
    let Some((Outcome::Result, result)) = answer.outcome() else { return Err("it is no result".to_owned()) };
    let result = Members::parse(result)?;
    let meta = result.nested("_meta")?;
    let facts = read(&result, Some(meta.as_ref().and_then(|meta| meta.get(SERVER_INFO)).unwrap_or(OWN_INFO)))?;
    Ok(ServerFacts { versions: shared_versions(&result), ..facts })
}

fn read(result: &Members<'_>, server_info: Option<&str>) -> Result<ServerFacts, String> {
    let object = |key: &str| result.get(key).filter(|raw| raw.starts_with('{'));
    let server_info = server_info.filter(|raw| raw.starts_with('{')).ok_or("its serverInfo is no object")?.to_owned();
    let instructions = result.get("instructions").filter(|raw| raw.starts_with('"'));
    Ok(ServerFacts::of(server_info, object("capabilities").unwrap_or("{}"), instructions))
}
