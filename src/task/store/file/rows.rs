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
/// The largest result that stands in the row of its task, in bytes. A start reads that.
pub(super) const SMALL: usize = 1 << 10;
/// How many bits of the key of a piece say which it is of its result.
const CHUNK_BITS: u32 = 16;
/// No file comes to have so many results.
const MAX_RESULTS: u64 = 1 << 40;

type Sql<T> = rusqlite::Result<T>;

/// Says where a blob of a task stands.
fn with_place<T>(table: &'static str, row: u64, column: &'static str, use_it: impl FnOnce(Place<'_>) -> T) -> T {
    use_it(Place { table, row: &row.to_be_bytes(), column })
}

fn seal_record(seals: &Seals, place: u64, task: &Task, result: Option<&ResultPlace>) -> Sql<Vec<u8>> {
    let record = record::write(task, result).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    with_place("tasks", place, "record", |at| seals.seal(at, &record))
}

/// Seals what is saved of a call. The place is that of format 1, so that its blobs stay good.
fn seal_call(seals: &Seals, place: u64, call: &[u8]) -> Sql<Vec<u8>> {
    with_place("calls", place, "value", |at| seals.seal(at, call))
}

/// Adds the row of a task, with what is saved of its call.
pub(super) fn insert(connection: &Connection, seals: &Seals, place: u64, task: &Task, call: Option<&[u8]>) -> Sql<()> {
    let record = seal_record(seals, place, task, None)?;
    let call = call.map(|call| seal_call(seals, place, call)).transpose()?;
    let insert = "INSERT INTO tasks (place, version, record, call) VALUES (?1, ?2, ?3, ?4)";
    connection.prepare_cached(insert)?.execute((place.cast_signed(), task.version, record, call)).map(drop)
}

/// The next version of the row of a task, sealed. A change makes it before its batch, so that the batch is short. A later
/// text makes it within the batch, to be the newest.
pub(super) struct NextRow {
    place: u64,
    version: u32,
    record: Vec<u8>,
    beside: Beside,
}

/// What else changes in a row.
enum Beside {
    Nothing,
    /// What is saved of the call.
    Call(Vec<u8>),
    /// The task has ended: its result comes, if that is small, and what is saved of its call goes.
    End(Option<Vec<u8>>),
}

impl NextRow {
    /// Returns the row of a task that has not ended, with what is saved of its call, if that is new.
    pub(super) fn unfinished(seals: &Seals, place: u64, task: &Task, call: Option<&[u8]>) -> Sql<Self> {
        let record = seal_record(seals, place, task, None)?;
        let beside = call.map_or(Ok(Beside::Nothing), |call| seal_call(seals, place, call).map(Beside::Call))?;
        Ok(Self { place, version: task.version, record, beside })
    }

    /// Returns the row of a task that has ended, with its result if that is `small`.
    pub(super) fn ended(
        seals: &Seals,
        place: u64,
        task: &Task,
        result: Option<&ResultPlace>,
        small: Option<&[u8]>,
    ) -> Sql<Self> {
        let record = seal_record(seals, place, task, result)?;
        let small = small.map(|raw| with_place("tasks", place, "result", |at| seals.seal(at, raw))).transpose()?;
        Ok(Self { place, version: task.version, record, beside: Beside::End(small) })
    }

    /// Writes it. Returns whether it did: another change of the same batch may have come first.
    pub(super) fn write(&self, connection: &Connection) -> Sql<bool> {
        let (place, version, record) = (self.place.cast_signed(), self.version, &self.record);
        let rows = match &self.beside {
            Beside::Nothing => {
                let update = "UPDATE tasks SET version = ?2, record = ?3 WHERE place = ?1 AND version < ?2";
                connection.prepare_cached(update)?.execute((place, version, record))
            }
            Beside::Call(call) => {
                let update = "UPDATE tasks SET version = ?2, record = ?3, call = ?4 WHERE place = ?1 AND version < ?2";
                connection.prepare_cached(update)?.execute((place, version, record, call))
            }
            Beside::End(small) => {
                let end = "UPDATE tasks SET version = ?2, record = ?3, call = NULL, result = ?4 \
                           WHERE place = ?1 AND version < ?2";
                connection.prepare_cached(end)?.execute((place, version, record, small))
            }
        };
        rows.map(|rows| rows > 0)
    }
}

/// Returns what is saved of the call of a task.
pub(super) fn get_call(connection: &Connection, seals: &Seals, place: u64) -> Sql<Option<Bytes>> {
    let mut get = connection.prepare_cached("SELECT call FROM tasks WHERE place = ?1")?;
    let call: Option<Option<Vec<u8>>> = get.query_row([place.cast_signed()], |row| row.get(0)).optional()?;
    let open = |blob: Vec<u8>| with_place("calls", place, "value", |at| seals.open(at, &blob));
    Ok(call.flatten().map(open).transpose()?.map(Bytes::from))
}

/// Writes the note of a task whose call is saved. An end in the same batch has dropped that.
pub(super) fn put_note(connection: &Connection, seals: &Seals, place: u64, note: &[u8]) -> Sql<()> {
    let mut saved = connection.prepare_cached("SELECT 1 FROM tasks WHERE place = ?1 AND call IS NOT NULL")?;
    if !saved.exists([place.cast_signed()])? {
        return Ok(());
    }
    let blob = with_place("notes", place, "value", |at| seals.seal(at, note))?;
    let put = "INSERT OR REPLACE INTO notes (place, value) VALUES (?1, ?2)";
    connection.prepare_cached(put)?.execute((place.cast_signed(), blob)).map(drop)
}

/// Returns the note of a task, if there is one.
pub(super) fn get_note(connection: &Connection, seals: &Seals, place: u64) -> Sql<Option<Bytes>> {
    let mut get = connection.prepare_cached("SELECT value FROM notes WHERE place = ?1")?;
    let note: Option<Vec<u8>> = get.query_row([place.cast_signed()], |row| row.get(0)).optional()?;
    let open = |blob: Vec<u8>| with_place("notes", place, "value", |at| seals.open(at, &blob));
    Ok(note.map(open).transpose()?.map(Bytes::from))
}

/// Removes the note of a task, if there is one.
pub(super) fn forget_note(connection: &Connection, place: u64) -> Sql<()> {
    connection.prepare_cached("DELETE FROM notes WHERE place = ?1")?.execute([place.cast_signed()]).map(drop)
}

/// Removes the row of a task and its note.
pub(super) fn remove(connection: &Connection, place: u64) -> Sql<()> {
    connection.prepare_cached("DELETE FROM tasks WHERE place = ?1")?.execute([place.cast_signed()])?;
    forget_note(connection, place)
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

/// Removes the pieces of a result, if each can be read: SQLite frees what a damaged pointer leads to without a look, and
/// that may be the rows of others.
pub(super) fn remove_result(connection: &Connection, seals: &Seals, number: u64) -> Sql<()> {
    let keys = (chunk_key(number, 0).cast_signed(), chunk_key(number, u16::MAX).cast_signed());
    let mut pieces = connection.prepare_cached("SELECT id, data FROM chunks WHERE id BETWEEN ?1 AND ?2")?;
    let mut pieces = pieces.query(keys)?;
    while let Some(piece) = pieces.next()? {
        let (key, blob) = (piece.get::<_, i64>(0)?.cast_unsigned(), piece.get_ref(1)?.as_blob()?);
        with_place("chunks", key, "data", |at| seals.open(at, blob))?;
    }
    connection.prepare_cached("DELETE FROM chunks WHERE id BETWEEN ?1 AND ?2")?.execute(keys).map(drop)
}

/// Returns the result of the task at a place.
pub(super) fn get_result(connection: &Connection, seals: &Seals, place: u64, result: &ResultPlace) -> Sql<Bytes> {
    if result.pieces().is_none() {
        let mut get = connection.prepare_cached("SELECT result FROM tasks WHERE place = ?1")?;
        let blob: Option<Vec<u8>> = get.query_row([place.cast_signed()], |row| row.get(0)).optional()?.flatten();
        let raw = with_place("tasks", place, "result", |at| seals.open(at, &blob.ok_or(Damaged)?))?;
        return if raw.len() == result.bytes { Ok(raw.into()) } else { Err(Damaged.into()) };
    }
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
    let mut all = connection.prepare("SELECT place, version, record FROM tasks ORDER BY place")?;
    let mut rows = all.query(())?;
    while let Some(row) = rows.next()? {
        let place = row.get::<_, i64>(0)?.cast_unsigned();
        let (version, blob) = (row.get::<_, i64>(1)?, row.get_ref(2)?.as_blob()?);
        let record = with_place("tasks", place, "record", |at| seals.open(at, blob))?;
        let (task, result) = record::read(&record)?;
        // A change finds its row by the version.
        if version != i64::from(task.version) {
            return Err(Damaged.into());
        }
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

/// Returns the place after that of the last task.
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
