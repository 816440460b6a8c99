//! How the answer to a client's request is delivered, whatever the transport.

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::{
    observe::{Observer, Who, events},
    session::{Source, StreamRoom},
    upstream::{Failure, HttpError, Upstream, http::AnswerBody, refusal_with_id},
    wire::{Parts as Document, RpcError, relay::Relay},
};

/// What carries an answer to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carrier {
    /// An HTTP response of its own: it may be a stream, and a large answer may be relayed while it arrives.
    Response,
    /// The channel that carries all answers.
    Channel,
}

/// An answer, and how it is delivered.
pub(super) enum Delivery {
    /// An answer that is ready.
    Whole(Whole),
    /// A response that acknowledges a task: its call starts when `start` is dropped, with the answer on its way.
    Acknowledgement { document: Document, start: oneshot::Sender<()> },
    /// A large response that is still arriving; only for [`Carrier::Response`].
    Large { relay: Relay, first: Bytes, rest: AnswerBody },
    /// Messages, and the response as the last of them; with the room that was taken for a [`Carrier::Response`].
    Stream { source: Box<dyn Source>, room: Option<StreamRoom> },
}

/// An answer that is whole.
pub(super) enum Whole {
    /// A response.
    Document(Document),
    /// The upstream's refusal of the principal.
    Unauthorized(Box<HttpError>),
}

impl Whole {
    pub(super) fn error(id: &str, error: &RpcError) -> Self {
        Self::Document(error.to_response(Some(id)).into())
    }

    /// Reports that the request `id` of `who`, or a handshake with that upstream, has failed, and answers it.
    pub(super) fn failed(
        observer: &Observer,
        upstream: &Upstream,
        who: Option<&Who>,
        id: &str,
        failure: Failure,
    ) -> Self {
        let upstream = upstream.id.as_str();
        observer.emit(events::ExchangeFailed { upstream, who, task: None, cause: failure.cause() });
        match failure {
            Failure::Http(error) if error.is_authorization() => Self::Unauthorized(refusal_with_id(error, id)),
            failure => Self::error(id, &RpcError::from(&failure)),
        }
    }
}

impl From<Whole> for Delivery {
    fn from(whole: Whole) -> Self {
        Self::Whole(whole)
    }
}
