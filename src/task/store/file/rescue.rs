//! Reads what can be read of a file, and says what cannot.

use std::{
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use serde_json::value::RawValue;

use super::{record, rows};
use crate::disk::{OpenError, Rescue, rusqlite::OptionalExtension as _};

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Tasks that could be read.
    pub tasks: usize,
    /// Results that could be read.
    pub results: usize,
    /// What could not be read, or is wrong.
    pub damages: usize,
}

/// A line of an export.
#[derive(Serialize)]
struct Line<'a> {
    /// The task as it stands in the file.
    task: &'a RawValue,
    /// What its call gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

/// Reads everything in a file, sealed by any of `keys`, and calls `damaged` for all that is wrong.
///
/// # Errors
/// [`OpenError`] if not even the beginning can be read.
pub fn check(path: &Path, keys: &[String], mut damaged: impl FnMut(&str)) -> Result<Read, OpenError> {
    let rescue = Rescue::open(path, keys)?;
    let mut wrong = 0;
    rescue.check(|what| {
        wrong += 1;
        damaged(&what);
    });
    let read = each(&rescue, &mut damaged, |_| Ok(())).unwrap_or_default();
    Ok(Read { damages: read.damages + wrong, ..read })
}

/// Writes a line of JSON for every task in a file that can be read, sealed by any of `keys`, and calls `damaged` for all
/// that cannot.
///
/// # Errors
/// [`OpenError`] if not even the beginning can be read; inside, why a line could not be written.
pub fn export(
    path: &Path,
    keys: &[String],
    out: &mut impl Write,
    mut damaged: impl FnMut(&str),
) -> Result<io::Result<Read>, OpenError> {
    let rescue = Rescue::open(path, keys)?;
    rescue.damages.iter().for_each(|what| damaged(what));
    let exported = each(&rescue, &mut damaged, |line| {
        serde_json::to_writer(&mut *out, line)?;
        out.write_all(b"\n")
    });
    Ok(exported.map(|read| Read { damages: read.damages + rescue.damages.len(), ..read }))
}

/// How many places one after the other may be damaged before the rest is given up.
const MAX_DAMAGED: usize = 100_000;

/// Calls `found` for every task that can be read. Each is looked up by its place, so that a damaged page hides its own tasks
/// only, and places without tasks are skipped.
fn each(
    rescue: &Rescue,
    damaged: &mut impl FnMut(&str),
    mut found: impl FnMut(&Line<'_>) -> io::Result<()>,
) -> io::Result<Read> {
    let Rescue { connection, seals, .. } = rescue;
    let mut read = Read::default();
    let mut complain = |read: &mut Read, what: &str| {
        read.damages += 1;
        damaged(what);
    };
    // Either may be damaged. A place beyond those that were given has no task.
    let end = match (rows::place_behind_the_last(connection), rows::next_place(connection)) {
        (Ok(end), _) => end,
        (Err(error), next) => {
            complain(&mut read, &format!("the last of the tasks cannot be read: {error}"));
            next.unwrap_or_default()
        }
    };
    let (mut place, mut in_a_row) = (0, 0);
    while place + 1 < end && in_a_row < MAX_DAMAGED {
        place = match rows::place_after(connection, place) {
            Ok(None) => break,
            Ok(Some(next)) if next < end && rows::record_at(connection, seals, next).is_ok() => next,
            // What should say which is the next one is damaged.
            Ok(Some(_)) | Err(_) => place + 1,
        };
        let text = match rows::record_at(connection, seals, place).optional() {
            Ok(None) => continue,
            Ok(Some(text)) => text,
            Err(error) => {
                in_a_row += 1;
                complain(&mut read, &format!("the task at place {place} cannot be read: {error}"));
                continue;
            }
        };
        in_a_row = 0;
        let parsed = record::read(&text).ok().zip(serde_json::from_slice::<&RawValue>(&text).ok());
        let Some(((_, place_of_result), task)) = parsed else {
            complain(&mut read, &format!("the task at place {place} is not one"));
            continue;
        };
        read.tasks += 1;
        for goes_on in [rows::get_call, rows::get_note] {
            if let Err(error) = goes_on(connection, seals, place) {
                complain(&mut read, &format!("how the task at place {place} goes on cannot be read: {error}"));
            }
        }
        let raw = place_of_result.map(|result| rows::get_result(connection, seals, place, &result));
        let result = match &raw {
            None => None,
            Some(Ok(raw)) => {
                read.results += 1;
                let json = serde_json::from_slice::<&RawValue>(raw).ok();
                if json.is_none() {
                    complain(&mut read, &format!("the result of the task at place {place} is not JSON"));
                }
                json
            }
            Some(Err(error)) => {
                complain(&mut read, &format!("the result of the task at place {place} cannot be read: {error}"));
                None
            }
        };
        found(&Line { task, result })?;
    }
    Ok(read)
}
