//! Clients over HTTP: the connections, and one file for each method of the MCP endpoint.

mod body;
mod connections;
mod delete;
mod get;
pub(super) mod headers;
mod inline;
pub(super) mod intake;
pub(super) mod listener;
mod origin;
mod post;
pub(super) mod protected;
mod service;
pub(super) mod sse;
mod tls;
mod turned_away;
mod watched;

pub use body::Body;
pub use intake::Bodies;
pub use listener::{Limits, Listener, serve};
pub use service::Endpoint;
pub use tls::Tls;
