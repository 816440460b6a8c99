//! Who sends a request: the principal, found by a trusted header, a token or a certificate; and the checks of Host and
//! Origin.

mod bearer;
mod certificate;
mod claims;
mod credentials;
mod denied;
mod identified;
mod identify;
mod introspect;
mod jwks;
mod jwt;
mod keys;
mod origin;
mod owner;
mod principal;
mod refused_tokens;
mod token;
mod trusted;
mod written_owner;

pub use certificate::Certificate;
pub use credentials::{digest_of, is_credential, lasting_senders, senders};
pub use denied::Denied;
pub use identified::Identified;
pub use identify::{Evidence, Identity};
pub use origin::{Hosts, RefusedHeader};
pub use owner::{Owner, OwnerKind};
pub use principal::{Pass, Principal};
pub use refused_tokens::RefusedTokens;
