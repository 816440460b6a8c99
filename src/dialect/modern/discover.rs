//! `server/discover`: what the server behind says of itself, and the tasks extension.

use std::sync::Arc;

use super::{Answer, ClientRequest, Modern, Refused, SERVER_INFO, TASKS, error::supported_versions, hosts};
use crate::{
    upstream::Lease,
    wire::{
        Parts, RpcError,
        object::{Members, object},
        response::result_response,
    },
};

impl Modern {
    /// Answers from the handshake with the server.
    ///
    /// # Errors
    /// [`Refused`] where the server cannot be reached, or its answer cannot be repeated.
    pub(super) async fn discover(self: &Arc<Self>, mut request: Box<ClientRequest>) -> Result<Answer, Refused> {
        self.begin(&mut request)?;
        let lease = self.lease(&request, false).await?;
        Ok(described(&request, &lease)?.into())
    }
}

/// Returns what a server that knows sessions has said of itself.
///
/// # Errors
/// -32603 where that cannot be repeated.
pub(super) fn described(request: &ClientRequest, lease: &Lease) -> Result<Parts, RpcError> {
    let facts = &lease.pooled.facts;
    let capabilities = modern(&facts.capabilities).map_err(RpcError::internal)?;
    let versions: Vec<_> = supported_versions().collect();
    let versions = serde_json::json!(versions);
    let instructions =
        hosts::instructions(request, &lease.pooled).map_or(String::new(), |text| format!(r#""instructions":{text},"#));
    let result = format!(
        r#"{{"resultType":"complete","supportedVersions":{versions},"capabilities":{capabilities},{instructions}"ttlMs":0,"cacheScope":"private","_meta":{{"{SERVER_INFO}":{}}}}}"#,
        facts.server_info
    );
    Ok(result_response(request.id(), &result).into())
}

/// Returns the raw capabilities of a legacy server as revision 2026-07-28 has them: without tasks of its own, with the
/// extension, and with no other: it is not told that its clients know them, and their methods do not reach it.
fn modern(capabilities: &str) -> Result<String, String> {
    let declared = Members::parse(capabilities)?;
    let kept = declared.iter().filter(|(key, _)| !["tasks", "extensions", "experimental"].contains(key));
    let extension = object(std::iter::once((TASKS, "{}")));
    Ok(object(kept.chain([("extensions", &*extension)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_takes_the_place_of_tasks_of_an_older_revision_and_what_no_client_can_use_is_left_out() {
        for (theirs, ours) in [
            ("{}", r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#),
            (
                r#"{"tools":{"listChanged":true},"tasks":{"list":{}}}"#,
                r#"{"tools":{"listChanged":true},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
            (
                r#"{"extensions":{"a/b":{}},"experimental":{"c":{}},"logging":{}}"#,
                r#"{"logging":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
            ),
        ] {
            assert_eq!(modern(theirs).as_deref(), Ok(ours));
        }
    }
}
