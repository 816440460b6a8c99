//! `server/discover`: what the server behind says of itself, and the tasks extension.

use std::sync::Arc;

use super::{Answer, ClientRequest, Modern, Refused, SERVER_INFO, TASKS, error::supported_versions, hosts};
use crate::wire::{Edits, RpcError, object::Members};

impl Modern {
    /// Answers from the handshake with the server.
    ///
    /// # Errors
    /// [`Refused`] where the server cannot be reached, or its answer cannot be repeated.
    pub(super) async fn discover(self: &Arc<Self>, mut request: Box<ClientRequest>) -> Result<Answer, Refused> {
        self.begin(&mut request)?;
        let lease = self.lease(&request, false).await?;
        let facts = &lease.pooled.facts;
        let capabilities = modern(&facts.capabilities).map_err(|why| RpcError::internal(why.clone()))?;
        let versions: Vec<_> = supported_versions().collect();
        let versions = serde_json::json!(versions);
        let instructions = hosts::instructions(&request, &lease.pooled)
            .map_or(String::new(), |text| format!(r#""instructions":{text},"#));
        Ok(request.result(&format!(
            r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{capabilities},{instructions}"ttlMs":0,"cacheScope":"private","_meta":{{"{SERVER_INFO}":{}}}}}"#,
            facts.server_info
        )))
    }
}

/// Returns the raw capabilities of a legacy server as revision 2026-07-28 has them: without tasks of its own, with the
/// extension.
fn modern(capabilities: &str) -> Result<String, String> {
    let source = bytes::Bytes::copy_from_slice(capabilities.as_bytes());
    let members = Members::parse(capabilities)?;
    let members_of_source = std::str::from_utf8(&source).map_err(|error| error.to_string())?;
    let declared = Members::parse(members_of_source)?;
    let extension = format!(r#"{{"{TASKS}":{{}}}}"#);
    let extensions = declared.nested("extensions")?;
    drop(members);
    let mut kept: Vec<String> = declared
        .iter()
        .filter(|(key, _)| !["tasks", "extensions"].contains(key))
        .map(|(key, value)| format!("{}:{value}", crate::wire::object::quote(key)))
        .collect();
    let extensions = match &extensions {
        Some(extensions) => {
            let bytes = bytes::Bytes::copy_from_slice(extensions.raw().as_bytes());
            let text = std::str::from_utf8(&bytes).map_err(|error| error.to_string())?;
            let members = Members::parse(text)?;
            let mut edits = Edits::of(&bytes);
            edits.set(&members, TASKS, "{}");
            String::from_utf8(edits.apply().into_bytes().to_vec()).map_err(|error| error.to_string())?
        }
        None => extension,
    };
    kept.push(format!(r#""extensions":{extensions}"#));
    Ok(format!("{{{}}}", kept.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_takes_the_place_of_tasks_of_an_older_revision() {
        for (theirs, ours) in [
            ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            (
                r#"{"tools":{"listChanged":true},"tasks":{"list":{}}}"#,
                r#"{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
            (
                r#"{"extensions":{"a/b":{}},"logging":{}}"#,
                r#"{"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{},"a/b":{}}}"#,
            ),
        ] {
            assert_eq!(modern(theirs).as_deref(), Ok(ours));
        }
    }
}
