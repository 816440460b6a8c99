//! Why bytes are not a message.

use std::fmt;

use super::{RpcError, code};

/// Why bytes are not a message.
#[derive(Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not JSON, with the parser's error.
    NotJson(String),
    /// A JSON array: the current protocol has no batches.
    Batch,
    /// JSON, but no valid message; the id is kept where one could be read.
    Invalid {
        /// What is wrong with it.
        reason: String,
        /// The raw id to answer, if it is a valid one.
        id: Option<String>,
    },
}

impl From<Malformed> for RpcError {
    fn from(malformed: Malformed) -> Self {
        let code = match malformed {
            Malformed::NotJson(_) => code::PARSE_ERROR,
            Malformed::Batch | Malformed::Invalid { .. } => code::INVALID_REQUEST,
        };
        Self { code, message: malformed.to_string() }
    }
}

impl Malformed {
    /// Returns the raw id to answer, if one could be read.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        if let Self::Invalid { id, .. } = self { id.as_deref() } else { None }
    }

    /// Returns what is wrong, in words for a message of a server.
    #[must_use]
    pub fn of_server(self) -> String {
        match self {
            Self::NotJson(error) => format!("it is not valid JSON: {error}"),
            Self::Batch => "it has a batch where a message belongs".to_owned(),
            Self::Invalid { reason, .. } => reason,
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson(error) => write!(f, "Parse error: the message is not valid JSON: {error}"),
            Self::Batch => f.write_str("Invalid request: batches are not supported; send each message as a request"),
            Self::Invalid { reason, .. } => write!(f, "Invalid request: {reason}"),
        }
    }
}
