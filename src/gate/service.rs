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

use super::{Door, Gate, Response, Upstream, refuse::Refusal};

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
        let place = match gate.place(self.peer, &request) {
            Ok(place) => place,
            Err(refusal) => return Box::pin(ready(Ok(refusal.into_response(&gate.observer)))),
        };
        let Place { upstream, door, principal } = place;
        let (Parts { method, uri, headers, .. }, body) = request.into_parts();
        // One box with the future of one method: this is allocated for every request.
        match (door, method) {
            (Door::Streamable, Method::POST) => Box::pin(async move {
                let answered = gate.post(upstream, principal, headers, body).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (Door::Streamable, Method::DELETE) => Box::pin(async move {
                let answered = gate.delete(upstream, principal.as_ref(), headers).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (Door::OldMessages, Method::POST) => Box::pin(async move {
                let answered = gate.old_message(upstream, principal, uri.query(), headers, body).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (door, method) => {
                let answered = match (door, method) {
                    (Door::Streamable, Method::GET) => gate.get(upstream, principal.as_ref(), headers),
                    (Door::OldStream, Method::GET) => gate.open_old_sse(upstream, principal, uri.path(), &headers),
                    (door, _) => Err(Refusal::method(door)),
                };
                Box::pin(ready(Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))))
            }
        }
    }
}

/// What a request is for, and for whom.
struct Place {
    upstream: usize,
    door: Door,
    principal: Option<Arc<str>>,
}

impl Gate {
    fn place(&self, peer: IpAddr, request: &Request<Incoming>) -> Result<Place, Refusal> {
        let path = request.uri().path();
        let Some(&(upstream, door)) = self.doors.get(path) else {
            let streams = |upstream: &Upstream| [Some(upstream.path.clone()), upstream.sse_path.clone()];
            let paths: Vec<String> = self.upstreams.iter().flat_map(streams).flatten().collect();
            return Err(Refusal::no_such_path(path, &paths));
        };
        Ok(Place { upstream, door, principal: self.principal(peer, request.headers())? })
    }
}
