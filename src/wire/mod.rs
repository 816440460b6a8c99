//! Formats without I/O: the JSON-RPC envelope, splices, error codes, SSE framing and the tasks dialect.
//!
//! taskgate never turns messages into typed models and back, which would lose what the model does not know. A
//! [`Message`] is the received bytes and the spans of the envelope's members; every edit is a byte splice.

pub mod batch;
pub mod beginning;
pub mod capabilities;
pub mod depth;
mod envelope;
pub mod error;
mod excerpt;
pub mod ids;
pub mod input_required;
pub mod last_metas;
pub mod legacy;
mod log_level;
mod malformed;
pub mod message;
pub mod method;
pub mod modern;
pub mod object;
mod outcome;
mod own;
pub mod params;
mod parts;
pub mod received;
pub mod relay;
pub mod response;
mod span;
pub mod splice;
pub mod sse;
pub mod tools;
pub mod uri;
pub mod version;
mod walk;

pub use capabilities::{Asks, ClientCapabilities};
pub use error::{RpcError, code};
pub use excerpt::excerpt;
pub use log_level::LogLevel;
pub use malformed::Malformed;
pub use message::{Kind, Message};
pub use method::Method;
pub use own::{HEADER, extend, headers_cost, own};
pub use params::Params;
pub use parts::Parts;
pub use splice::Edits;
pub use version::Version;
