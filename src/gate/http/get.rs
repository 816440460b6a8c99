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
        let connection = match id {
            Some(id) => {
                let lost = session.is_lost();
                let connection = session.streams().resume(&id).map_err(|why| match why {
                    NotResumed::Unknown if lost => Refusal::unknown_session(),
                    NotResumed::Unknown => Refusal::unknown_event(),
                    NotResumed::Full(full) => Refusal::full(&full),
                });
                let connection = connection.map_err(|refusal| refusal.by(Arc::clone(&session.caller.who)))?;
                if !lost {
                    // The upstream may have refused its GET stream with the headers that the client had before.
                    session.upstream_session.listen(onward);
                }
                connection
            }
            None if session.is_lost() => return Err(Refusal::unknown_session()),
            None => {
                session.upstream_session.listen(onward);
                session.streams().connect_get_stream(|| self.dispatcher.listener(session))
            }
        };
        let pass = principal.map_or(Pass::Lasting, |principal| principal.pass.clone());
        Ok(respond::stream(Events::of_session(connection, in_use, pass)))
    }
}
