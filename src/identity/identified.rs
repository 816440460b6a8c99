//! Who sends a request: a principal, a refusal, or an answer that the issuer has yet to give.

use std::pin::Pin;

use super::{Denied, Principal};

/// Who sends a request.
pub enum Identified {
    /// This principal; `None` where there is no authentication.
    Known(Option<Principal>),
    /// The request gets no principal.
    Denied(Denied),
    /// taskgate has to ask the issuer of a token first.
    Later(Pin<Box<dyn Future<Output = Result<Principal, Denied>> + Send>>),
}
