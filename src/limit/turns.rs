//! Turns to run, which calls get at once, wait for, or are refused: for each tool, for each owner, and in all.

use std::{convert::Infallible, fmt, sync::Arc};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{
    limited::Limited,
    scheduler::{CallKeys, Scheduler, ToolId, ToolLimits, Totals},
};
use crate::identity::Owner;

type TurnScheduler = Scheduler<oneshot::Sender<Permit>>;
/// Makes what the turn of a call uses, where it has to wait.
type OnTurn<'a> = &'a mut dyn FnMut() -> oneshot::Sender<Permit>;

/// The turns of every tool and owner.
pub struct Turns {
    scheduler: Mutex<TurnScheduler>,
    /// Returns whether waiting calls of an owner may have turns.
    may_start: Box<dyn Fn(&Owner) -> bool + Send + Sync>,
}

impl fmt::Debug for Turns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turns").field("scheduler", &self.scheduler).finish_non_exhaustive()
    }
}

/// What a call gets that is not refused.
#[derive(Debug)]
pub enum Admission {
    /// It may run at once.
    Now(Permit),
    /// It waits for its turn.
    Queued(QueuedCall),
}

/// The right to run, given back when its last clone is dropped. It has to live as long as the call's exchange.
#[derive(Clone, Debug)]
pub struct Permit(#[expect(dead_code, reason = "it is dropped")] Arc<TakenTurn>);

/// A turn that a call has, until this is dropped.
#[derive(Debug)]
struct TakenTurn {
    turns: Arc<Turns>,
    keys: CallKeys,
}

impl Permit {
    fn new(turns: &Arc<Turns>, keys: CallKeys) -> Self {
        Self(Arc::new(TakenTurn { turns: Arc::clone(turns), keys }))
    }
}

/// A call in the queue, which gives its place back when dropped.
#[derive(Debug)]
pub struct QueuedCall {
    turns: Arc<Turns>,
    keys: CallKeys,
    place: u64,
    turn: oneshot::Receiver<Permit>,
}

impl Turns {
    /// Starts without calls. Waiting calls of an owner get no turns while `may_start` denies them; when its answer may
    /// have changed, call [`Turns::advance`].
    #[must_use]
    pub fn new(totals: Totals, may_start: impl Fn(&Owner) -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { scheduler: Mutex::new(Scheduler::new(totals)), may_start: Box::new(may_start) })
    }

    /// Gives turns to the waiting calls that can run now.
    pub fn advance(self: &Arc<Self>) {
        loop {
            let next = self.scheduler.lock().next(&self.may_start);
            let Some((keys, turn)) = next else { return };
            self.begin(keys, turn);
        }
    }

    fn begin(self: &Arc<Self>, keys: CallKeys, turn: oneshot::Sender<Permit>) {
        // A call that has just given up its place gives the turn on by dropping it.
        drop(turn.send(Permit::new(self, keys)));
    }

    /// Lets a call of `owner` run or wait, within the `limits` of its tool. A waiting call keeps its request, which has
    /// so many `bytes`.
    ///
    /// # Errors
    /// [`Limited`]
    pub fn admit(
        self: &Arc<Self>,
        owner: &Owner,
        tool: ToolId,
        limits: ToolLimits,
        bytes: usize,
    ) -> Result<Admission, Limited> {
        let entering =
            |scheduler: &mut TurnScheduler, on_turn: OnTurn<'_>| scheduler.enter(owner, tool, limits, bytes, on_turn);
        self.enter(entering)
    }

    fn enter<E>(
        self: &Arc<Self>,
        entering: impl FnOnce(&mut TurnScheduler, OnTurn<'_>) -> Result<(CallKeys, Option<u64>), E>,
    ) -> Result<Admission, E> {
        let mut turn = None;
        let mut on_turn = || {
            let (sender, receiver) = oneshot::channel();
            turn = Some(receiver);
            sender
        };
        let (keys, place) = entering(&mut self.scheduler.lock(), &mut on_turn)?;
        Ok(match place.zip(turn) {
            Some((place, turn)) => Admission::Queued(QueuedCall { turns: Arc::clone(self), keys, place, turn }),
            None => Admission::Now(Permit::new(self, keys)),
        })
    }

    /// Lets a call run or wait that has waited before, in an earlier process, however many may wait now.
    pub fn admit_again(self: &Arc<Self>, owner: &Owner, tool: ToolId, limits: ToolLimits, bytes: usize) -> Admission {
        let entering = |scheduler: &mut TurnScheduler, on_turn: OnTurn<'_>| {
            Ok::<_, Infallible>(scheduler.enter_again(owner, tool, limits, bytes, on_turn))
        };
        match self.enter(entering) {
            Ok(admission) => admission,
            Err(never) => match never {},
        }
    }

    /// Returns the right to run of a call that has run before, in an earlier process, whatever the limits are now.
    pub fn resume(self: &Arc<Self>, owner: &Owner, tool: ToolId, limits: ToolLimits) -> Permit {
        let keys = self.scheduler.lock().enter_running(owner, tool, limits);
        Permit::new(self, keys)
    }
}

#[cfg(test)]
impl Turns {
    /// Returns whether nothing is remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.scheduler.lock().is_empty()
    }
}

impl QueuedCall {
    /// Waits for the turn.
    pub async fn turn(mut self) -> Permit {
        let turn = (&mut self.turn).await;
        turn.unwrap_or_else(|_| unreachable!("the scheduler keeps the sender until it is used"))
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        self.turns.scheduler.lock().give_up(self.keys, self.place);
    }
}

impl Drop for TakenTurn {
    fn drop(&mut self) {
        let next = self.turns.scheduler.lock().leave(self.keys, &self.turns.may_start);
        for (keys, turn) in next.into_iter().flatten() {
            self.turns.begin(keys, turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures_util::FutureExt;

    use super::*;
    use crate::limit::Bound;

    const WIDE: Totals = Totals {
        running_per_owner: 100,
        running: 100,
        queued_per_owner: 20_000,
        queued: 20_000,
        queued_bytes_per_owner: 8,
        queued_bytes: 10,
    };

    fn owner(n: usize) -> Owner {
        Owner::principal("/mcp".into(), format!("owner {n}").into())
    }

    fn limits(running: usize, queued: usize) -> ToolLimits {
        ToolLimits { running, queued }
    }

    fn tool(name: &str) -> ToolId {
        ToolId { upstream: "/mcp".into(), name: name.into() }
    }

    /// Admits a call of a tool of which one runs and one of each owner waits.
    fn admit(turns: &Arc<Turns>, n: usize) -> Result<Admission, Limited> {
        turns.admit(&owner(n), tool("tool"), limits(1, 1), 0)
    }

    #[tokio::test]
    async fn a_call_runs_waits_or_is_refused_in_that_order() {
        let turns = Turns::new(WIDE, |_| true);
        let Ok(Admission::Now(running)) = admit(&turns, 0) else { panic!("the first runs") };
        let Ok(Admission::Queued(waiting)) = admit(&turns, 0) else { panic!("the second waits") };
        assert_eq!(admit(&turns, 0).err(), Some(Limited { running: Bound::Tool(1), queued: Bound::Tool(1) }));
        // Another owner has a queue of its own.
        assert!(matches!(admit(&turns, 1), Ok(Admission::Queued(_))));
        let turn = tokio::spawn(waiting.turn());
        drop(running);
        turn.await.expect("its turn");
    }

    #[test]
    fn tools_do_not_share_turns_and_all_is_forgotten_when_idle() {
        let turns = Turns::new(WIDE, |_| true);
        let first = admit(&turns, 0);
        assert!(matches!(turns.admit(&owner(0), tool("other"), limits(1, 0), 0), Ok(Admission::Now(_))));
        assert!(matches!(
            turns.admit(&owner(0), ToolId { upstream: "/other".into(), ..tool("tool") }, limits(1, 0), 0),
            Ok(Admission::Now(_))
        ));
        assert!(turns.admit(&owner(0), tool("tool"), limits(1, 0), 0).is_err());
        drop(first);
        assert!(turns.is_idle());
    }

    #[test]
    fn a_place_in_the_queue_that_is_given_up_is_free_again() {
        let turns = Turns::new(WIDE, |_| true);
        let _running = admit(&turns, 0);
        drop(admit(&turns, 0));
        assert!(matches!(admit(&turns, 0), Ok(Admission::Queued(_))));
    }

    #[test]
    fn a_call_that_has_waited_in_an_earlier_process_waits_again_whatever_the_limits_are_now() {
        let turns = Turns::new(Totals { queued_bytes: 0, queued: 0, ..WIDE }, |_| true);
        let again = || turns.admit_again(&owner(0), tool("tool"), limits(1, 0), 9);
        let Admission::Now(running) = again() else { panic!("the first runs") };
        let [Admission::Queued(first), Admission::Queued(second)] = [again(), again()] else { panic!("they wait") };
        assert!(admit(&turns, 1).is_err(), "a new one is refused");
        drop(running);
        drop(first.turn().now_or_never().expect("its turn"));
        drop(second.turn().now_or_never().expect("its turn"));
        assert!(turns.is_idle());
    }

    #[test]
    fn waiting_requests_are_bounded_in_bytes_for_each_owner_and_in_all_and_given_back_however_they_leave() {
        let turns = Turns::new(WIDE, |_| true);
        let admit = |n, bytes| turns.admit(&owner(n), tool("tool"), limits(1, 9), bytes);
        // The bytes of a call that runs do not count.
        let running = admit(0, 1000).expect("it runs");
        let Ok(Admission::Queued(first)) = admit(1, 6) else { panic!("it waits") };
        assert_eq!(admit(1, 3).err().map(|limited| limited.queued), Some(Bound::BytesOfOwner(8)));
        let second = admit(1, 2).expect("room");
        assert_eq!(admit(2, 3).err().map(|limited| limited.queued), Some(Bound::Bytes(10)));
        let third = admit(2, 2).expect("room");
        drop(second);
        admit(2, 2).expect("room again");
        drop(running);
        let permit = first.turn().now_or_never().expect("its turn");
        admit(1, 8).expect("room again");
        drop((third, permit));
        assert!(turns.is_idle());
    }

    #[test]
    fn the_tools_of_an_owner_take_turns_at_what_the_owner_may_run() {
        let turns = Turns::new(Totals { running_per_owner: 1, ..WIDE }, |_| true);
        let admit = |name: &str| turns.admit(&owner(0), tool(name), limits(9, 9), 0).expect("room");
        let Admission::Now(mut permit) = admit("a") else { panic!("the first runs") };
        let mut waiting: Vec<_> = ["a", "a", "b", "b"].map(|tool| (tool, admit(tool))).into();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(permit);
            let granted = |(_, admission): &(_, Admission)| match admission {
                Admission::Queued(waiting) => !waiting.turn.is_empty(),
                Admission::Now(_) => false,
            };
            let (tool, admission) = waiting.remove(waiting.iter().position(granted).expect("a turn"));
            let Admission::Queued(waiting) = admission else { panic!("it waited") };
            permit = waiting.turn().now_or_never().expect("its turn");
            order.push(tool);
        }
        assert_eq!(order, ["a", "b", "a", "b"]);
    }

    #[test]
    fn an_owner_that_may_not_start_keeps_its_places_and_holds_up_no_other() {
        let held = Arc::new(AtomicBool::new(true));
        let first = Arc::clone(&held);
        let turns = Turns::new(WIDE, move |who| *who != owner(0) || !first.load(Ordering::Relaxed));
        let admit = |n| turns.admit(&owner(n), tool("tool"), limits(1, 9), 0).expect("room");
        let queued = |n| match admit(n) {
            Admission::Queued(waiting) => Box::pin(waiting.turn()),
            Admission::Now(_) => panic!("it waits"),
        };
        let running = admit(1);
        let (mut first, mut second, mut other) = (queued(0), queued(0), queued(2));
        drop(running);
        let other = (&mut other).now_or_never().expect("the other's turn");
        drop(other);
        turns.advance();
        assert!((&mut first).now_or_never().is_none(), "a turn for one that is held");
        held.store(false, Ordering::Relaxed);
        turns.advance();
        let permit = (&mut first).now_or_never().expect("its turn");
        turns.advance();
        assert!((&mut second).now_or_never().is_none(), "more than one runs");
        drop(permit);
        drop((&mut second).now_or_never().expect("its turn"));
        assert!(turns.is_idle());
    }
}
