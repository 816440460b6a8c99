//! What stands beside the file, looked at before anything opens the file: SQLite changes it by what it finds there.

use std::{fs, io::ErrorKind, path::Path};

use super::{beside::beside, locate::said};

/// Refuses what a file of taskgate never has beside it.
pub(super) fn look(path: &Path) -> Result<(), String> {
    let journal = beside(path, "-journal");
    match fs::symlink_metadata(&journal) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(said(&error)),
        // SQLite would bring back what it tells, up to an empty file.
        Ok(_) => Err(format!(
            "\"{}\" stands beside it, which a store never has: a backup that was interrupted, or another program, has left it, \
             and the file may be incomplete; move it away, and put a whole copy in the place of the file",
            journal.display()
        )),
    }
}
