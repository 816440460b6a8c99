//! What a server of the kit does that speaks revision 2026-07-28.

use http::{Method, Response, StatusCode};
use serde_json::{Value, json};

use super::{
    Upstream,
    held::{Body, whole},
    seen::Seen,
    upstream::Options,
};

const VERSION: &str = "2026-07-28";

impl Upstream {
    /// Starts a server that speaks revision 2026-07-28 only, and answers with JSON.
    pub(crate) async fn modern(capabilities: Value) -> Self {
        Self::start(Options { modern: true, sessions: false, capabilities, ..Options::default() }).await
    }

    /// Starts a server where another one has stopped.
    pub(crate) async fn start_in_place_of(stopped: &Self, options: Options) -> Self {
        let listener = tokio::net::TcpListener::bind(stopped.address()).await.unwrap();
        Self::on(listener, options)
    }
}

/// Returns whether a request is one of the revision.
pub(super) fn is_modern(seen: &Seen) -> bool {
    seen.json()["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == VERSION
}

/// Returns how a server that speaks nothing else refuses a request of an older revision, and any one whose headers are
/// unlike its body.
pub(super) fn refusal(options: &Options, seen: &Seen) -> Option<Response<Body>> {
    if !options.modern || (options.sessions && !is_modern(seen)) {
        return None;
    }
    if seen.method != Method::POST {
        return Some(whole(StatusCode::METHOD_NOT_ALLOWED, "text/plain", ""));
    }
    let named = seen.json()["params"]["name"].as_str().map(str::to_owned);
    let mirrors = seen.header("mcp-protocol-version") == VERSION
        && seen.header("mcp-method") == seen.rpc()
        && (seen.rpc() != "tools/call" || named.is_some_and(|name| seen.header("mcp-name") == name));
    if mirrors && is_modern(seen) {
        return None;
    }
    let id = if seen.id() == "null" { "0".to_owned() } else { seen.id() };
    let error = r#"{"code":-32020,"message":"Header mismatch"}"#;
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    Some(whole(StatusCode::BAD_REQUEST, "application/json", &body))
}

/// Returns the members of the response that it gives by itself; those of `known` have what the revision wants.
pub(super) fn known(options: &Options, method: &str, known: impl FnOnce() -> Option<String>) -> Option<String> {
    if method == "server/discover" {
        let result = json!({
            "resultType": "complete",
            "supportedVersions": [VERSION],
            "capabilities": options.capabilities,
            "ttlMs": 7,
            "cacheScope": "public",
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "modern-server", "version": "2.0" } },
        });
        return Some(format!(r#""result":{result}"#));
    }
    let known = known()?;
    let Some(result) = known.strip_prefix(r#""result":"#) else { return Some(known) };
    let mut result: Value = serde_json::from_str(result).unwrap();
    result["resultType"] = json!("complete");
    if method == "tools/list" {
        (result["ttlMs"], result["cacheScope"]) = (json!(7), json!("public"));
    }
    Some(format!(r#""result":{result}"#))
}
