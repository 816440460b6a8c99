//! One request at the endpoint: path, method, then the file named for the method.

use std::{
    convert::Infallible,
    future::ready,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use http::{Method, Request, request::Parts};
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
    /// Set at the connection's first request.
    pub called: Arc<AtomicBool>,
}

impl Service<Request<Incoming>> for Endpoint {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.called.store(true, Ordering::Relaxed);
        let gate = Arc::clone(&self.gate);
        let (upstream, principal) = match gate.place(self.peer, &request) {
            Ok(place) => place,
            Err(refusal) => return Box::pin(ready(Ok(refusal.into_response(&gate.observer)))),
        };
        let (Parts { method, headers, .. }, body) = request.into_parts();
        // One box with the future of one method: this is allocated for every request.
        match method {
            Method::POST => Box::pin(async move {
                let answered = gate.post(upstream, principal, headers, body).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            Method::DELETE => Box::pin(async move {
                let answered = gate.delete(upstream, principal.as_ref(), headers).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            method => {
                let answered = match method {
                    Method::GET => gate.get(upstream, principal.as_ref(), headers),
                    _ => Err(Refusal::method()),
                };
                Box::pin(ready(Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))))
            }
        }
    }
}

impl Gate {
    /// The upstream that a request is for, and its principal.
    fn place(&self, peer: IpAddr, request: &Request<Incoming>) -> Result<(usize, Option<Arc<str>>), Refusal> {
        let path = request.uri().path();
        let Some(&upstream) = self.paths.get(path) else {
            let paths: Vec<String> = self.upstreams.iter().map(|upstream| upstream.path.clone()).collect();
            return Err(Refusal::no_such_path(path, &paths));
        };
        Ok((upstream, self.principal(peer, request.headers())?))
    }
}
