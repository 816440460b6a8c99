//! Why the file cannot be opened, or does not answer.

use std::{fmt, path::Path, sync::Arc};

use rusqlite::ErrorCode;

use super::Damaged;

/// The disk does not take or give what it should now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable(pub Arc<str>);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

impl From<&rusqlite::Error> for Unavailable {
    fn from(error: &rusqlite::Error) -> Self {
        Self(match error {
            // SQLite's words say nothing of what was read.
            rusqlite::Error::FromSqlConversionFailure(_, _, why) => why.to_string().into(),
            // Nor do they say which of both.
            _ if is_full(error) => "the disk is full, or the file has reached store.max_store_bytes".into(),
            _ => error.to_string().into(),
        })
    }
}

/// Why the file cannot be opened, and how to go on. No task was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError(String);

impl OpenError {
    /// Returns the error about the file at `path`.
    pub(super) fn new(path: &Path, why: impl fmt::Display) -> Self {
        Self(format!("the store \"{}\" cannot be used: {why}", path.display()))
    }

    /// Returns the error about a copy of the file at `path` that was not made at `target`.
    pub(super) fn of_copy(path: &Path, target: &Path, why: impl fmt::Display) -> Self {
        Self(format!("the store \"{}\" was not copied to \"{}\": {why}", path.display(), target.display()))
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OpenError {}

/// Returns what to do about a damaged file.
pub(super) fn damaged(why: &str) -> String {
    format!(
        "it is damaged: {why}; no task was changed. Save what can be read with `taskgate store export FILE`, then restore a \
         backup, or move the file and what stands beside it away to begin without its tasks"
    )
}

/// Returns what to do about a file in which what SQLite notes of its pages is damaged. Nothing that is read goes by that.
pub(super) fn damaged_beside_rows(why: &str) -> String {
    format!(
        "it is damaged: {why}; no task was changed. If that is all, `taskgate store backup FILE NEW` makes a copy of it \
         that a start takes, with every task"
    )
}

/// Returns what to do about a file that SQLite has written without a log, as `VACUUM INTO` does: a start needs one.
pub(super) fn without_log(mode: &str) -> String {
    format!(
        "its journal mode is {mode}, as in a copy that SQLite itself has made; `taskgate store backup FILE NEW` makes a \
         copy of it that a start takes"
    )
}

/// Returns whether an error says that there is no room. What needs no more room can still be done.
pub(super) fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
}

/// Returns whether an error is the disk's, and not that of one operation. Where the file may not grow, what needs no
/// more room can still be done, and where a page of it is damaged, what needs the others.
pub(super) fn is_of_disk(error: &rusqlite::Error) -> bool {
    use ErrorCode::{CannotOpen, DatabaseBusy, FileLockingProtocolFailed, OutOfMemory, ReadOnly, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(CannotOpen | DatabaseBusy | FileLockingProtocolFailed | OutOfMemory | ReadOnly | SystemIoFailure)
    )
}

/// Returns whether an error says that what stands in the file is not what was written there. It stays so: the disk has
/// answered.
#[must_use]
pub fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, _, why) => why.is::<Damaged>(),
        _ => matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)),
    }
}
