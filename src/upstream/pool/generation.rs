//! The generation of a server, found out once: each answer to `server/discover` or `initialize` says it anew.

use std::sync::Arc;

use parking_lot::Mutex;

use super::ServerFacts;
use crate::wire::{modern::TASKS, object::Members};

/// The generation of a server, as far as its callers need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// It knows sessions only.
    Legacy,
    /// It answers requests that say all about themselves.
    Modern {
        /// Whether it declares the tasks extension.
        has_tasks: bool,
    },
}

/// What is known of the generation of one server.
#[derive(Debug, Default)]
pub(super) struct KnownGeneration(Mutex<Option<Known>>);

#[derive(Debug)]
struct Known {
    generation: Generation,
    /// The revisions that a modern server and taskgate both speak.
    versions: Arc<[String]>,
}

impl Generation {
    /// Returns the generation of a modern server that says this of itself.
    pub(super) fn of_modern(facts: &ServerFacts) -> Self {
        let extensions = Members::parse(&facts.capabilities).ok().and_then(|declared| declared.object("extensions"));
        Self::Modern { has_tasks: extensions.is_some_and(|extensions| extensions.get(TASKS).is_some()) }
    }

    /// Returns whether it is modern.
    #[must_use]
    pub fn is_modern(self) -> bool {
        self != Self::Legacy
    }
}

impl KnownGeneration {
    pub(super) fn get(&self) -> Option<Generation> {
        self.0.lock().as_ref().map(|known| known.generation)
    }

    /// Returns the revisions that a modern server and taskgate both speak.
    pub(super) fn versions(&self) -> Option<Arc<[String]>> {
        let known = self.0.lock();
        known.as_ref().filter(|known| known.generation.is_modern()).map(|known| Arc::clone(&known.versions))
    }

    pub(super) fn set(&self, generation: Generation, facts: &ServerFacts) {
        *self.0.lock() = Some(Known { generation, versions: facts.versions.clone().into() });
    }

    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Forgets the generation where it is as that one, which a server has turned out not to be.
    pub(super) fn forget_as(&self, refused: Generation) {
        self.0.lock().take_if(|known| known.generation.is_modern() == refused.is_modern());
    }
}
