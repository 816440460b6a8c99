//! The layer that refuses foreign Host and Origin headers, before anything else looks at a request.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::{Either, Ready, ready};
use http::Request;
use tower::{Layer, Service};

use super::{Gate, Response, refuse::Refusal};

/// Puts [`CheckOrigin`] in front of a service.
#[derive(Clone, Debug)]
pub(super) struct CheckOriginLayer(pub Arc<Gate>);

/// Refuses with 403 what the Host and Origin checks do not accept.
#[derive(Clone, Debug)]
pub(super) struct CheckOrigin<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> Layer<S> for CheckOriginLayer {
    type Service = CheckOrigin<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CheckOrigin { gate: Arc::clone(&self.0), inner }
    }
}

impl<S, B> Service<Request<B>> for CheckOrigin<S>
where
    S: Service<Request<B>, Response = Response>,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.gate.hosts.check(request.uri(), request.headers()) {
            Ok(()) => Either::Left(self.inner.call(request)),
            Err(refused) => {
                let response = Refusal::foreign(&refused).into_response(&self.gate.observer);
                Either::Right(ready(Ok(response)))
            }
        }
    }
}
