//! Opens the file: makes it where there is none, locks it, and checks whose it is, what format it has, and that nothing
//! of it is lost. What fails is named, and nothing is changed.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{
    Damaged, OpenError, Seals,
    beside::beside,
    companions, end,
    error::{damaged, damaged_beside_rows, without_log},
    keys::{self, NoSeals},
    locate::{Looks, NEEDS, has_one_name, is_writable, look, place, said},
    mark::{self, Mark, NotLocked, Noted},
    page_map,
    schema::{self, APPLICATION, FORMAT},
    time::{FileTime, Seen},
    wal,
};

/// How long another process may lock the file, such as a backup at its beginning.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// How the file is to be opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// Where it is.
    pub path: PathBuf,
    /// What seals it.
    pub key: Option<String>,
    /// What may have sealed it before.
    pub old_keys: Vec<String>,
    /// The most bytes that it may take.
    pub max_bytes: u64,
}

impl std::fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenOptions").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What opening has found.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The time of the file, in milliseconds since the Unix epoch.
    pub now: u64,
    /// Whether the file is new.
    pub is_new: bool,
}

/// A checked file.
pub(super) struct Ready {
    pub path: PathBuf,
    pub connection: Connection,
    pub mark: Mark,
    pub seals: Seals,
    pub time: FileTime,
}

/// Opens the file, or creates it.
pub(super) fn open(options: &OpenOptions) -> Result<(Ready, Opened), OpenError> {
    let path = place(&options.path).map_err(|error| OpenError::new(&options.path, error))?;
    let wrong = |why: String| OpenError::new(&path, why);
    // Before the lock makes a file beside one that is not taskgate's.
    if look(&path, Looks::Start).map_err(wrong)? {
        has_one_name(&path).map_err(wrong)?;
    }
    companions::look(&path).map_err(wrong)?;
    let mark = Mark::lock(&path).map_err(|error| wrong(not_locked(&path, &error)))?;
    if let Some(why) = mark::unreadable(&path, mark.noted) {
        tracing::warn!(path = %path.display(), why, "the store may lack its last tasks");
    }
    // Another process may have made it meanwhile.
    let is_new = !look(&path, Looks::Start).map_err(wrong)?;
    if is_new {
        let wal = beside(&path, "-wal");
        if mark.noted != Noted::Nothing || wal.exists() {
            let mark = mark::path_of(&path);
            return Err(wrong(format!(
                "the file is gone, and what stands beside it says that there was one; put it back, or remove \"{}\" and \"{}\" \
                 to begin without its tasks",
                mark.display(),
                wal.display()
            )));
        }
        if let Err(error) = create(&path, options) {
            discard(&path, &mark);
            return Err(wrong(format!("it cannot be created: {error}; see that its disk has room")));
        }
    }
    companions::are_usable(&path).map_err(wrong)?;
    let log = wal::check(&beside(&path, "-wal"));
    let log = log.map_err(|error| wrong(format!("its log \"-wal\" cannot be read: {}", said(&error))))?;
    let commits = log.map_err(|why| wrong(damaged(&why)))?;
    if let Some(why) = end::missing(&path, &commits).map_err(|error| wrong(said(&error)))? {
        return Err(wrong(damaged(&why)));
    }
    is_writable(&path).map_err(wrong)?;
    let pages = page_map::check(&path, &commits).map_err(|error| wrong(said(&error)))?;
    pages.map_err(|why| wrong(damaged_beside_rows(&why)))?;
    companions::make_private(&path);
    let connection = connect(&path).map_err(|error| wrong(unreadable(&error)))?;
    // SQLite is content with a file that it can only read.
    if connection.is_readonly("main").map_err(|error| wrong(unreadable(&error)))? {
        return Err(wrong(format!("it can only be read; {NEEDS}")));
    }
    let found = check(&connection, &path, &mark, options)?;
    let limit = || {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = (options.max_bytes / page.cast_unsigned()).min(u64::from(u32::MAX) - 2).cast_signed();
        let count = |of| connection.pragma_query_value(None, of, |row| row.get::<_, i64>(0));
        let used = count("page_count")? - count("freelist_count")?;
        if used > pages {
            tracing::warn!(
                bytes = used * page,
                store.max_store_bytes = options.max_bytes,
                "the store has more bytes than it may: new tasks are refused, and some ends wait, until tasks have expired"
            );
        }
        connection.pragma_update(None, "max_page_count", pages)
    };
    limit().map_err(|error| wrong(unreadable(&error)))?;
    let (seals, time) = found;
    let opened = Opened { now: time.seen().unix, is_new };
    Ok((Ready { path, connection, mark, seals, time }, opened))
}

fn not_locked(path: &Path, error: &NotLocked) -> String {
    match error {
        NotLocked::InUse => {
            "another process has it open; stop that process, or set another store.path for this one".to_owned()
        }
        NotLocked::Failed(error) => {
            format!("\"{}\" cannot be opened: {}", mark::path_of(path).display(), said(error))
        }
    }
}

/// Returns what SQLite says, and what to do about it.
fn unreadable(error: &rusqlite::Error) -> String {
    use rusqlite::ErrorCode::{CannotOpen, DatabaseBusy, DatabaseCorrupt, NotADatabase, PermissionDenied, ReadOnly};
    match error.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => damaged(&error.to_string()),
        Some(CannotOpen | PermissionDenied | ReadOnly) => format!("{error}; {NEEDS}"),
        Some(DatabaseBusy) => format!("{error}; stop the other program that has it open"),
        None if matches!(error, rusqlite::Error::FromSqlConversionFailure(..)) => damaged(&error.to_string()),
        _ => error.to_string(),
    }
}

/// Makes the file under another name first, so that there is a whole one or none.
fn create(path: &Path, options: &OpenOptions) -> Result<(), Box<dyn std::error::Error>> {
    let unfinished = beside(path, "-new");
    // What an earlier process has not finished.
    fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    let connection = Connection::open_with_flags(&unfinished, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "synchronous", "EXTRA")?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update(None, "application_id", APPLICATION)?;
    schema::migrate(&connection, 0, &Seals::new(Vec::new()))?;
    let mut salt = [0; 32];
    aws_lc_rs::rand::fill(&mut salt).map_err(|_| "the system gives no random bytes")?;
    let seen = Seen::now();
    let insert = "INSERT INTO state (one, batch, seen, boot, since_boot, salt) VALUES (1, 0, ?1, ?2, ?3, ?4)";
    connection.execute(insert, (seen.unix.cast_signed(), seen.sealed_boot(0), seen.since_boot.cast_signed(), salt))?;
    keys::begin(&connection, options.key.as_deref(), &salt).map_err(|why| no_seals(&why))?;
    use_log(&connection)?;
    connection.close().map_err(|(_, error)| error)?;
    File::open(&unfinished)?.sync_all()?;
    fs::rename(&unfinished, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Has a file use a log from now on. The row of the statement says which mode it is; only its end says whether the file
/// has it.
pub(super) fn use_log(connection: &Connection) -> Result<(), Box<dyn std::error::Error>> {
    let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
    let modes = statement.query_map((), |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    if modes == ["wal"] {
        Ok(())
    } else {
        Err(format!(
            "its file system cannot hold a log of SQLite (journal mode stays {}); use a local disk",
            modes.concat()
        )
        .into())
    }
}

/// Removes what a start has made that could not create the file. What cannot be removed is harmless: the next start
/// uses it.
fn discard(path: &Path, mark: &Mark) {
    let unfinished = beside(path, "-new");
    for suffix in ["-journal", "-shm", "-wal", ""] {
        let _ = fs::remove_file(beside(&unfinished, suffix));
    }
    // Last, as it is the lock for the others.
    mark.remove(path);
}

/// Opens the connection that writes.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    // Until a batch was written, closing must not bring the log into the file and delete it: what reads the tasks may
    // still find that the file is damaged.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    for (pragma, value) in [
        ("synchronous", "FULL"),
        ("fullfsync", "ON"),
        ("checkpoint_fullfsync", "ON"),
        ("mmap_size", "0"),
        ("wal_autocheckpoint", "0"),
        ("cell_size_check", "ON"),
        ("cache_size", "-8192"),
        ("temp_store", "MEMORY"),
    ] {
        connection.pragma_update(None, pragma, value)?;
    }
    Ok(connection)
}

/// Checks what the file has, and returns what opens its blobs, and its time.
fn check(
    connection: &Connection,
    path: &Path,
    mark: &Mark,
    options: &OpenOptions,
) -> Result<(Seals, FileTime), OpenError> {
    let wrong = |why: String| OpenError::new(path, why);
    let sql = |error: rusqlite::Error| wrong(unreadable(&error));
    let format: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    if !(1..=FORMAT).contains(&format) {
        return Err(wrong(schema::unknown(format)));
    }
    let journal: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).map_err(sql)?;
    if journal != "wal" {
        return Err(wrong(without_log(&journal)));
    }
    for table in schema::checked(format) {
        let found: String =
            connection.query_row(&format!("PRAGMA quick_check('{table}')"), (), |row| row.get(0)).map_err(sql)?;
        if found != "ok" {
            return Err(wrong(damaged(&found)));
        }
    }
    let State { batch, seen, salt } = state(connection).map_err(sql)?;
    if let Some(lost) = mark::lost(path, mark.noted, batch) {
        return Err(wrong(damaged(&lost)));
    }
    let seals = keys::unlock(connection, options.key.as_deref(), &options.old_keys, &salt);
    let seals = seals.map_err(|why| wrong(no_seals(&why)))?;
    // Last: a file that is refused here stays as it was.
    schema::migrate(connection, format, &seals).map_err(sql)?;
    Ok((seals, FileTime::resume(&seen)))
}

/// What a file says of itself.
pub(super) struct State {
    /// The number of its last batch.
    pub batch: u64,
    /// The time of that.
    pub seen: Seen,
    /// What its key is derived with.
    pub salt: Vec<u8>,
}

/// Reads what a file says of itself.
pub(super) fn state(connection: &Connection) -> rusqlite::Result<State> {
    connection.query_row("SELECT batch, seen, boot, since_boot, salt FROM state", (), |row| {
        // taskgate writes no negative number.
        let number = |at| u64::try_from(row.get::<_, i64>(at)?).map_err(|_| rusqlite::Error::from(Damaged));
        let [batch, unix, since_boot] = [0, 1, 3].map(number);
        let batch = batch?;
        let seen = Seen::read(batch, unix?, row.get_ref(2)?.as_str()?, since_boot?)?;
        Ok(State { batch, seen, salt: row.get(4)? })
    })
}

/// Returns why a file cannot be read, and what to do about it.
pub(super) fn no_seals(why: &NoSeals) -> String {
    match why {
        NoSeals::NoKey => "it is sealed; set store.key to its key".to_owned(),
        NoSeals::WrongKey => {
            "it is sealed by another key than store.key; set that one, or add it to store.old_keys to replace it"
                .to_owned()
        }
        NoSeals::NotSealed => {
            "it is not sealed; remove store.key, or set another store.path to begin a sealed one".to_owned()
        }
        NoSeals::Damaged => damaged("a data key is not what was written"),
        NoSeals::NoRandom => "the system gives no random bytes".to_owned(),
        NoSeals::Sql(error) => unreadable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_is_built_without_what_taskgate_has_no_use_for() {
        let connection = Connection::open_in_memory().expect("memory");
        let mut options = connection.prepare("PRAGMA compile_options").expect("SQL");
        let options =
            options.query_map((), |row| row.get::<_, String>(0)).and_then(|rows| rows.collect::<Result<Vec<_>, _>>());
        let options = options.expect("text");
        for option in ["DEFAULT_MEMSTATUS=0", "OMIT_SHARED_CACHE", "OMIT_LOAD_EXTENSION"] {
            assert!(options.iter().any(|set| set == option), "{option} by .cargo/config.toml: {options:?}");
        }
        for option in ["ENABLE_STAT4", "ENABLE_FTS3", "ENABLE_FTS5", "ENABLE_RTREE", "ENABLE_DBSTAT_VTAB", "SOUNDEX"] {
            assert!(!options.iter().any(|set| set == option), "{option} by .cargo/config.toml");
        }
    }
}
