//! The GET stream of a session, on which a server sends what belongs to no request (revision 2025-11-25, "Transports",
//! section "Listening for Messages from the Server").

use std::sync::{Arc, atomic::Ordering};

use http::{HeaderMap, StatusCode};

use super::{
    LAST_EVENT_ID,
    body::{MAX_UNASKED, is_stream, media_type},
    link::HttpSession,
    reopen::{backed_off, resumption},
};
use crate::{upstream::MAX_MESSAGE, wire::sse::Decoder};

impl HttpSession {
    /// Keeps the GET stream open while the upstream has one.
    pub(super) async fn listen(self: &Arc<Self>, headers: HeaderMap) {
        let mut decoder = Decoder::new(MAX_MESSAGE);
        let (mut fruitless, mut was_open) = (0, false);
        loop {
            let mut resuming = headers.clone();
            if let Some(id) = resumption(&decoder) {
                resuming.insert(LAST_EVENT_ID, id);
            }
            // Boxed, so that the open stream does not keep the memory of the request.
            let answered = Box::pin(self.get(resuming)).await;
            self.inbound.listening.cancel();
            match answered {
                Ok(response) if response.status().is_success() => {
                    if !is_stream(media_type(response.headers())) {
                        // It answers GET, but not with an event stream.
                        return;
                    }
                    (fruitless, was_open) = (0, true);
                    let read = self.events(response.into_body(), MAX_MESSAGE, None, &headers, &mut decoder).await;
                    if let Err(failure) = read {
                        tracing::debug!(upstream = self.server.id.as_str(), %failure, "the GET stream broke");
                    }
                    decoder.restart();
                }
                Ok(response) => match response.status() {
                    // The upstream has no such stream.
                    StatusCode::METHOD_NOT_ALLOWED => return,
                    StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => fruitless += 1,
                    // Some servers say 404 where they have no such stream; one that had it has forgotten the session.
                    StatusCode::NOT_FOUND if was_open && self.session().is_some() => {
                        return drop(self.refusal(response, MAX_UNASKED).await);
                    }
                    // Some say so with this status.
                    StatusCode::BAD_REQUEST if was_open => {
                        drop(self.refusal_of_request(response, MAX_UNASKED).await);
                        return self.listening.store(false, Ordering::Release);
                    }
                    // The client's next GET may have better headers. Pairs with the swap in `listen`.
                    status if status.is_client_error() => return self.listening.store(false, Ordering::Release),
                    _ => fruitless += 1,
                },
                Err(_) => fruitless += 1,
            }
            tokio::time::sleep(backed_off(&decoder, fruitless)).await;
        }
    }
}
