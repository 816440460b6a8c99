//! Whose calls a shared child has got. What it says without naming a call may be about any of them, also after the
//! answer.

use crate::{identity::Owner, upstream::Inbound};

/// Whose calls a child has got.
#[derive(Debug, Default)]
pub(super) struct Callers {
    with_sessions: Owners,
    /// Clients without a session.
    pooled: Owners,
}

#[derive(Debug, Default)]
enum Owners {
    #[default]
    None,
    One(Owner),
    /// Several, or one that is not known.
    Several,
}

impl Owners {
    fn add(&mut self, owner: Option<&Owner>) {
        *self = match (std::mem::take(self), owner) {
            (Self::None, Some(owner)) => Self::One(owner.clone()),
            (Self::One(one), Some(owner)) if one == *owner => Self::One(one),
            _ => Self::Several,
        };
    }

    fn has_others_than(&self, owner: Option<&Owner>) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => Some(one) != owner,
            Self::Several => true,
        }
    }
}

impl Callers {
    /// Takes note of a call in a session.
    pub(super) fn add(&mut self, session: &Inbound) {
        let callers = if session.pooled { &mut self.pooled } else { &mut self.with_sessions };
        callers.add(session.owner.as_ref());
    }

    /// Returns whether what names no call must not reach a session: it may be about another owner's call, and one of the
    /// two clients has no session.
    pub(super) fn keep_from(&self, session: &Inbound) -> bool {
        let owner = session.owner.as_ref();
        self.pooled.has_others_than(owner) || session.pooled && self.with_sessions.has_others_than(owner)
    }
}
