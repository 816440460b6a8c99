//! The rows of tasks, their calls and their results in the file.

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _};

use super::record::{self, ResultPlace};
use crate::{
    disk::{Damaged, Place, Seals, rusqlite},
    task::Task,
};

/// Bytes of one piece of a result.
pub(super) const CHUNK: usize = 256 << 10;
/// How many bits of the key of a piece say which it is of its result.
const CHUNK_BITS: u32 = 16;
/// No file comes to have so many results.
const MAX_RESULTS: u64 = 1 << 40;

type Sql<T> = rusqlite::Result<T>;

/// Says where a blob of a task stands.
fn with_place<T>(table: &'static str, row: u64, column: &'static str, use_it: impl FnOnce(Place<'_>) -> T) -> T {
    use_it(Place { table, row: &row.to_be_bytes(), column })
}

/// A row of `calls` or `notes`.
#[derive(Clone, Copy)]
pub(super) enum Beside {
    Calls,
    Notes,
}

impl Beside {
    const fn table(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Notes => "notes",
        }
    }

    /// Writes the row of a task.
    pub(super) fn put(self, connection: &Connection, seals: &Seals, place: u64, value: &[u8]) -> Sql<()> {
        let blob = with_place(self.table(), place, "value", |at| seals.seal(at, value))?;
        let put = match self {
            Self::Calls => "INSERT OR REPLACE INTO calls (place, value) VALUES (?1, ?2)",
            Self::Notes => "INSERT OR REPLACE INTO notes (place, value) VALUES (?1, ?2)",
        };
        connection.prepare_cached(put)?.execute((place.cast_signed(), blob)).map(drop)
    }

    /// Returns the row of a task, if there is one.
    pub(super) fn get(self, connection: &Connection, seals: &Seals, place: u64) -> Sql<Option<Bytes>> {
        let get = format!("SELECT value FROM {} WHERE place = ?1", self.table());
        let row: Option<Vec<u8>> =
            connection.prepare_cached(&get)?.query_row([place.cast_signed()], |row| row.get(0)).optional()?;
        let open = |blob: Vec<u8>| with_place(self.table(), place, "value", |at| seals.open(at, &blob));
        Ok(row.map(open).transpose()?.map(Bytes::from))
    }

    /// Removes the row of a task.
    fn remove(self, connection: &Connection, place: u64) -> Sql<()> {
        let remove = match self {
            Self::Calls => "DELETE FROM calls WHERE place = ?1",
            Self::Notes => "DELETE FROM notes WHERE place = ?1",
        };
        connection.prepare_cached(remove)?.execute([place.cast_signed()]).map(drop)
    }
}

/// Adds the row of a task.
pub(super) fn insert(connection: &Connection, seals: &Seals, place: u64, task: &Task) -> Sql<()> {
    let blob = with_place("tasks", place, "record", |at| seals.seal(at, &record::write(task, None)))?;
    let insert = "INSERT INTO tasks (place, version, record) VALUES (?1, ?2, ?3)";
    connection.prepare_cached(insert)?.execute((place.cast_signed(), task.version, blob)).map(drop)
}

/// Writes a newer version of a task. Returns whether it did: another change of the same batch may have come first.
pub(super) fn update(
    connection: &Connection,
    seals: &Seals,
    place: u64,
    task: &Task,
    result: Option<&ResultPlace>,
) -> Sql<bool> {
    let blob = with_place("tasks", place, "record", |at| seals.seal(at, &record::write(task, result)))?;
    let update = "UPDATE tasks SET version = ?2, record = ?3 WHERE place = ?1 AND version < ?2";
    let rows = connection.prepare_cached(update)?.execute((place.cast_signed(), task.version, blob))?;
    Ok(rows > 0)
}

/// Writes the note of a task whose call is saved. An end in the same batch has dropped that.
pub(super) fn note(connection: &Connection, seals: &Seals, place: u64, note: &[u8]) -> Sql<()> {
    let mut saved = connection.prepare_cached("SELECT 1 FROM calls WHERE place = ?1")?;
    if saved.exists([place.cast_signed()])? { Beside::Notes.put(connection, seals, place, note) } else { Ok(()) }
}

/// Removes what is saved of the call of a task.
pub(super) fn forget_call(connection: &Connection, place: u64) -> Sql<()> {
    Beside::Calls.remove(connection, place)?;
    Beside::Notes.remove(connection, place)
}

/// Removes the row of a task and what is saved of its call.
pub(super) fn remove(connection: &Connection, place: u64) -> Sql<()> {
    connection.prepare_cached("DELETE FROM tasks WHERE place = ?1")?.execute([place.cast_signed()])?;
    forget_call(connection, place)
}

/// Returns the key of a piece of a result.
fn chunk_key(number: u64, chunk: u16) -> u64 {
    number << CHUNK_BITS | u64::from(chunk)
}

/// Writes a piece of a result.
pub(super) fn put_chunk(connection: &Connection, seals: &Seals, number: u64, chunk: u16, data: &[u8]) -> Sql<()> {
    let key = chunk_key(number, chunk);
    let blob = with_place("chunks", key, "data", |at| seals.seal(at, data))?;
    let put = "INSERT INTO chunks (id, data) VALUES (?1, ?2)";
    connection.prepare_cached(put)?.execute((key.cast_signed(), blob)).map(drop)
}

/// Removes the pieces of a result.
pub(super) fn remove_result(connection: &Connection, number: u64) -> Sql<()> {
    let (first, last) = (chunk_key(number, 0).cast_signed(), chunk_key(number, u16::MAX).cast_signed());
    connection.prepare_cached("DELETE FROM chunks WHERE id BETWEEN ?1 AND ?2")?.execute((first, last)).map(drop)
}

/// Returns a result.
pub(super) fn get_result(connection: &Connection, seals: &Seals, result: &ResultPlace) -> Sql<Bytes> {
    let mut raw = Vec::with_capacity(result.bytes.min(usize::from(result.chunks) * CHUNK));
    let mut get = connection.prepare_cached("SELECT data FROM chunks WHERE id = ?1")?;
    for chunk in 0..result.chunks {
        let key = chunk_key(result.number, chunk);
        let blob: Option<Vec<u8>> = get.query_row([key.cast_signed()], |row| row.get(0)).optional()?;
        raw.extend(with_place("chunks", key, "data", |at| seals.open(at, &blob.ok_or(Damaged)?))?);
    }
    let mut digest = Context::new(&SHA256);
    digest.update(&raw);
    if raw.len() == result.bytes && hex(digest) == result.digest { Ok(raw.into()) } else { Err(Damaged.into()) }
}

/// Returns a digest in hexadecimal digits.
pub(super) fn hex(digest: Context) -> String {
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'));
    digest.finish().as_ref().iter().flat_map(digits).collect()
}

/// Calls `found` for every task, in the order of their places.
pub(super) fn all(
    connection: &Connection,
    seals: &Seals,
    mut found: impl FnMut(u64, Task, Option<ResultPlace>),
) -> Sql<()> {
    let mut all = connection.prepare("SELECT place, record FROM tasks ORDER BY place")?;
    let mut rows = all.query(())?;
    while let Some(row) = rows.next()? {
        let place = row.get::<_, i64>(0)?.cast_unsigned();
        let blob = row.get_ref(1)?.as_blob()?;
        let record = with_place("tasks", place, "record", |at| seals.open(at, blob))?;
        let (task, result) = record::read(&record)?;
        found(place, task, result);
    }
    Ok(())
}

/// Returns the written form of the task at a place.
pub(super) fn record_at(connection: &Connection, seals: &Seals, place: u64) -> Sql<Vec<u8>> {
    let mut get = connection.prepare_cached("SELECT record FROM tasks WHERE place = ?1")?;
    let blob: Vec<u8> = get.query_row([place.cast_signed()], |row| row.get(0))?;
    Ok(with_place("tasks", place, "record", |at| seals.open(at, &blob))?)
}

/// Returns the place that the next task gets.
pub(super) fn next_place(connection: &Connection) -> Sql<u64> {
    let select = "SELECT seq FROM sqlite_sequence WHERE name = 'tasks'";
    let last: Option<i64> = connection.query_row(select, (), |row| row.get(0)).optional()?;
    let next = last.map_or(Some(1), |last| u64::try_from(last).ok()?.checked_add(1));
    // As far as numbers of rows go.
    next.filter(|next| *next <= i64::MAX.cast_unsigned()).ok_or_else(|| Damaged.into())
}

/// Returns the first place after `place` that has a task.
pub(super) fn place_after(connection: &Connection, place: u64) -> Sql<Option<u64>> {
    let mut next = connection.prepare_cached("SELECT min(place) FROM tasks WHERE place > ?1")?;
    let next: Option<i64> = next.query_row([place.cast_signed()], |row| row.get(0))?;
    Ok(next.map(i64::cast_unsigned))
}

/// Returns the place behind the last task that is there.
pub(super) fn place_behind_the_last(connection: &Connection) -> Sql<u64> {
    let last: Option<i64> = connection.query_row("SELECT max(place) FROM tasks", (), |row| row.get(0))?;
    Ok(last.map_or(1, |last| last.cast_unsigned() + 1))
}

/// Returns the numbers of the results that there are pieces of.
pub(super) fn result_numbers(connection: &Connection) -> Sql<Vec<u64>> {
    let mut next = connection.prepare("SELECT min(id) FROM chunks WHERE id >= ?1")?;
    let (mut numbers, mut from) = (Vec::new(), i64::MIN);
    while let Some(id) = next.query_row([from], |row| row.get::<_, Option<i64>>(0))? {
        let number = id.cast_unsigned() >> CHUNK_BITS;
        if number >= MAX_RESULTS {
            return Err(Damaged.into());
        }
        numbers.push(number);
        from = chunk_key(number + 1, 0).cast_signed();
    }
    Ok(numbers)
}
