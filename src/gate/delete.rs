//! DELETE: the client ends its session (section "Session Management" 5).

use http::HeaderMap;

use super::{Body, Gate, Response, headers::speaks_version, refuse::Refusal};
use crate::identity::Principal;

impl Gate {
    pub(super) async fn delete(
        &self,
        upstream: usize,
        principal: Option<&Principal>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        speaks_version(&headers)?;
        let session = self.session(upstream, principal, &headers)?;
        self.end(&session, self.onward(upstream, headers)?, "client").await;
        Ok(Response::new(Body::default()))
    }
}
