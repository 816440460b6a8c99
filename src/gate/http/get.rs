//! GET: the stream for what belongs to no request (section "Listening for Messages from the Server"), and the
//! resumption of any stream by a `Last-Event-ID`.

use std::sync::Arc;

use http::HeaderMap;

use super::{
    Endpoint,
    headers::{LAST_EVENT_ID, accepts_stream, onward, session_id, speaks_version_with_sessions},
    respond::{self, Response},
    sse::Events,
};
use crate::{
    gate::refuse::Refusal,
    identity::{Pass, Principal},
    session::NotResumed,
    upstream::Upstream,
};

impl Endpoint {
    /// Opens the stream, or resumes one.
    pub(super) fn get(
        &self,
        upstream: &Upstream,
        principal: Option<&Principal>,
        headers: HeaderMap,
    ) -> Result<Response, Refusal> {
        speaks_version_with_sessions(upstream, &headers)?;
        accepts_stream(&headers)?;
        let in_use = self.lifecycle.find(session_id(&headers)?, &upstream.id, principal)?;
        let session = in_use.get();
        let id = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default().to_owned());
        let onward = onward(&session.caller.upstream, headers)?;
        let lost = session.is_lost();
        let resumed = match id.map(|id| session.streams().resume(&id)) {
            // SDKs give up after one or two more tries with the old id, so they get a fresh stream.
            None | Some(Err(NotResumed::OfEarlierProcess)) => None,
            Some(resumed) => Some(resumed.map_err(|why| {
                let refusal = match why {
                    NotResumed::Full(full) => Refusal::full(&full),
                    _ if lost => Refusal::unknown_session(),
                    _ => Refusal::unknown_event(),
                };
                refusal.by(Arc::clone(&session.caller.who))
            })?),
        };
        if lost && resumed.is_none() {
            return Err(Refusal::unknown_session());
        }
        if !lost {
            // The upstream may have refused its GET stream with the headers that the client had before.
            session.upstream_session.listen(onward);
        }
        let connection =
            resumed.unwrap_or_else(|| session.streams().connect_get_stream(|| self.dispatcher.listener(session)));
        let pass = principal.map_or(Pass::Lasting, |principal| principal.pass.clone());
        Ok(respond::stream(Events::of_session(connection, in_use, pass)))
    }
}
