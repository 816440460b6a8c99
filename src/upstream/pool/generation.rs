//! The generation of a server, found out once: each answer to `server/discover` or `initialize` says it anew.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

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
pub(super) struct KnownGeneration {
    known: Mutex<Option<Known>>,
    /// The generation in `known`, as [`encode`] writes it: each request reads it, some several times. It is written under
    /// the lock.
    code: AtomicU8,
}

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
        // Pairs with the store in `change`: who sees a generation sees what was done before it was known.
        decode(self.code.load(Ordering::Acquire))
    }

    /// Returns the revisions that a modern server and taskgate both speak.
    pub(super) fn versions(&self) -> Option<Arc<[String]>> {
        let known = self.known.lock();
        known.as_ref().filter(|known| known.generation.is_modern()).map(|known| Arc::clone(&known.versions))
    }

    pub(super) fn set(&self, generation: Generation, facts: &ServerFacts) {
        self.change(|known| *known = Some(Known { generation, versions: facts.versions.clone().into() }));
    }

    pub(super) fn forget(&self) {
        self.change(|known| *known = None);
    }

    /// Forgets the generation where it is as that one, which a server has turned out not to be.
    pub(super) fn forget_as(&self, refused: Generation) {
        self.change(|known| {
            known.take_if(|known| known.generation.is_modern() == refused.is_modern());
        });
    }

    fn change(&self, change: impl FnOnce(&mut Option<Known>)) {
        let mut known = self.known.lock();
        change(&mut known);
        self.code.store(encode(known.as_ref().map(|known| known.generation)), Ordering::Release);
    }
}

const fn encode(generation: Option<Generation>) -> u8 {
    match generation {
        None => 0,
        Some(Generation::Legacy) => 1,
        Some(Generation::Modern { has_tasks: false }) => 2,
        Some(Generation::Modern { has_tasks: true }) => 3,
    }
}

const fn decode(code: u8) -> Option<Generation> {
    match code {
        1 => Some(Generation::Legacy),
        2 => Some(Generation::Modern { has_tasks: false }),
        3 => Some(Generation::Modern { has_tasks: true }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_as_it_was_set_until_it_is_forgotten() {
        let (known, facts) = (KnownGeneration::default(), ServerFacts::own());
        assert_eq!(known.get(), None);
        let modern = |has_tasks| Generation::Modern { has_tasks };
        for generation in [Generation::Legacy, modern(false), modern(true)] {
            known.set(generation, &facts);
            assert_eq!(known.get(), Some(generation));
            let other = if generation.is_modern() { Generation::Legacy } else { modern(false) };
            known.forget_as(other);
            assert_eq!(known.get(), Some(generation), "it is no {other:?}");
            known.forget_as(generation);
            assert_eq!(known.get(), None);
        }
        known.set(modern(true), &facts);
        known.forget_as(modern(false));
        assert_eq!(known.get(), None, "it is modern, whether it has tasks or not");
        known.set(Generation::Legacy, &facts);
        known.forget();
        assert_eq!((known.get(), known.versions()), (None, None));
    }
}
