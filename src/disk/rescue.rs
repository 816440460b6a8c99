//! Reads a file without opening it as a store: to check it, to save what can be read, and to copy it.

use std::{fs, path::Path};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{
    OpenError, Place, Seals,
    beside::beside,
    companions, end,
    error::{is_damage, without_log},
    keys::{self, NoSeals},
    locate::{Looks, is_writable, look, said},
    mark,
    open::{no_seals, state},
    schema::{self, FORMAT},
    wal,
};

/// A file that is only read.
#[derive(Debug)]
pub struct Rescue {
    /// Reads it.
    pub connection: Connection,
    /// Opens its blobs.
    pub seals: Seals,
    /// What is wrong with it before anything else is read: commits or pages are missing, or its format is not known.
    pub damages: Vec<String>,
    /// That it is of a newer format, of which nothing can be said to be wrong.
    pub newer: Option<OpenError>,
    /// That a start refuses it as it has no log, though nothing of it is damaged.
    pub without_log: Option<OpenError>,
}

impl Rescue {
    /// Opens a file of which any of `keys` is the key, if it is sealed.
    ///
    /// # Errors
    /// [`OpenError`] if not even the beginning can be read.
    pub fn open(path: &Path, keys: &[String]) -> Result<Self, OpenError> {
        let wrong = |why: String| OpenError::new(path, why);
        let ReadOnly { connection, mut damages, unwritable } = read_only(path).map_err(wrong)?;
        damages.extend(unwritable);
        let seals = keys::unlock_to_read(&connection, keys, |what| damages.push(what));
        let seals = seals.map_err(|why| wrong(no_seals_to_read(&why)))?;
        let mut newer = None;
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0)) {
            Ok(format) if (1..=FORMAT).contains(&format) => {
                schema::read_as_newest(&connection, format).map_err(|error| wrong(error.to_string()))?;
            }
            Ok(format) => {
                newer = (format > FORMAT).then(|| wrong(schema::unknown(format)));
                damages.push(schema::unknown(format));
            }
            Err(error) => damages.push(error.to_string()),
        }
        let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
        // What cannot be asked is damaged, which is said elsewhere.
        let without_log = mode.ok().filter(|mode| mode != "wal").map(|mode| wrong(without_log(&mode)));
        Ok(Self { connection, seals, damages, newer, without_log })
    }

    /// Calls `found` for everything that is wrong with the file as such, and with what it has besides tasks.
    pub fn check(&self, mut found: impl FnMut(String)) {
        self.damages.iter().cloned().for_each(&mut found);
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
        for (table, id) in [("keys", "name"), ("sessions", "id")] {
            if let Err(error) = self.check_blobs(table, id, &mut found) {
                found(format!("the table {table} cannot be read: {error}"));
            }
        }
    }

    fn check_blobs(&self, table: &str, id: &str, found: &mut impl FnMut(String)) -> rusqlite::Result<()> {
        let mut all = self.connection.prepare(&format!("SELECT CAST({id} AS BLOB), value FROM {table}"))?;
        let mut rows = all.query(())?;
        let mut number = 0;
        while let Some(row) = rows.next()? {
            number += 1;
            let (id, value): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            if let Err(damaged) = self.seals.open(Place { table, row: &id, column: "value" }, &value) {
                found(format!("row {number} of the table {table} cannot be read: {damaged}"));
            }
        }
        Ok(())
    }
}

/// A file that SQLite has open to read it.
pub(super) struct ReadOnly {
    pub connection: Connection,
    /// What is missing of it, or of its commits.
    pub damages: Vec<String>,
    /// Why a start could not write it, which a copy ends.
    pub unwritable: Option<String>,
}

/// Opens a file to read it.
pub(super) fn read_only(path: &Path) -> Result<ReadOnly, String> {
    if !look(path, Looks::Reader)? {
        return Err("there is no such file".to_owned());
    }
    // What belongs to it stands beside the file itself, and not beside a link that leads to it.
    let path = &fs::canonicalize(path).map_err(|error| said(&error))?;
    companions::look(path)?;
    // Before the file is read: the mark of one in use goes on meanwhile.
    let noted = mark::noted(path).map_err(|error| format!("its mark cannot be read: {}", said(&error)))?;
    let mut damages: Vec<_> = mark::unreadable(path, noted).into_iter().collect();
    let mut missing = None;
    // A log that is being written changes while it is read.
    if !mark::is_locked(path) {
        let log = wal::check(&beside(path, "-wal"));
        match log.map_err(|error| format!("its log cannot be read: {}", said(&error)))? {
            Ok(commits) => missing = end::missing(path, &commits).map_err(|error| said(&error))?,
            Err(why) => damages.push(why),
        }
    }
    // Before SQLite opens the file: closing a second descriptor would drop its locks.
    let unwritable = is_writable(path).err();
    let connection = connect(path, missing.is_none()).map_err(|error| unreadable(&error))?;
    damages.extend(missing);
    match state(&connection) {
        Ok(state) => damages.extend(mark::lost(path, noted, state.batch)),
        // Tasks can be read without it.
        Err(error) => damages.push(format!("its last batch cannot be read: {error}")),
    }
    Ok(ReadOnly { connection, damages, unwritable })
}

fn connect(path: &Path, has_its_end: bool) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    if !has_its_end {
        // SQLite takes the length of the file then for that in its header. Otherwise it reads nothing of such a file.
        connection.pragma_update(None, "writable_schema", true)?;
    }
    // The first one that reads the file.
    connection.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    Ok(connection)
}

/// Returns what SQLite says, and what to do about it.
fn unreadable(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => format!(
            "{error}; even to read it, SQLite makes files beside it: copy it, with its -wal and -mark, to a folder in which you \
             may write, and read the copy"
        ),
        _ => error.to_string(),
    }
}

/// Returns why a file cannot be read, and what to do about it on a command line.
fn no_seals_to_read(why: &NoSeals) -> String {
    match why {
        NoSeals::NoKey => "it is sealed; name the file of its key with --key-file".to_owned(),
        NoSeals::WrongKey => {
            "it is sealed by none of the keys that --key-file names; name that of its store.key".to_owned()
        }
        // Not as a start says it: that would advise what has just failed.
        NoSeals::Damaged => {
            "none of its data keys is what was written, so that nothing in it can be read; restore a backup".to_owned()
        }
        NoSeals::Sql(error) if is_damage(error) || matches!(error, rusqlite::Error::QueryReturnedNoRows) => format!(
            "what opens a sealed file cannot be read in it: {error}; leave out --key-file if it is not sealed, else restore a backup"
        ),
        NoSeals::Sql(error) => error.to_string(),
        why => no_seals(why),
    }
}
