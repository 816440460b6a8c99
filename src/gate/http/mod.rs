//! Clients over HTTP: the connections, who comes in, and one file for each method of the MCP endpoint (revision
//! 2025-11-25, "Streamable HTTP").

mod access;
mod body;
mod connection_activity;
mod connections;
mod delete;
mod get;
mod headers;
mod inline;
mod intake;
mod listener;
mod modern;
mod old_sse;
mod origin;
mod post;
mod protected;
mod request_body;
mod respond;
mod service;
mod sse;
mod starting;
mod tls;
mod too_many_connections;
mod unavailable;
mod workers;

use std::sync::Arc;

pub use access::AccessControl;
pub use connections::ConnectionLimits;
pub use intake::Bodies;
pub(super) use listener::accept;
pub use listener::{Listener, serve};
pub use protected::ResourceMetadata;
pub use starting::while_starting;
pub use tls::Tls;
pub use workers::Workers;

use body::Body;

use crate::{
    dialect::modern::Modern,
    gate::{Dispatcher, Lifecycle, Services, channel::OldStreams},
    observe::Observer,
};

/// The front for clients over HTTP. `get.rs`, `post.rs`, `delete.rs` and `old_sse.rs` have a method each.
#[derive(Debug)]
pub struct Endpoint {
    /// Decides what comes in.
    access: Arc<AccessControl>,
    /// What refused clients are told about tokens.
    metadata: ResourceMetadata,
    /// What holds for the bodies of requests.
    bodies: Bodies,
    /// The streams of clients of the older transport.
    old_streams: Arc<OldStreams>,
    lifecycle: Arc<Lifecycle>,
    dispatcher: Arc<Dispatcher>,
    modern: Arc<Modern>,
    observer: Arc<Observer>,
}

impl Endpoint {
    /// Creates the endpoint.
    #[must_use]
    pub fn new(
        access: Arc<AccessControl>,
        metadata: ResourceMetadata,
        bodies: Bodies,
        old_streams: Arc<OldStreams>,
        services: Services,
    ) -> Arc<Self> {
        let Services { lifecycle, dispatcher, modern, observer } = services;
        Arc::new(Self { access, metadata, bodies, old_streams, lifecycle, dispatcher, modern, observer })
    }
}
