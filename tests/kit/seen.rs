//! The requests that a server of the kit has received.

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde_json::Value;

/// One HTTP request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// Returns the body.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the message in it; null if there is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns the method of the message in it; empty if there is none.
    pub(crate) fn rpc(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the id of the message in it, as raw JSON.
    pub(crate) fn id(&self) -> String {
        self.json()["id"].to_string()
    }

    /// Returns a header, empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) fn is(seen: &Seen, method_or_tool: &str) -> bool {
    let message = seen.json();
    let tool = message["method"] == "tools/call" && message["params"]["name"] == method_or_tool;
    let resumes = seen.headers.contains_key("last-event-id");
    let method = if resumes { "RESUME" } else { seen.method.as_str() };
    message["method"] == method_or_tool || tool || method == method_or_tool
}
