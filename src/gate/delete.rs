//! DELETE: the client ends its session (section "Session Management" 5).

use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;

use super::{Body, Gate, Response, headers::end_to_end, refuse::Refusal};

impl Gate {
    pub(super) async fn delete(
        &self,
        upstream: usize,
        principal: Option<&Arc<str>>,
        request: Request<Incoming>,
    ) -> Result<Response, Refusal> {
        let session = self.session(upstream, principal, request.headers())?;
        self.end(&session, end_to_end(request.into_parts().0.headers), "client").await;
        Ok(Response::new(Body::default()))
    }
}
