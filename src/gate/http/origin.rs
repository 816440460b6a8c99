//! The layer that refuses foreign Host and Origin headers, before anything else looks at a request, and answers the
//! browsers of allowed origins with CORS.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{Either, Ready, ready};
use http::{Method, Request, header};
use tower::{Layer, Service};
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, Cors, CorsLayer, ExposeHeaders};

use super::{
    AccessControl,
    access::ClientKind,
    headers::{PROTOCOL_VERSION, SESSION_ID},
    respond::Response,
};

/// How long a browser may remember the answer to its preflight.
const REMEMBER: Duration = Duration::from_hours(1);

/// Puts [`CheckOrigin`] in front of a service.
#[derive(Clone, Debug)]
pub(super) struct CheckOriginLayer {
    access: Arc<AccessControl>,
    cors: CorsLayer,
}

/// Refuses what the Host and Origin checks do not accept. Only requests with an Origin go through CORS, where
/// every Origin that has passed the check is allowed.
#[derive(Clone, Debug)]
pub(super) struct CheckOrigin<S> {
    access: Arc<AccessControl>,
    inner: S,
    browsers: Cors<S>,
}

impl CheckOriginLayer {
    pub(super) fn new(access: Arc<AccessControl>) -> Self {
        let cors = CorsLayer::new()
            .allow_origin(AllowOrigin::mirror_request())
            .allow_methods(AllowMethods::list([Method::GET, Method::POST, Method::DELETE]))
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(ExposeHeaders::list([SESSION_ID, PROTOCOL_VERSION, header::WWW_AUTHENTICATE]))
            .max_age(REMEMBER);
        Self { access, cors }
    }
}

impl<S: Clone> Layer<S> for CheckOriginLayer {
    type Service = CheckOrigin<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let browsers = self.cors.layer(inner.clone());
        CheckOrigin { access: Arc::clone(&self.access), inner, browsers }
    }
}

impl<S, B> Service<Request<B>> for CheckOrigin<S>
where
    S: Service<Request<B>, Response = Response>,
    Cors<S>: Service<Request<B>, Response = Response, Error = S::Error>,
{
    type Response = Response;
    type Error = S::Error;
    type Future =
        Either<Either<S::Future, <Cors<S> as Service<Request<B>>>::Future>, Ready<Result<Response, S::Error>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.access.check(request.uri(), request.headers()) {
            Ok(ClientKind::Program) => Either::Left(Either::Left(self.inner.call(request))),
            Ok(ClientKind::Page) => Either::Left(Either::Right(self.browsers.call(request))),
            Err(refusal) => Either::Right(ready(Ok(self.access.refuse(refusal)))),
        }
    }
}
