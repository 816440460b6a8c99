//! What has become of a batch: why it failed, and what of it is left out when it is tried again.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    Unavailable,
    queue::{Later, LaterKey, Operation},
};

/// How many operations of one batch may meet damage. Where more do, the file takes nothing, and the batch is not tried
/// for ever.
const MAX_DAMAGED: usize = 8;

/// How many operations of one batch, and as much of its work that can wait, may find no room. The next one waits for the
/// next batch with all behind it, as the batch is tried again for each.
const MAX_FULL: usize = 16;

/// How long reads of the disk may fail before what they say is taken for damage.
const PASSING: Duration = Duration::from_secs(3);

/// How long the file counts as full after something has found no room: longer than the end of a task waits for another
/// try, so that `/readyz` does not change back and forth.
const FULL_FOR: Duration = Duration::from_secs(6);

/// Until when the file counts as full, if it does.
#[derive(Debug, Default)]
pub(super) struct Fullness(Option<Instant>);

impl Fullness {
    /// Notes whether a part of a batch has found no room. Returns whether the file counts as full.
    pub(super) fn note(&mut self, found_no_room: bool, now: Instant) -> bool {
        self.0 = if found_no_room { Some(now + FULL_FOR) } else { self.0.filter(|until| now < *until) };
        self.0.is_some()
    }

    /// Returns for how long it still does, or nothing where it does not; zero until the next batch has noted the end.
    pub(super) fn lasts(&self, now: Instant) -> Option<Duration> {
        self.0.map(|until| until.saturating_duration_since(now))
    }
}

/// Work that has met damage, and since when.
#[derive(Debug, Default)]
pub(super) struct Suspects(HashMap<LaterKey, Instant>);

impl Suspects {
    /// Returns whether work has met damage for so long that it is no passing failure of a read, which SQLite calls
    /// damage too.
    pub(super) fn stay_damaged(&mut self, key: LaterKey, now: Instant) -> bool {
        now.duration_since(*self.0.entry(key).or_insert(now)) >= PASSING
    }

    /// Returns which of the work is suspected. Usually none is.
    pub(super) fn among(&self, work: &[(LaterKey, Later)]) -> Vec<LaterKey> {
        work.iter().map(|(key, _)| *key).filter(|key| self.0.contains_key(key)).collect()
    }

    /// Forgets those that were done: they meet damage for the first time when they meet some again.
    pub(super) fn forget_done(&mut self, tried: Vec<LaterKey>, undone: &[(LaterKey, Later)]) {
        for key in tried.into_iter().filter(|key| undone.iter().all(|(other, _)| other != key)) {
            self.0.remove(&key);
        }
    }
}

/// What has become of a batch.
pub(super) struct Outcome {
    /// Its operations, which are to be told.
    pub operations: Vec<Operation>,
    /// Operations for the next batch.
    pub waiting: Vec<Operation>,
    /// Work that was not done: first what was not even tried.
    pub undone: Vec<(LaterKey, Later)>,
    /// How much of it was not tried.
    pub untried: usize,
    pub result: Result<(), Unavailable>,
    /// Why a part of it has found no room, if one has.
    pub full: Option<Unavailable>,
    /// Whether the file takes writes: not where it is full, or each operation has met damage.
    pub takes: bool,
}

/// What the failure of one operation undoes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// The batch. It costs nothing while nothing fails: a savepoint has SQLite copy each page that its operation
    /// changes.
    All,
    /// That operation.
    Each,
}

/// The work of a batch that has to be done again, and how much at its beginning was not tried; or why nothing was
/// written.
pub(super) type Tried = Result<(Vec<(LaterKey, Later)>, usize), Failed>;

/// Why a batch failed.
pub(super) enum Failed {
    Batch(Unavailable),
    /// One of its operations, with [`Undo::All`].
    Operation,
    /// This part of it has met damage, and would each time.
    Damaged(Culprit, Unavailable),
    /// The file has no room for this part of it.
    Full(Culprit, Unavailable),
}

/// A part of a batch, by its number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Culprit {
    Operation(usize),
    Later(usize),
}

impl Failed {
    pub(super) fn why(self) -> Unavailable {
        match self {
            Self::Batch(why) | Self::Damaged(_, why) | Self::Full(_, why) => why,
            Self::Operation => Unavailable("an operation has failed".into()),
        }
    }
}

impl From<&rusqlite::Error> for Failed {
    fn from(error: &rusqlite::Error) -> Self {
        Self::Batch(error.into())
    }
}

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}

/// The parts of a batch that have met damage, or found no room.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    operations: Vec<usize>,
    /// Operations that found no room.
    full: Vec<usize>,
    /// From which operation on all wait for the next batch.
    waits_from: Option<usize>,
    /// Work that can wait and found no room.
    full_later: Vec<usize>,
    /// Work that can wait is done up to this one. What stands behind it waits for the next batch, so that much damaged
    /// work has no batch tried more than once for it.
    later: Option<usize>,
    /// Whether that work is tried again, and not set aside.
    tries_again: bool,
}

impl LeftOut {
    /// Leaves out one more. Returns whether the batch is to be tried without it.
    pub(super) fn add(&mut self, culprit: Culprit) -> bool {
        match culprit {
            Culprit::Operation(at) => self.operations.push(at),
            Culprit::Later(at) => (self.later, self.tries_again) = (Some(at), false),
        }
        self.operations.len() <= MAX_DAMAGED
    }

    /// Leaves out what found no room. The batch writes what fits, such as the removal of what has expired.
    pub(super) fn add_full(&mut self, culprit: Culprit) {
        match culprit {
            Culprit::Operation(at) if self.full.len() < MAX_FULL => self.full.push(at),
            Culprit::Operation(at) => self.waits_from = Some(at),
            Culprit::Later(at) if self.full_later.len() < MAX_FULL => self.full_later.push(at),
            Culprit::Later(at) => (self.later, self.tries_again) = (Some(at), true),
        }
    }

    /// Takes those out that wait for the next batch.
    pub(super) fn waiting(&self, all: &mut Vec<Operation>) -> Vec<Operation> {
        self.waits_from.map(|from| all.split_off(from)).unwrap_or_default()
    }

    /// Has the work that was left out last tried again with the next batch.
    pub(super) fn try_again(&mut self) {
        self.tries_again = true;
    }

    /// Returns the operations that are not left out, with their numbers.
    pub(super) fn operations_of<'a>(
        &self,
        all: &'a mut [Operation],
    ) -> impl Iterator<Item = (usize, &'a mut Operation)> + use<'a, '_> {
        let those = all.iter_mut().enumerate().take(self.waits_from.unwrap_or(usize::MAX));
        those.filter(|(at, _)| !self.operations.contains(at) && !self.full.contains(at))
    }

    /// Returns whether some of so many operations are not left out, or there are none at all.
    pub(super) fn takes_any_of(&self, all: usize) -> bool {
        all == 0 || self.operations.len() < all
    }

    /// Returns the work that is done now, with its numbers.
    pub(super) fn works_of<'a>(
        &self,
        all: &'a [(LaterKey, Later)],
    ) -> impl Iterator<Item = (usize, &'a (LaterKey, Later))> + use<'a, '_> {
        let those = all.iter().enumerate().take(self.later.unwrap_or(all.len()));
        those.filter(|(at, _)| !self.full_later.contains(at))
    }

    /// Returns the work that was not tried, and that which is tried again.
    pub(super) fn again(&self, all: &[(LaterKey, Later)]) -> [Vec<(LaterKey, Later)>; 2] {
        let behind = self.later.map_or(all.len(), |at| at + 1)..all.len();
        let culprits = self.later.filter(|_| self.tries_again).into_iter().chain(self.full_later.iter().copied());
        let untried = behind.filter(|at| !self.full_later.contains(at));
        [untried.map(|at| all[at].clone()).collect(), culprits.map(|at| all[at].clone()).collect()]
    }

    /// Returns all work but what was left out.
    pub(super) fn rest(&self, mut all: Vec<(LaterKey, Later)>) -> Vec<(LaterKey, Later)> {
        if let Some(at) = self.later.filter(|_| !self.tries_again) {
            all.remove(at);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_was_done_meets_damage_for_the_first_time_again() {
        let (key, begin) = (LaterKey { kind: "note", row: 1, task: None }, Instant::now());
        let mut suspects = Suspects::default();
        assert!(!suspects.stay_damaged(key, begin));
        assert!(suspects.stay_damaged(key, begin + PASSING), "damage that stays");
        let work: [(LaterKey, Later); 1] = [(key, Later::new(|_| Ok(())))];
        suspects.forget_done(suspects.among(&work), &work);
        assert!(suspects.stay_damaged(key, begin + PASSING), "it was not done");
        suspects.forget_done(suspects.among(&[]), &[]);
        assert!(suspects.stay_damaged(key, begin + PASSING), "it was not tried");
        suspects.forget_done(suspects.among(&work), &[]);
        assert!(!suspects.stay_damaged(key, begin + 2 * PASSING));
    }
}
