//! Why a call neither runs nor waits: the limits that it has reached.

use std::fmt;

/// Neither a turn nor a place in the queue is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    /// Why the call cannot run.
    pub running: Bound,
    /// Why it cannot wait.
    pub queued: Bound,
}

/// A limit that is reached, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// On the calls of one tool: on those of all owners that run, or on those of one owner that wait.
    Tool(usize),
    /// On the calls of one owner.
    Owner(usize),
    /// On all calls.
    All(usize),
    /// On the bytes of the requests of one owner's waiting calls.
    BytesOfOwner(usize),
    /// On the bytes of the requests of all waiting calls.
    Bytes(usize),
}

impl Limited {
    /// Returns the name of the limit that keeps the call from waiting.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self.queued {
            Bound::Tool(_) => "max_queued",
            Bound::Owner(_) => "max_queued_per_owner",
            Bound::All(_) => "max_queued_total",
            Bound::BytesOfOwner(_) => "max_queued_bytes_per_owner",
            Bound::Bytes(_) => "max_queued_bytes",
        }
    }
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.running {
            Bound::Tool(max) => write!(f, "max_running = {max} calls of it run")?,
            Bound::Owner(max) => write!(f, "tasks.max_running_per_owner = {max} calls of yours run")?,
            Bound::All(max) => write!(f, "tasks.max_running_total = {max} calls run in all")?,
            // Bytes keep nothing from running.
            Bound::BytesOfOwner(_) | Bound::Bytes(_) => {}
        }
        match self.queued {
            Bound::Tool(max) => write!(f, " and max_queued = {max} of yours wait for it already")?,
            Bound::Owner(max) => write!(f, " and tasks.max_queued_per_owner = {max} of yours wait already")?,
            Bound::All(max) => write!(f, " and tasks.max_queued_total = {max} wait in all already")?,
            Bound::BytesOfOwner(max) => {
                write!(f, " and with it more than tasks.max_queued_bytes_per_owner = {max} bytes of yours would wait")?;
            }
            Bound::Bytes(max) => write!(f, " and with it more than tasks.max_queued_bytes = {max} bytes would wait")?,
        }
        f.write_str("; try again later")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_each_limit_its_owner_and_its_value() {
        let said = |running, queued| Limited { running, queued }.to_string();
        assert_eq!(
            said(Bound::Tool(2), Bound::Owner(3)),
            "max_running = 2 calls of it run and tasks.max_queued_per_owner = 3 of yours wait already; try again later"
        );
        let all = said(Bound::All(4), Bound::All(5));
        assert!(all.contains("tasks.max_running_total = 4") && all.contains("tasks.max_queued_total = 5"), "{all}");
        let own = said(Bound::Owner(6), Bound::Tool(7));
        assert!(own.contains("tasks.max_running_per_owner = 6") && own.contains("max_queued = 7 of yours"), "{own}");
    }
}
