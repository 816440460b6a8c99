//! One request at the endpoint: path, method, then the file named for the method.

use std::{
    convert::Infallible,
    future::ready,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, request::Parts};
use hyper::body::Incoming;
use tower::Service;

use super::{connections::Connection, headers::said_once, intake::Intake};
use crate::{
    gate::{Door, Gate, Response, refuse::Refusal},
    identity::{Caller, Certificate, Identified, Principal},
    upstream::Upstream,
};

type Answered = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// The endpoint as one connection sees it.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The process's state.
    pub gate: Arc<Gate>,
    /// The other end of the connection.
    pub peer: IpAddr,
    /// What the client's certificate says, if it has one.
    pub certificate: Option<Arc<Certificate>>,
    /// The connection.
    pub(super) connection: Arc<Connection>,
}

impl Service<Request<Incoming>> for Endpoint {
    type Response = Response;
    type Error = Infallible;
    type Future = Answered;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let gate = &self.gate;
        let (upstream, door) = match gate.place(&request) {
            Ok(place) => place,
            Err(refusal) => return refused(gate, refusal),
        };
        let identified = match door {
            // Who looks for the issuer has no token yet.
            Door::Metadata => Identified::Known(None),
            _ => gate.identity.identify(&Caller {
                upstream: &upstream.id,
                peer: self.peer,
                certificate: self.certificate.as_deref(),
                headers: request.headers(),
            }),
        };
        match identified {
            Identified::Known(principal) => self.serve(upstream, door, principal, request),
            Identified::Denied(denied) => refused(gate, gate.denied(&denied, request.uri(), request.headers())),
            Identified::Later(identified) => {
                let endpoint = self.clone();
                Box::pin(async move {
                    let gate = &endpoint.gate;
                    match identified.await {
                        Ok(principal) => endpoint.serve(upstream, door, Some(principal), request).await,
                        Err(denied) => refused(gate, gate.denied(&denied, request.uri(), request.headers())).await,
                    }
                })
            }
        }
    }
}

impl Endpoint {
    /// Hands a request to the file of its method.
    fn serve(
        &self,
        upstream: Arc<Upstream>,
        door: Door,
        principal: Option<Principal>,
        request: Request<Incoming>,
    ) -> Answered {
        let gate = Arc::clone(&self.gate);
        if let Err(refusal) = said_once(request.headers()) {
            return refused(&gate, refusal);
        }
        let (head, body) = request.into_parts();
        let posted = matches!((door, &head.method), (Door::Streamable | Door::OldMessages, &Method::POST));
        let intake = posted.then(|| Intake::new(&head, body, &gate.bodies, &self.connection)).transpose();
        let intake = match intake {
            Ok(intake) => intake,
            Err(refusal) => return refused(&gate, refusal),
        };
        let Parts { method, uri, headers, .. } = head;
        // One box with the future of one method: this is allocated for every request.
        match (door, method, intake) {
            (Door::Streamable, _, Some(intake)) => Box::pin(async move {
                let answered = gate.post(&upstream, principal, headers, intake).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (Door::Streamable, Method::DELETE, _) => Box::pin(async move {
                let answered = gate.delete(&upstream, principal.as_ref(), headers).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (Door::OldMessages, _, Some(intake)) => Box::pin(async move {
                let answered = gate.old_message(&upstream, principal, uri.query(), headers, intake).await;
                Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))
            }),
            (door, method, _) => {
                let answered = match (door, method) {
                    (Door::Streamable, Method::GET) => gate.get(&upstream, principal.as_ref(), headers),
                    (Door::OldStream, Method::GET) => gate.open_old_sse(upstream, principal, uri.path(), &headers),
                    (Door::Metadata, method) => gate.metadata(&method, &uri, &headers),
                    (door, _) => Err(Refusal::method(door)),
                };
                Box::pin(ready(Ok(answered.unwrap_or_else(|refusal| refusal.into_response(&gate.observer)))))
            }
        }
    }
}

fn refused(gate: &Gate, refusal: Refusal) -> Answered {
    Box::pin(ready(Ok(refusal.into_response(&gate.observer))))
}

impl Gate {
    /// The upstream that a request is for, and by which door it comes.
    fn place(&self, request: &Request<Incoming>) -> Result<(Arc<Upstream>, Door), Refusal> {
        let path = request.uri().path();
        let served = self.upstreams.now();
        served.at(path).cloned().ok_or_else(|| {
            let streams = |upstream: &Arc<Upstream>| [Some(upstream.id.as_str().to_owned()), upstream.sse_path.clone()];
            let paths: Vec<String> = served.all().iter().flat_map(streams).flatten().collect();
            Refusal::no_such_path(path, &paths)
        })
    }
}
