//! DELETE: the client ends its session (section "Session Management" 5).

use std::sync::Arc;

use http::HeaderMap;

use super::{
    Body, Endpoint,
    headers::{onward, session_id, speaks_version_with_sessions},
    respond::Response,
};
use crate::{gate::refuse::Refusal, identity::Principal, observe::events, upstream::Upstream};

impl Endpoint {
    /// Ends the session.
    pub(super) async fn delete(
        &self,
        upstream: &Upstream,
        principal: Option<&Principal>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        speaks_version_with_sessions(upstream, &headers)?;
        // Not in use any more: otherwise it would end with its last use, and without these headers.
        let session = Arc::clone(self.lifecycle.find(session_id(&headers)?, &upstream.id, principal)?.get());
        let removal = self.lifecycle.end(&session, onward(&session.caller.upstream, headers)?, "client").await;
        if let Some(removal) = removal {
            removal.tried().await.map_err(|why| {
                self.observer.emit(events::StoreUnavailable { why: &why.0 });
                Refusal::end_not_kept().by(Arc::clone(&session.caller.who))
            })?;
        }
        Ok(Response::new(Body::default()))
    }
}
