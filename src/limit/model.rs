//! Compares [`Turns`] with a list of the calls that run and wait, under random calls, ends and departures.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Admission, Bound, Permit, ToolId, ToolLimits, Totals, Turns};
use crate::identity::Owner;

struct Model {
    totals: Totals,
    max_queued: usize,
    turns: Arc<Turns>,
    /// The owners whose calls may not start.
    held: Arc<Mutex<HashSet<Owner>>>,
    running: Vec<(Pair, Permit)>,
    /// In the order in which they came.
    waiting: Vec<(Pair, Turn)>,
    /// How many turns another owner has had at the tool since the pair's owner, which could have had them, had one.
    passed: HashMap<(Pair, usize), usize>,
    /// How many turns another pair with the same owner has had since a pair, which could have had them, had one.
    skipped: HashMap<(Pair, Pair), usize>,
}

/// The owner and the tool of a call. Tool n may run n + 1 calls at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pair {
    owner: usize,
    tool: usize,
}

type Turn = Pin<Box<dyn Future<Output = Permit>>>;

impl Model {
    fn new(totals: Totals, max_queued: usize) -> Self {
        let held = Arc::new(Mutex::new(HashSet::new()));
        let denied = Arc::clone(&held);
        let turns = Turns::new(totals, move |owner| !denied.lock().contains(owner));
        let (running, waiting) = (Vec::new(), Vec::new());
        Self { totals, max_queued, turns, held, running, waiting, passed: HashMap::new(), skipped: HashMap::new() }
    }

    fn is_held(&self, number: usize) -> bool {
        self.held.lock().contains(&owner(number))
    }

    /// Holds an owner back, or lets it start again if it was held.
    fn toggle_hold(&mut self, number: usize) {
        let held = self.held.lock().insert(owner(number));
        if held {
            // Other owners pass it because it is held.
            self.passed.retain(|(passed, _), _| passed.owner != number);
            self.skipped.retain(|(skipped, _), _| skipped.owner != number);
            return;
        }
        self.held.lock().remove(&owner(number));
        self.turns.advance();
        let mut begun = self.take_turns();
        self.had_turns(&begun.iter().map(|(pair, _)| *pair).collect::<Vec<_>>());
        self.running.append(&mut begun);
    }

    fn count_running(&self, fits: impl Fn(Pair) -> bool) -> usize {
        self.running.iter().filter(|(pair, _)| fits(*pair)).count()
    }

    fn count_waiting(&self, fits: impl Fn(Pair) -> bool) -> usize {
        self.waiting.iter().filter(|(pair, _)| fits(*pair)).count()
    }

    fn owner_full(&self, owner: usize) -> bool {
        self.count_running(|pair| pair.owner == owner) >= self.totals.running_per_owner
    }

    fn tool_full(&self, tool: usize) -> bool {
        self.count_running(|pair| pair.tool == tool) > tool
    }

    fn full(&self, Pair { owner, tool }: Pair) -> Option<Bound> {
        let Totals { running_per_owner, running, .. } = self.totals;
        let of_tool = self.tool_full(tool).then_some(Bound::Tool(tool + 1));
        let of_owner = self.owner_full(owner).then_some(Bound::Owner(running_per_owner));
        of_tool.or(of_owner).or((self.running.len() >= running).then_some(Bound::All(running)))
    }

    fn queue_full(&self, pair: Pair) -> Option<Bound> {
        let Totals { queued_per_owner, queued, .. } = self.totals;
        let of_pair = self.count_waiting(|other| other == pair) >= self.max_queued;
        let of_owner = self.count_waiting(|other| other.owner == pair.owner) >= queued_per_owner;
        let of_all = (self.waiting.len() >= queued).then_some(Bound::All(queued));
        of_pair
            .then_some(Bound::Tool(self.max_queued))
            .or(of_owner.then_some(Bound::Owner(queued_per_owner)))
            .or(of_all)
    }

    fn enter(&mut self, pair: Pair) {
        let (full, queue_full) = (self.full(pair), self.queue_full(pair));
        let owner = owner(pair.owner);
        let tool = ToolId { upstream: "/mcp".into(), name: format!("tool {}", pair.tool).into() };
        match self.turns.admit(&owner, tool, ToolLimits { running: pair.tool + 1, queued: self.max_queued }, 1) {
            Ok(Admission::Now(permit)) => {
                assert_eq!(full, None);
                self.running.push((pair, permit));
            }
            Ok(Admission::Queued(waiting)) => {
                assert!(full.is_some() && queue_full.is_none());
                if self.count_waiting(|other| other == pair) == 0 {
                    self.passed.retain(|(passed, _), _| *passed != pair);
                    self.skipped.retain(|(skipped, _), _| *skipped != pair);
                }
                self.waiting.push((pair, Box::pin(waiting.turn())));
            }
            Err(limited) => assert_eq!((Some(limited.running), Some(limited.queued)), (full, queue_full)),
        }
    }

    fn leave(&mut self, at: usize) {
        if self.running.is_empty() {
            return;
        }
        drop(self.running.remove(at % self.running.len()));
        let mut begun = self.take_turns();
        self.check_turns(&begun.iter().map(|(pair, _)| *pair).collect::<Vec<_>>());
        self.running.append(&mut begun);
    }

    /// Returns the calls that have had their turns meanwhile.
    fn take_turns(&mut self) -> Vec<(Pair, Permit)> {
        let mut begun = Vec::new();
        for (pair, mut turn) in std::mem::take(&mut self.waiting) {
            match (&mut turn).now_or_never() {
                Some(permit) => {
                    assert_eq!(self.count_waiting(|other| other == pair), 0, "a call overtook another of its pair");
                    begun.push((pair, permit));
                }
                None => self.waiting.push((pair, turn)),
            }
        }
        begun
    }

    /// Checks that no owner that could have had one of these turns was passed by the same owner before, and no tool of
    /// an owner by the same tool.
    fn check_turns(&mut self, begun: &[Pair]) {
        self.had_turns(begun);
        let waiting: HashSet<_> = self.waiting.iter().map(|(pair, _)| *pair).collect();
        for (pair, turn) in waiting.iter().flat_map(|pair| begun.iter().map(move |turn| (*pair, *turn))) {
            let had_a_turn = begun.iter().any(|other| other.owner == pair.owner);
            if pair.tool == turn.tool && !had_a_turn && !self.owner_full(pair.owner) && !self.is_held(pair.owner) {
                let times = self.passed.entry((pair, turn.owner)).or_default();
                *times += 1;
                assert!(*times <= 1, "{turn:?} had a turn twice before {pair:?}");
            }
            // After another turn the slot of the tool may already have been given away.
            if pair.owner == turn.owner && pair.tool != turn.tool && !self.tool_full(pair.tool) && begun.len() == 1 {
                let times = self.skipped.entry((pair, turn)).or_default();
                *times += 1;
                assert!(*times <= 1, "{turn:?} had a turn twice before {pair:?} of the same owner");
            }
        }
    }

    fn had_turns(&mut self, begun: &[Pair]) {
        self.passed.retain(|(passed, _), _| begun.iter().all(|pair| pair.owner != passed.owner));
        self.skipped.retain(|(pair, _), _| !begun.contains(pair));
    }

    fn check(&self) {
        for (pair, _) in &self.waiting {
            assert!(self.full(*pair).is_some() || self.is_held(pair.owner), "{pair:?} waits and could run");
        }
        for (pair, _) in &self.running {
            assert!(self.count_running(|other| other.tool == pair.tool) <= pair.tool + 1);
            assert!(self.count_running(|other| other.owner == pair.owner) <= self.totals.running_per_owner);
        }
        assert!(self.running.len() <= self.totals.running && self.waiting.len() <= self.totals.queued);
    }
}

fn owner(number: usize) -> Owner {
    Owner::principal("/mcp".into(), format!("owner {number}").into())
}

proptest! {
    #[test]
    fn turns_go_round_within_every_limit_and_no_call_is_forgotten(
        (running_per_owner, running, queued_per_owner, queued) in (1usize..5, 1usize..9, 1usize..9, 1usize..17),
        max_queued in 0usize..6,
        steps in proptest::collection::vec((0u8..9, 0usize..4, 0usize..3), 1..200),
    ) {
        let (queued_bytes_per_owner, queued_bytes) = (queued_per_owner, queued);
        let totals =
            Totals { running_per_owner, running, queued_per_owner, queued, queued_bytes_per_owner, queued_bytes };
        let mut model = Model::new(totals, max_queued);
        for (kind, owner, tool) in steps {
            match kind {
                0..=4 => model.enter(Pair { owner, tool }),
                5 | 6 => model.leave(4 * tool + owner),
                7 => model.toggle_hold(owner),
                _ if model.waiting.is_empty() => {}
                _ => drop(model.waiting.remove((4 * tool + owner) % model.waiting.len())),
            }
            model.check();
        }
        for owner in 0..4 {
            if model.is_held(owner) {
                model.toggle_hold(owner);
                model.check();
            }
        }
        while !model.waiting.is_empty() {
            assert!(!model.running.is_empty());
            model.leave(0);
            model.check();
        }
        model.running.clear();
        assert!(model.turns.is_idle());
    }
}
