//! Damage that a write meets while the file is in use. It fails that write alone, and is told to the operator once.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use super::{LaterKey, Unavailable};
use crate::observe::{Observer, events};

/// How many damages are told each with a line of its own. Those after them are counted only.
const MAX_TOLD: usize = 1024;

/// Damage that a write has met.
#[derive(Debug)]
pub(super) struct Damage {
    /// The work that was left out, or `None` for an operation, which tells its caller.
    pub key: Option<LaterKey>,
    pub why: Unavailable,
}

/// Tells damages of a file.
#[derive(Debug)]
pub(super) struct Damages {
    file: PathBuf,
    observer: Arc<Observer>,
    /// Those that have had their line.
    told: HashSet<Option<LaterKey>>,
}

impl Damages {
    pub(super) fn new(file: PathBuf, observer: Arc<Observer>) -> Self {
        Self { file, observer, told: HashSet::new() }
    }

    pub(super) fn tell(&mut self, Damage { key, why }: &Damage) {
        // Operations have no key, and their damage no other line.
        let is_new = self.told.len() < MAX_TOLD && (self.told.insert(*key) || key.is_none());
        self.observer.emit(events::StoreDamaged {
            what: key.map_or("write", |key| key.kind),
            // A larger number is the id of a session, which is no number of a row and not for the log.
            row: key.and_then(|key| u64::try_from(key.row).ok()),
            task: key.and_then(|key| key.task),
            file: &self.file,
            why: &why.0,
            is_new,
        });
    }
}
