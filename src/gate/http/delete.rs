//! DELETE: the client ends its session (section "Session Management" 5).

use std::sync::Arc;

use http::HeaderMap;

use super::{Body, headers::speaks_version};
use crate::{
    gate::{Gate, Response, refuse::Refusal},
    identity::Principal,
    upstream::Upstream,
};

impl Gate {
    pub(super) async fn delete(
        &self,
        upstream: &Upstream,
        principal: Option<&Principal>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        speaks_version(&headers)?;
        // Not in use any more: otherwise it would end with its last use, and without these headers.
        let session = Arc::clone(self.session(&upstream.id, principal, &headers)?.get());
        self.end(&session, Self::onward(&session.upstream, headers)?, "client").await;
        Ok(Response::new(Body::default()))
    }
}
