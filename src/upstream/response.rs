//! How a request to a server ends.

use bytes::Bytes;

use super::{
    Failure, MAX_MESSAGE,
    http::{AnswerBody, read},
};
use crate::wire::Message;

/// How an exchange ends: with the upstream's response, or with a failure.
pub type ExchangeEnd = Result<UpstreamResponse, Failure>;

/// An upstream's response to a request.
#[derive(Debug)]
pub enum UpstreamResponse {
    /// A response that was read whole.
    Whole(Message),
    /// A large response that is still arriving; only where [`super::Outgoing::relay`] allows it.
    Large {
        /// Its beginning.
        first: Bytes,
        /// The rest.
        rest: AnswerBody,
    },
}

impl UpstreamResponse {
    /// Reads the response to its end.
    ///
    /// # Errors
    /// [`Failure`] if the rest does not arrive, or the whole is too large or not a response.
    pub async fn whole(self) -> Result<Message, Failure> {
        match self {
            Self::Whole(message) => Ok(message),
            Self::Large { first, rest } => {
                let document = read(first, rest, MAX_MESSAGE).await?;
                Message::of_server(document).map_err(|malformed| Failure::BadAnswer(malformed.of_server()))
            }
        }
    }
}
