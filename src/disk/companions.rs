//! What stands beside the file, looked at before anything opens one of them: SQLite changes the file by what it finds
//! there, and opening a pipe waits for its other end.

use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rustix::fs::{Access, access};

use super::{beside::beside, locate::said};

/// Refuses what a file of taskgate never has beside it.
pub(super) fn look(path: &Path) -> Result<(), String> {
    let found = |suffix| {
        let companion = beside(path, suffix);
        match fs::symlink_metadata(&companion) {
            Ok(found) => Ok(Some((companion, found))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(said(&error)),
        }
    };
    if let Some((journal, _)) = found("-journal")? {
        // SQLite would bring back what it tells, up to an empty file.
        return Err(format!(
            "\"{}\" stands beside it, which a store never has: a backup that was interrupted, or another program, has left it, \
             and the file may be incomplete; move it away, and unless it is empty put a whole copy in the place of the file",
            journal.display()
        ));
    }
    for suffix in ["-wal", "-shm", "-mark"] {
        if let Some((companion, _)) = found(suffix)?.filter(|(_, found)| !found.is_file()) {
            return Err(format!(
                "\"{}\" stands beside it and is not a regular file, as a store has there; move it away",
                companion.display()
            ));
        }
    }
    Ok(())
}

/// Says which of what SQLite needs may not be used. Its own words name neither that nor why.
pub(super) fn are_usable(path: &Path) -> Result<(), String> {
    for companion in ["-wal", "-shm"].map(|suffix| beside(path, suffix)) {
        match access(&companion, Access::READ_OK | Access::WRITE_OK).map_err(io::Error::from) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("\"{}\" cannot be read and written: {}", companion.display(), said(&error)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes from everyone but their user what they may do with the file and its companions, and says which they were. SQLite
/// makes companions with the mode of the file. A volume may give its group something again at each mount, so nothing
/// is refused for that.
pub(super) fn make_private(path: &Path) {
    let (mut open, mut failed) = (Vec::new(), None);
    for file in ["", "-wal", "-shm", "-mark"].map(|suffix| beside(path, suffix)) {
        let mode = fs::symlink_metadata(&file).map_or(0, |found| found.permissions().mode());
        if mode & 0o077 != 0 {
            failed = fs::set_permissions(&file, Permissions::from_mode(mode & 0o600)).err().or(failed);
            open.push(file.display().to_string());
        }
    }
    let files = open.join(", ");
    match failed {
        Some(why) => tracing::warn!(files, %why, "other users can read or write the store, and this cannot be changed"),
        None if !open.is_empty() => {
            tracing::warn!(files, "other users could read or write the store; they cannot any more");
        }
        None => {}
    }
}
