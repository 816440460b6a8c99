//! Who is asking: the owner of tasks, found by a trusted header or a token, and the checks of Host and Origin.

mod bearer;
mod certificate;
mod claims;
mod denied;
mod identify;
mod introspect;
mod jwks;
mod jwt;
mod keys;
mod origin;
mod owner;
mod principal;
mod token;
mod trusted;

pub use bearer::RefusedTokens;
pub use certificate::Certificate;
pub use denied::Denied;
pub use identify::{Caller, Identified, Identity};
pub use origin::{Hosts, Refused};
pub use owner::Owner;
pub use principal::{Pass, Principal};
