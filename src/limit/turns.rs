//! How many calls of one tool run at once, and how many wait for their turn, first come, first served.

use std::{collections::HashMap, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns of every tool. A tool is remembered only while something of it runs or waits, because its name is the
/// client's word.
#[derive(Debug, Default)]
pub struct Turns {
    tools: Mutex<HashMap<Key, Tool>>,
}

/// The upstream's place in the configuration and the tool's name.
type Key = (usize, Arc<str>);

#[derive(Debug)]
struct Tool {
    turns: Arc<Semaphore>,
    /// How many run or wait.
    users: usize,
}

/// What a call gets.
#[derive(Debug)]
pub enum Admission {
    /// It may run at once.
    Now(Permit),
    /// It has a place in the queue.
    Queued(Waiting),
}

/// Neither a turn nor a place in the queue is free.
#[derive(Debug, PartialEq, Eq)]
pub struct Limited {
    /// How many run.
    pub max_running: usize,
    /// How many wait.
    pub max_queued: usize,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_running, max_queued } = self;
        write!(f, "max_running = {max_running} calls run and max_queued = {max_queued} wait already; try again later")
    }
}

/// The right to run, given back when dropped. It has to live as long as the exchange that it was given for.
#[derive(Debug)]
pub struct Permit {
    _turn: OwnedSemaphorePermit,
    _user: User,
}

/// A place in the queue, given back when dropped.
#[derive(Debug)]
pub struct Waiting {
    turns: Arc<Semaphore>,
    user: User,
}

/// Counts for one call that runs or waits.
#[derive(Debug)]
struct User {
    all: Arc<Turns>,
    key: Key,
}

impl Turns {
    /// Lets a call of `tool` behind `upstream` run, or wait.
    ///
    /// # Errors
    /// [`Limited`]
    pub fn admit(
        self: &Arc<Self>,
        upstream: usize,
        tool: &Arc<str>,
        max_running: usize,
        max_queued: usize,
    ) -> Result<Admission, Limited> {
        let key = (upstream, Arc::clone(tool));
        let mut tools = self.tools.lock();
        let entry =
            tools.entry(key.clone()).or_insert_with(|| Tool { turns: Arc::new(Semaphore::new(max_running)), users: 0 });
        if entry.users >= max_running.saturating_add(max_queued) {
            return Err(Limited { max_running, max_queued });
        }
        entry.users += 1;
        let turns = Arc::clone(&entry.turns);
        let user = User { all: Arc::clone(self), key };
        Ok(match Arc::clone(&turns).try_acquire_owned() {
            Ok(turn) => Admission::Now(Permit { _turn: turn, _user: user }),
            Err(_) => Admission::Queued(Waiting { turns, user }),
        })
    }
}

impl Waiting {
    /// Waits for the turn; `None` never comes while the process lives.
    pub async fn turn(self) -> Option<Permit> {
        let turn = self.turns.acquire_owned().await.ok()?;
        Some(Permit { _turn: turn, _user: self.user })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut tools = self.all.tools.lock();
        if let Some(tool) = tools.get_mut(&self.key) {
            tool.users -= 1;
            if tool.users == 0 {
                tools.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(turns: &Arc<Turns>) -> Result<Admission, Limited> {
        turns.admit(0, &"tool".into(), 1, 1)
    }

    #[tokio::test]
    async fn a_call_runs_waits_or_is_refused_in_that_order() {
        let turns = Arc::<Turns>::default();
        let Ok(Admission::Now(running)) = admit(&turns) else { panic!("the first runs") };
        let Ok(Admission::Queued(waiting)) = admit(&turns) else { panic!("the second waits") };
        assert_eq!(admit(&turns).err(), Some(Limited { max_running: 1, max_queued: 1 }));
        drop(running);
        let permit = waiting.turn().await;
        assert!(permit.is_some());
        assert!(matches!(admit(&turns), Ok(Admission::Queued(_))));
    }

    #[test]
    fn tools_do_not_share_turns_and_are_forgotten_when_idle() {
        let turns = Arc::<Turns>::default();
        let first = admit(&turns);
        assert!(matches!(turns.admit(0, &"other".into(), 1, 0), Ok(Admission::Now(_))));
        assert!(matches!(turns.admit(1, &"tool".into(), 1, 0), Ok(Admission::Now(_))));
        assert_eq!(turns.tools.lock().len(), 1);
        drop(first);
        assert!(turns.tools.lock().is_empty());
    }

    #[test]
    fn a_place_in_the_queue_that_is_given_up_is_free_again() {
        let turns = Arc::<Turns>::default();
        let _running = admit(&turns);
        drop(admit(&turns));
        assert!(matches!(admit(&turns), Ok(Admission::Queued(_))));
    }
}
