//! A GET with `Last-Event-ID` resumes a stream where its connection broke (section "Resumability and Redelivery").
//! Until then the stream is kept, for a while.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Connection, Full, Streams,
    streams::{GET_STREAM, Stream},
};
use crate::wire::sse::EventId;

/// How many streams without a connection are kept to be resumed.
const MAX_KEPT: usize = 32;
/// How long a stream without a connection is kept to be resumed.
const RESUMABLE_FOR: Duration = Duration::from_mins(5);

/// Why a stream is not resumed.
#[derive(Debug)]
pub enum NotResumed {
    /// There is no such stream in this session, or it is no longer kept.
    Unknown,
    /// It may be the GET stream of the session in an earlier process, whose events are gone.
    OfEarlierProcess,
    /// As many streams are open as may be.
    Full(Full),
}

impl Streams {
    /// Resumes the stream that sent the event `last_event_id`, after that event.
    ///
    /// # Errors
    /// [`NotResumed`]
    pub fn resume(self: &Arc<Self>, last_event_id: &str) -> Result<Connection, NotResumed> {
        let id = EventId::parse(last_event_id).ok_or(NotResumed::Unknown)?;
        if id.session != self.session {
            let may_have_been = self.restored && id.stream == GET_STREAM;
            return Err(if may_have_been { NotResumed::OfEarlierProcess } else { NotResumed::Unknown });
        }
        let mut table = self.table.lock();
        let kept = table.kept.iter().position(|(_, stream)| stream.number == id.stream);
        let stream = match kept {
            Some(at) => Some(Arc::clone(&table.kept[at].1)),
            None if id.stream == GET_STREAM => table.get_stream.clone(),
            // The client has noticed before taskgate that the connection has broken.
            None => table.delivering.get(&id.stream).cloned(),
        };
        let stream = stream.filter(|stream| id.event <= stream.state.lock().last).ok_or(NotResumed::Unknown)?;
        if kept.is_some() {
            self.check_room(&table).map_err(NotResumed::Full)?;
        }
        if let Some((_, stream)) = kept.and_then(|at| table.kept.remove(at)) {
            table.delivering.insert(stream.number, stream);
        }
        Ok(self.connect(stream, Some(id.event)))
    }

    /// Keeps the stream of the connection `number`, which has broken, while there is room.
    pub(super) fn keep(&self, stream: Arc<Stream>, number: u64) {
        let mut dropped = Vec::new();
        let mut table = self.table.lock();
        let (superseded, finished, bytes) = {
            let state = stream.state.lock();
            (state.connection != number, state.source.is_none(), state.sent.bytes())
        };
        if superseded || table.delivering.remove(&stream.number).is_none() {
            return;
        }
        // A stream that was delivered to its end is kept in case the end was lost, unless it is large.
        if finished && bytes > 4 * self.capacity.each_sent() {
            return;
        }
        table.kept.push_back((Instant::now(), stream));
        let mut bytes: usize = table.kept.iter().map(|(_, stream)| stream.state.lock().sent.bytes()).sum();
        while table.kept.len() > MAX_KEPT || (bytes > 4 * self.capacity.each_sent() && table.kept.len() > 1) {
            let Some((_, oldest)) = table.kept.pop_front() else { break };
            bytes -= oldest.state.lock().sent.bytes();
            dropped.push(oldest);
        }
        // Sources are dropped outside the lock.
        drop(table);
    }

    /// Drops the streams that no client has resumed in time.
    pub fn sweep(&self) {
        let mut table = self.table.lock();
        let mut expired = Vec::new();
        while table.kept.front().is_some_and(|(since, _)| since.elapsed() > RESUMABLE_FOR) {
            expired.extend(table.kept.pop_front());
        }
        // Sources are dropped outside the lock.
        drop(table);
    }
}
