//! The format of the file: its tables, its number, and how an older format becomes the next one.

use rusqlite::Connection;

use super::{Seals, sessions};

/// In the header of the file, so that tools and taskgate know whose it is: "tgat".
pub(super) const APPLICATION: i32 = 0x7467_6174;
/// The newest format, which this taskgate writes.
pub(super) const FORMAT: i32 = 4;

/// What makes each format out of the one before. The first makes it out of an empty file.
const STEPS: [&str; FORMAT as usize] = [FORMAT_1, FORMAT_2, FORMAT_3, FORMAT_4];

/// Those of every format.
const CHECKED: [&str; 6] = ["state", "data_keys", "keys", "sessions", "tasks", "notes"];

/// Returns the tables whose damage a start has to find in a file of that format. What `chunks` has is checked when it
/// is read.
pub(super) fn checked(format: i32) -> impl Iterator<Item = &'static str> {
    CHECKED.into_iter().chain((format == 1).then_some("calls"))
}

const FORMAT_1: &str = "
-- One row: the last batch, the latest time, and what the key of the operator is mixed with. Behind `boot` stands a digest of the
-- numbers.
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  batch INTEGER NOT NULL,
  seen INTEGER NOT NULL,
  boot TEXT NOT NULL,
  since_boot INTEGER NOT NULL,
  salt BLOB NOT NULL
) STRICT;
-- The keys that blobs are sealed under, each wrapped by a key of the operator. Empty where the file is not sealed.
CREATE TABLE data_keys (generation INTEGER PRIMARY KEY, wrapped_by BLOB NOT NULL, wrapped BLOB NOT NULL) STRICT;
-- What taskgate signs and seals with for clients.
CREATE TABLE keys (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
-- Sessions of clients.
CREATE TABLE sessions (id BLOB PRIMARY KEY, used_at INTEGER NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
-- A place is never used again, so that a cursor always means the same.
CREATE TABLE tasks (place INTEGER PRIMARY KEY AUTOINCREMENT, version INTEGER NOT NULL, record BLOB NOT NULL) STRICT;
-- How calls that have not ended go on, and the last point from which they can be resumed.
CREATE TABLE calls (place INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE notes (place INTEGER PRIMARY KEY, value BLOB NOT NULL) STRICT;
-- Results, in pieces: the number of the result and of the piece.
CREATE TABLE chunks (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;
";

const FORMAT_2: &str = "
-- What is saved of a call, and a small result, stand in the row of their task: most tasks write no other one.
ALTER TABLE tasks ADD COLUMN call BLOB;
ALTER TABLE tasks ADD COLUMN result BLOB;
UPDATE tasks SET call = (SELECT value FROM calls WHERE calls.place = tasks.place) WHERE place IN (SELECT place FROM calls);
DROP TABLE calls;
";

/// Tasks, calls and notes may be written in a form that no earlier taskgate reads.
const FORMAT_3: &str = "";

/// In a sealed file the rows of sessions have other keys, which [`sessions::hide_ids`] gives them.
const FORMAT_4: &str = "";

/// Shows a file of format 1 that is only read as one of format 2.
const FORMAT_1_AS_2: &str = "
CREATE TEMP VIEW tasks AS SELECT place, version, record,
  (SELECT value FROM main.calls WHERE main.calls.place = main.tasks.place) AS call, NULL AS result FROM main.tasks;
";

/// Returns why a file of a format that is not known cannot be used, and what to do about it.
pub(super) fn unknown(format: i32) -> String {
    format!(
        "it has format {format}, and this taskgate knows format {FORMAT}; use the taskgate that wrote it, or a newer one"
    )
}

/// Lets a connection that only reads a file of format `from` ask as it asks one of the newest format.
pub(super) fn read_as_newest(connection: &Connection, from: i32) -> rusqlite::Result<()> {
    if from == 1 { connection.execute_batch(FORMAT_1_AS_2) } else { Ok(()) }
}

/// Makes the newest format out of `from`, in one transaction.
pub(super) fn migrate(connection: &Connection, from: i32, seals: &Seals) -> rusqlite::Result<()> {
    let Ok(from) = usize::try_from(from) else { return Ok(()) };
    let Some(steps) = STEPS.get(from..).filter(|steps| !steps.is_empty()) else { return Ok(()) };
    let transaction = connection.unchecked_transaction()?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    // Before format 4.
    if from < 4 {
        sessions::hide_ids(&transaction, seals)?;
    }
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}
