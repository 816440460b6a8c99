//! Towards clients: over HTTP ([`http`]), and on one channel ([`channel`]). Both stand on a [`Lifecycle`], which opens
//! and ends sessions, and a [`Dispatcher`], which takes the messages in them. Beside them is the admin port.

pub mod admin;
pub mod channel;
mod delivery;
mod dispatcher;
pub mod http;
mod lifecycle;
mod refuse;
mod services;
mod upstreams;

pub use dispatcher::Dispatcher;
pub use lifecycle::{Lifecycle, SessionTerms};
pub use services::Services;
pub use upstreams::{Door, Upstreams};
