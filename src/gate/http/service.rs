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
use tower::Service;

use super::{
    Endpoint, connections::Activity, headers::said_once, intake::Intake, request_body::RequestBody, respond::Response,
};
use crate::{
    dialect::modern::LastCaller,
    gate::{Door, refuse::Refusal},
    identity::{Certificate, Evidence, Identified, Principal},
    upstream::Upstream,
};

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

/// The endpoint as one connection sees it.
#[derive(Clone, Debug)]
pub(super) struct EndpointService {
    pub(super) endpoint: Arc<Endpoint>,
    /// The other end of the connection.
    pub(super) peer: IpAddr,
    /// What the client's certificate says, if it has one.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// What the connection is doing.
    pub(super) activity: Arc<Activity>,
    /// Who has sent the last request without a session.
    pub(super) last_caller: Arc<LastCaller>,
}

impl Service<Request<RequestBody>> for EndpointService {
    type Response = Response;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let access = &self.endpoint.access;
        let (upstream, door) = match access.find(request.uri().path()) {
            Ok(found) => found,
            Err(refusal) => return self.refuse(refusal),
        };
        let evidence = Evidence {
            upstream: &upstream.id,
            peer: self.peer,
            certificate: self.certificate.as_deref(),
            headers: request.headers(),
        };
        match access.identify(door, &evidence) {
            Identified::Known(principal) => self.serve(upstream, door, principal, request),
            Identified::Denied(denied) => {
                self.refuse(self.endpoint.metadata.denied(&denied, request.uri(), request.headers()))
            }
            Identified::Later(identified) => {
                let counted = match self.endpoint.bodies.unidentified(request.version(), request.headers()) {
                    Ok(counted) => counted,
                    Err(refusal) => return self.refuse(refusal),
                };
                let service = self.clone();
                Box::pin(async move {
                    let answering = match identified.await {
                        Ok(principal) => service.serve(upstream, door, Some(principal), request),
                        Err(denied) => {
                            let metadata = &service.endpoint.metadata;
                            service.refuse(metadata.denied(&denied, request.uri(), request.headers()))
                        }
                    };
                    // Its body counts from here on.
                    drop(counted);
                    answering.await
                })
            }
        }
    }
}

impl EndpointService {
    /// Hands a request to the file of its method.
    fn serve(
        &self,
        upstream: Arc<Upstream>,
        door: Door,
        principal: Option<Principal>,
        request: Request<RequestBody>,
    ) -> ResponseFuture {
        let endpoint = Arc::clone(&self.endpoint);
        if let Err(refusal) = said_once(request.headers()) {
            return self.refuse(refusal);
        }
        let (head, body) = request.into_parts();
        let posted = matches!((door, &head.method), (Door::Streamable | Door::OldMessages, &Method::POST));
        let intake = posted.then(|| Intake::new(&head, body, &endpoint.bodies, &self.activity)).transpose();
        let intake = match intake {
            Ok(intake) => intake,
            Err(refusal) => return self.refuse(refusal),
        };
        let Parts { method, uri, headers, .. } = head;
        // One box with the future of one method: this is allocated for every request.
        match (door, method, intake) {
            (Door::Streamable, _, Some(intake)) => {
                let last = Arc::clone(&self.last_caller);
                Box::pin(async move {
                    let answered = endpoint.post(&upstream, principal, &last, headers, intake).await;
                    Ok(answered.unwrap_or_else(|refusal| endpoint.access.refuse(refusal)))
                })
            }
            (Door::Streamable, Method::DELETE, _) => Box::pin(async move {
                let answered = endpoint.delete(&upstream, principal.as_ref(), headers).await;
                Ok(answered.unwrap_or_else(|refusal| endpoint.access.refuse(refusal)))
            }),
            (Door::OldMessages, _, Some(intake)) => Box::pin(async move {
                let answered = endpoint.old_message(&upstream, principal, uri.query(), headers, intake).await;
                Ok(answered.unwrap_or_else(|refusal| endpoint.access.refuse(refusal)))
            }),
            (door, method, _) => {
                let answered = match (door, method) {
                    (Door::Streamable, Method::GET) => endpoint.get(&upstream, principal.as_ref(), headers),
                    (Door::OldStream, Method::GET) => {
                        endpoint.open_old_stream(upstream, principal, uri.path(), &headers)
                    }
                    (Door::Metadata, method) => endpoint.metadata.metadata(&method, &uri, &headers),
                    (door, _) => Err(Refusal::method(door)),
                };
                Box::pin(ready(Ok(answered.unwrap_or_else(|refusal| endpoint.access.refuse(refusal)))))
            }
        }
    }

    fn refuse(&self, refusal: Refusal) -> ResponseFuture {
        Box::pin(ready(Ok(self.endpoint.access.refuse(refusal))))
    }
}
