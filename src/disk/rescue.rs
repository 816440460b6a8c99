//! Reads a file without opening it as a store: to check it, to save what can be read, and to copy it while it is in use.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rusqlite::{Connection, OpenFlags};

use super::{
    OpenError, Seals,
    beside::beside,
    keys::{self, Locked},
    mark,
    open::{look, unlocked},
    schema::FORMAT,
    wal,
};

/// A file that is only read.
#[derive(Debug)]
pub struct Rescue {
    /// Reads it.
    pub connection: Connection,
    /// Opens its blobs.
    pub seals: Seals,
}

impl Rescue {
    /// Opens a file of which any of `keys` is the key, if it is sealed.
    ///
    /// # Errors
    /// [`OpenError`] if not even the beginning can be read.
    pub fn open(path: &Path, keys: &[String]) -> Result<Self, OpenError> {
        let wrong = |why: String| OpenError::new(path, why);
        if !look(path).map_err(wrong)? {
            return Err(wrong("there is no such file".to_owned()));
        }
        let connection = read_only(path).map_err(|error| wrong(error.to_string()))?;
        let unlock = || -> Result<Seals, Locked> {
            let salt: Vec<u8> = connection.query_row("SELECT salt FROM state", (), |row| row.get(0))?;
            keys::unlock_to_read(&connection, keys, &salt)
        };
        let seals = unlock().map_err(|locked| wrong(unlocked(&locked)))?;
        Ok(Self { connection, seals })
    }

    /// Calls `found` for everything that is wrong with the file and its log as such.
    pub fn check(&self, path: &Path, mut found: impl FnMut(String)) {
        // A log that is being written changes while it is read.
        if !mark::is_locked(path)
            && let Err(why) = wal::check(&beside(path, "-wal"))
        {
            found(why);
        }
        match self.connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0)) {
            Ok(format) if (1..=FORMAT).contains(&format) => {}
            Ok(format) => found(format!("it has format {format}, and this taskgate knows format {FORMAT}")),
            Err(error) => found(error.to_string()),
        }
        let mut check = || -> rusqlite::Result<()> {
            let mut check = self.connection.prepare("PRAGMA integrity_check(100)")?;
            let mut rows = check.query(())?;
            while let Some(row) = rows.next()? {
                let what: String = row.get(0)?;
                if what != "ok" {
                    found(what);
                }
            }
            Ok(())
        };
        if let Err(error) = check() {
            found(error.to_string());
        }
    }
}

fn read_only(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

/// Writes a copy of a file, which may be in use, as it is at one moment.
///
/// # Errors
/// Says why there is no copy.
pub fn backup(path: &Path, target: &Path) -> Result<(), OpenError> {
    let wrong = |why: String| OpenError::new(path, why);
    if !look(path).map_err(wrong)? {
        return Err(wrong("there is no such file".to_owned()));
    }
    let copy = || -> Result<(), Box<dyn std::error::Error>> {
        let source = read_only(path)?;
        // SQLite fills an empty file, and would make one that everyone can read.
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
        let target_text = target.to_str().ok_or("the path of the copy is not UTF-8 text")?;
        let copied = source.execute("VACUUM INTO ?1", [target_text]).map_err(Into::into).and_then(|_| finish(target));
        if copied.is_err() {
            // A part of a copy is none.
            fs::remove_file(target)?;
        }
        copied
    };
    copy().map_err(|error| wrong(format!("no copy was made at \"{}\": {error}", target.display())))
}

/// Makes a copy one that a start takes, and sees that it is on the disk.
fn finish(target: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let connection = Connection::open_with_flags(target, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(target)?.sync_all()?;
    let folder = std::path::absolute(target)?;
    folder.parent().map_or(Ok(()), |folder| Ok(File::open(folder)?.sync_all()?))
}
