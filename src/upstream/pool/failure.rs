//! Why a pool has no session for a call.

use std::{fmt, sync::Arc};

use crate::upstream::{Failure, NotAgreed};

/// Why there is no session.
#[derive(Clone, Debug)]
pub enum NoSession {
    /// As many are open as may be.
    Full(String),
    /// The server did not agree.
    NotAgreed(Arc<NotAgreed>),
}

impl NoSession {
    pub(super) fn failed(failure: Failure) -> Self {
        Self::NotAgreed(Arc::new(NotAgreed::Failed(failure)))
    }

    pub(super) fn stopping() -> Self {
        Self::Full("taskgate is stopping; try again when it is back".to_owned())
    }

    /// Returns whether the server has refused the credential.
    pub(super) fn is_authorization(&self) -> bool {
        let Self::NotAgreed(why) = self else { return false };
        matches!(&**why, NotAgreed::Failed(Failure::Http(error)) if error.is_authorization())
    }

    /// Returns the failure of a call for want of a session.
    #[must_use]
    pub fn to_failure(&self) -> Failure {
        match self {
            Self::NotAgreed(why) if let NotAgreed::Failed(failure) = &**why => failure.clone(),
            why => Failure::Limit(why.to_string()),
        }
    }
}

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(why) => f.write_str(why),
            Self::NotAgreed(why) => match &**why {
                NotAgreed::TooMany(why) => why.fmt(f),
                NotAgreed::Refused { .. } => f.write_str("the server refused the session"),
                NotAgreed::Failed(failure) => failure.fmt(f),
            },
        }
    }
}
