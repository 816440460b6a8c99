//! Cuts from the log what a batch that failed has left there. SQLite does not count the frames of a commit whose sync
//! failed, but a start that finds them takes them for a commit: calls would become tasks whose clients were told that
//! they did not.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use rusqlite::Connection;

use super::{
    Unavailable,
    beside::beside,
    wal::{FRAME_HEADER, HEADER},
};

/// The open log.
#[derive(Debug)]
pub(super) struct LogEnd(File);

impl LogEnd {
    /// Opens the log of the file at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        OpenOptions::new().write(true).open(beside(path, "-wal")).map(Self)
    }

    /// Cuts off what stands behind the last commit that `connection`, which is in no transaction, counts. Returns how
    /// many frames are left. After a failure the log may be cut but not yet synced.
    pub(super) fn cut(&self, connection: &Connection, page: u64) -> Result<u64, Unavailable> {
        let (frames, length) = counted(connection, page)?;
        let cut = || {
            // The system tells an earlier failure once to each open file. Here it was told already.
            let _ = self.0.sync_all();
            if self.0.metadata()?.len() > length {
                self.0.set_len(length)?;
            }
            self.0.sync_all()
        };
        cut().map_err(|error: io::Error| Unavailable(format!("its log cannot be cut: {error}").into()))?;
        Ok(frames)
    }

    /// Returns whether it is sure that nothing stands behind the last commit.
    pub(super) fn is_cut(&self, connection: &Connection, page: u64) -> bool {
        let counted = counted(connection, page);
        counted.is_ok_and(|(_, length)| self.0.metadata().is_ok_and(|log| log.len() <= length))
    }
}

/// Returns the frames of the commits that a connection counts, and the bytes of a log that has no others.
fn counted(connection: &Connection, page: u64) -> Result<(u64, u64), Unavailable> {
    let frames = connection.query_row("PRAGMA wal_checkpoint(NOOP)", (), |row| row.get::<_, i64>(1));
    let frames = frames.map_err(|error| Unavailable::from(&error))?;
    let frames = u64::try_from(frames).map_err(|_| Unavailable("its log is not counted".into()))?;
    // SQLite begins a log without frames with a new header.
    Ok((frames, if frames == 0 { 0 } else { HEADER as u64 + frames * (FRAME_HEADER as u64 + page) }))
}
