//! One request at the endpoint: path, method, then the file named for the method.

use std::{
    convert::Infallible,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request};
use hyper::body::Incoming;
use tower::Service;

use super::{Gate, Response, refuse::Refusal};

/// The endpoint as one connection sees it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The process's state.
    pub gate: Arc<Gate>,
    /// The other end of the connection.
    pub peer: IpAddr,
}

impl Service<Request<Incoming>> for Endpoint {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let Self { gate, peer } = self.clone();
        Box::pin(async move {
            let answered = gate.answer(peer, request).await;
            Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
        })
    }
}

impl Gate {
    async fn answer(self: &Arc<Self>, peer: IpAddr, request: Request<Incoming>) -> Result<Response, Refusal> {
        let path = request.uri().path();
        let Some(&upstream) = self.paths.get(path) else {
            let paths: Vec<String> = self.upstreams.iter().map(|upstream| upstream.path.clone()).collect();
            return Err(Refusal::no_such_path(path, &paths));
        };
        let principal = self.principal(peer, request.headers())?;
        match *request.method() {
            Method::POST => self.post(upstream, principal, request).await,
            Method::GET => self.get(upstream, principal.as_ref(), request).await,
            Method::DELETE => self.delete(upstream, principal.as_ref(), request).await,
            _ => Err(Refusal::method()),
        }
    }
}
