//! GET: the stream for what belongs to no request (section "Listening for Messages from the Server").

use std::sync::Arc;

use futures_util::stream;
use http::HeaderMap;

use super::{
    Gate, Response,
    headers::{accepts_stream, end_to_end, speaks_version},
    refuse::Refusal,
    sse::{self, Events},
};
use crate::upstream::Item;

impl Gate {
    pub(super) fn get(
        &self,
        upstream: usize,
        principal: Option<&Arc<str>>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        accepts_stream(&headers)?;
        speaks_version(&headers)?;
        let session = self.session(upstream, principal, &headers)?;
        if session.is_lost() {
            return Err(Refusal::unknown_session());
        }
        let replaced = session.listen(end_to_end(headers));
        let listener = session.listener().attach();
        let documents = stream::unfold((listener, replaced), |(listener, replaced)| async move {
            let item = tokio::select! {
                // Looked at first: a stream that was replaced must not take the newer one's place as the reader.
                biased;
                () = replaced.cancelled() => return None,
                item = listener.next() => item?,
            };
            match item {
                Item::Message(message) => Some((message.bytes().clone(), (listener, replaced))),
                Item::Silence | Item::End(()) => None,
            }
        });
        Ok(sse::response(Events::new(documents, session.hold())))
    }
}
