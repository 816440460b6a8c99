//! Reads what can be read of a file, and says what cannot.

use std::{
    collections::HashSet,
    io::{self, Write},
    path::Path,
};

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    record::{self, Record},
    rows,
};
use crate::disk::{
    Damaged, OpenError, Rescue, Unavailable,
    rusqlite::{self, OptionalExtension as _},
};

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Tasks that could be read.
    pub tasks: usize,
    /// Results that could be read.
    pub results: usize,
    /// What could not be read, or is wrong.
    pub damages: usize,
    /// Whether a start refuses the file though nothing of it is damaged.
    pub refused: bool,
}

/// A line of an export.
#[derive(Serialize)]
struct Line<'a> {
    /// The task as it stands in the file.
    task: Record<'a>,
    /// What its call gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

/// Reads everything in a file, sealed by any of `keys`, and calls `wrong` for all that is damaged, and where a start
/// refuses the file.
///
/// # Errors
/// [`OpenError`] if not even the beginning can be read, or the format is newer.
pub fn check(path: &Path, keys: &[String], mut wrong: impl FnMut(&str)) -> Result<Read, OpenError> {
    let mut rescue = Rescue::open(path, keys)?;
    if let Some(newer) = rescue.newer.take() {
        return Err(newer);
    }
    let mut damages = 0;
    rescue.check(|what| {
        damages += 1;
        wrong(&what);
    });
    let read = each(&rescue, &mut wrong, |_| Ok(())).unwrap_or_default();
    if damages + read.damages == 0
        && let Err(error) = numbers(&rescue)
    {
        damages += 1;
        wrong(&format!("no start takes it, for what stands beside the records of its tasks: {error}"));
    }
    if let Some(refused) = &rescue.without_log {
        wrong(&format!("taskgate: {refused}"));
    }
    Ok(Read { damages: read.damages + damages, refused: rescue.without_log.is_some(), ..read })
}

/// Reads what a start reads beside the records.
fn numbers(Rescue { connection, seals, .. }: &Rescue) -> rusqlite::Result<()> {
    let (mut ids, mut is_whole) = (HashSet::new(), true);
    rows::all(connection, seals, |_, task, _| is_whole &= ids.insert(task.id))?;
    rows::next_place(connection)?;
    rows::result_numbers(connection)?;
    if is_whole { Ok(()) } else { Err(Damaged.into()) }
}

/// Writes a line of JSON for every task in a file that can be read, sealed by any of `keys`, and calls `damaged` for
/// all that cannot.
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

/// A jump over places of which nothing can be read is at most one in so many of those before it: a good page between
/// two damaged ones is passed over only if it is as small beside the first.
const JUMP: u64 = 1024;

/// What stands at a place or after it.
enum Looked {
    /// The next task, with its place and its written form.
    Task(u64, Vec<u8>),
    /// No task that can be read stands at this place.
    Lost {
        /// Why, if one may stand here.
        why: Option<rusqlite::Error>,
        /// The next task, which cannot be read either, if that can be told.
        next: Option<u64>,
    },
    /// There are no further tasks.
    End,
}

/// Places that cannot be read.
#[derive(Default)]
struct Gap(Option<(u64, u64, rusqlite::Error)>);

impl Gap {
    fn add(&mut self, place: u64, why: Option<rusqlite::Error>) {
        if let Some(why) = why {
            self.0 = Some((self.0.take().map_or(place, |(first, ..)| first), place, why));
        }
    }

    fn said(&self) -> Option<String> {
        let (first, last, why) = self.0.as_ref()?;
        let why = Unavailable::from(why);
        Some(if first == last {
            format!("the task at place {first} cannot be read: {why}")
        } else {
            format!("the tasks at the places {first} to {last} cannot be read: {why}")
        })
    }
}

fn look(Rescue { connection, seals, .. }: &Rescue, place: u64, end: u64) -> Looked {
    let next = match rows::place_after(connection, place - 1) {
        Ok(None) => return Looked::End,
        // What should say which is the next one may be damaged.
        Ok(next) => next.filter(|next| (place..end).contains(next)),
        Err(_) => None,
    };
    if let Some((next, Ok(record))) = next.map(|next| (next, rows::record_at(connection, seals, next))) {
        return Looked::Task(next, record);
    }
    match rows::record_at(connection, seals, place).optional() {
        Ok(Some(record)) => Looked::Task(place, record),
        Ok(None) => Looked::Lost { why: None, next },
        Err(error) => Looked::Lost { why: Some(error), next },
    }
}

/// Returns the first task from the place `from` on that can be read, and calls `damaged` for the places before it that
/// cannot.
fn next_task(rescue: &Rescue, from: u64, end: u64, damaged: impl FnOnce(&str)) -> Option<(u64, Vec<u8>)> {
    let (mut gap, mut lost, mut place, mut origin) = (Gap::default(), from - 1, from, from);
    let mut found = None;
    while found.is_none() && lost + 1 < end {
        match look(rescue, place, end) {
            Looked::Task(at, record) => found = Some((at, record)),
            Looked::End => break,
            Looked::Lost { why, next } => {
                gap.add(place, why);
                lost = place;
                let jumped = place + 1 + (place - origin) / JUMP;
                if next == Some(place) {
                    // It is damaged alone.
                    (origin, place) = (place, place + 1);
                } else {
                    place = next.map_or(jumped, |next| jumped.min(next));
                }
                place = place.min(end - 1);
            }
        }
    }
    // The jump may have passed the first one.
    while found.is_some() && lost + 1 < place {
        let middle = lost + (place - lost) / 2;
        match look(rescue, middle, end) {
            Looked::Task(at, record) => (found, place) = (Some((at, record)), middle),
            Looked::Lost { why, .. } => {
                gap.add(middle, why);
                lost = middle;
            }
            Looked::End => lost = middle,
        }
    }
    if let Some(what) = gap.said() {
        damaged(&what);
    }
    found
}

/// Calls `found` for every task that can be read. Each is looked up by its place, so that a damaged page hides its own
/// tasks only, and places without tasks are skipped.
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
            complain(&mut read, &format!("the last of the tasks cannot be read: {}", Unavailable::from(&error)));
            next.unwrap_or_default()
        }
    };
    let mut place = 0;
    loop {
        // A task and its result are read at one moment, since a file in use goes on meanwhile. Where that fails, so does
        // what is read.
        let moment = connection.unchecked_transaction();
        let Some((next, written)) = next_task(rescue, place + 1, end, |what| complain(&mut read, what)) else { break };
        place = next;
        let Ok((task, place_of_result)) = record::read(&written) else {
            complain(&mut read, &format!("the task at place {place} is not one"));
            continue;
        };
        read.tasks += 1;
        // Clients and the log know it by its id.
        let named = format!("the task {} at place {place}", task.id);
        for goes_on in [rows::get_call, rows::get_note] {
            if let Err(error) = goes_on(connection, seals, place) {
                complain(&mut read, &format!("how {named} goes on cannot be read: {}", Unavailable::from(&error)));
            }
        }
        let raw = place_of_result.as_ref().map(|result| rows::get_result(connection, seals, place, result));
        // A line may take long to write, and the log of a file in use grows while a moment of it is read.
        drop(moment);
        let result = match &raw {
            None => None,
            Some(Ok(raw)) => {
                read.results += 1;
                let json = serde_json::from_slice::<&RawValue>(raw).ok();
                if json.is_none() {
                    complain(&mut read, &format!("the result of {named} is not JSON"));
                }
                json
            }
            Some(Err(error)) => {
                complain(&mut read, &format!("the result of {named} cannot be read: {}", Unavailable::from(error)));
                None
            }
        };
        found(&Line { task: Record::of(&task, place_of_result.as_ref()), result })?;
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::task::{
        Clock,
        state::tests::{at, owner, result, task},
        store::{
            CallChange, MaxKept, Store as _,
            file::testing::{folder, opened},
        },
    };

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_that_go_while_a_file_is_read_are_no_damage() {
        let folder = folder();
        let room = MaxKept::of_tasks(usize::MAX, usize::MAX);
        let store = opened(&folder, room, None, Some(Clock::starting_at(1000))).await;
        let rescue = Rescue::open(store.disk.path(), &[]).expect("readable");
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let reading = tokio::task::spawn_blocking(move || {
            let mut tasks = 0;
            while !ends.load(Ordering::Relaxed) {
                let read = each(&rescue, &mut |what: &str| panic!("{what}"), |_| Ok(()));
                tasks += read.expect("memory").tasks;
            }
            tasks
        });
        // More than stands in the row of its task.
        let large = format!("[{}]", " ".repeat(2000));
        for _ in 0..200 {
            for _ in 0..10 {
                let task = task(&owner());
                store.insert(task.clone(), None).await.expect("available").expect("room");
                let (change, end) = (result(large.clone()), result(large.clone()).end().cloned());
                let next = task.after(&change, at(2000)).expect("not ended");
                assert_eq!(store.replace(next, end, CallChange::Keep).await, Ok(true));
            }
            // As they go when they expire: each with its result.
            let remove = |connection: &rusqlite::Connection| {
                connection.execute("DELETE FROM chunks", ())?;
                connection.execute("DELETE FROM tasks", ())
            };
            assert_eq!(store.disk.write(remove).await, Ok(10));
        }
        is_over.store(true, Ordering::Relaxed);
        let tasks = reading.await.expect("no damage");
        assert!(tasks > 100, "{tasks} were read");
    }
}
