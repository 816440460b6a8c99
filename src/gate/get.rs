//! GET: the stream for what belongs to no request (section "Listening for Messages from the Server").

use std::sync::Arc;

use futures_util::stream;
use http::Request;
use hyper::body::Incoming;

use super::{
    Gate, Response,
    headers::{accepts_stream, end_to_end, speaks_version},
    refuse::Refusal,
    sse::{self, Events},
};
use crate::upstream::Item;

impl Gate {
    pub(super) async fn get(
        &self,
        upstream: usize,
        principal: Option<&Arc<str>>,
        request: Request<Incoming>,
    ) -> Result<Response, Refusal> {
        let headers = request.into_parts().0.headers;
        accepts_stream(&headers)?;
        speaks_version(&headers)?;
        let session = self.session(upstream, principal, &headers)?;
        if session.is_lost() {
            return Err(self.lost(&session).await);
        }
        let replaced = session.listen(end_to_end(headers));
        let listener = Arc::clone(session.listener());
        let documents = stream::unfold((listener, replaced), |(listener, replaced)| async move {
            match replaced.run_until_cancelled(listener.next()).await?? {
                Item::Message(message) => Some((message.bytes().clone(), (listener, replaced))),
                Item::Silence | Item::End(()) => None,
            }
        });
        Ok(sse::response(Events::new(documents, session.hold())))
    }
}
