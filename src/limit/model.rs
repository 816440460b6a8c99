//! Turns against a list of what runs and waits, under random calls, ends and departures.

use std::{
    collections::{HashMap, HashSet},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{Admission, Bound, Permit, ToolId, Totals, Turns};
use crate::identity::Owner;

struct Model {
    totals: Totals,
    max_queued: usize,
    turns: Arc<Turns>,
    /// The owners that may not start.
    held: Arc<Mutex<HashSet<Owner>>>,
    running: Vec<(Lane, Permit)>,
    /// In the order of their arrival.
    waiting: Vec<(Lane, Turn)>,
    /// How many turns another owner has had at a lane's tool since the lane's owner, which could have had them, had one.
    passed: HashMap<(Lane, usize), usize>,
    /// How many turns another lane of its owner has had since a lane, which could have had them, had one.
    skipped: HashMap<(Lane, Lane), usize>,
}

/// The owner, and the tool, of which as many run as its number says, and one.
type Lane = (usize, usize);
type Turn = Pin<Box<dyn Future<Output = Option<Permit>>>>;

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

    /// Holds an owner, or lets it start again.
    fn hold(&mut self, number: usize) {
        let held = self.held.lock().insert(owner(number));
        if held {
            // It has been passed for a reason.
            self.passed.retain(|((passed, _), _), _| *passed != number);
            self.skipped.retain(|((skipped, _), _), _| *skipped != number);
            return;
        }
        self.held.lock().remove(&owner(number));
        self.turns.advance();
        let mut begun = self.take_turns();
        self.had_turns(&begun.iter().map(|(lane, _)| *lane).collect::<Vec<_>>());
        self.running.append(&mut begun);
    }

    fn runs(&self, fits: impl Fn(Lane) -> bool) -> usize {
        self.running.iter().filter(|(lane, _)| fits(*lane)).count()
    }

    fn waits(&self, fits: impl Fn(Lane) -> bool) -> usize {
        self.waiting.iter().filter(|(lane, _)| fits(*lane)).count()
    }

    fn owner_full(&self, owner: usize) -> bool {
        self.runs(|lane| lane.0 == owner) >= self.totals.running_per_owner
    }

    fn tool_full(&self, tool: usize) -> bool {
        self.runs(|lane| lane.1 == tool) > tool
    }

    fn full(&self, (owner, tool): Lane) -> Option<Bound> {
        let Totals { running_per_owner, running, .. } = self.totals;
        let of_tool = self.tool_full(tool).then_some(Bound::Tool(tool + 1));
        let of_owner = self.owner_full(owner).then_some(Bound::Owner(running_per_owner));
        of_tool.or(of_owner).or((self.running.len() >= running).then_some(Bound::All(running)))
    }

    fn queue_full(&self, lane: Lane) -> Option<Bound> {
        let Totals { queued_per_owner, queued, .. } = self.totals;
        let of_lane = self.waits(|other| other == lane) >= self.max_queued;
        let of_owner = self.waits(|other| other.0 == lane.0) >= queued_per_owner;
        let of_all = (self.waiting.len() >= queued).then_some(Bound::All(queued));
        of_lane
            .then_some(Bound::Tool(self.max_queued))
            .or(of_owner.then_some(Bound::Owner(queued_per_owner)))
            .or(of_all)
    }

    fn enter(&mut self, lane: Lane) {
        let (full, queue_full) = (self.full(lane), self.queue_full(lane));
        let owner = owner(lane.0);
        let tool = ToolId { upstream: "/mcp".into(), name: format!("tool {}", lane.1).into() };
        match self.turns.admit(&owner, tool, (lane.1 + 1, self.max_queued), 1) {
            Ok(Admission::Now(permit)) => {
                assert_eq!(full, None);
                self.running.push((lane, permit));
            }
            Ok(Admission::Queued(waiting)) => {
                assert!(full.is_some() && queue_full.is_none());
                if self.waits(|other| other == lane) == 0 {
                    self.passed.retain(|(passed, _), _| *passed != lane);
                    self.skipped.retain(|(skipped, _), _| *skipped != lane);
                }
                self.waiting.push((lane, Box::pin(waiting.turn())));
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
        self.begun(&begun.iter().map(|(lane, _)| *lane).collect::<Vec<_>>());
        self.running.append(&mut begun);
    }

    /// The calls that have had their turns meanwhile.
    fn take_turns(&mut self) -> Vec<(Lane, Permit)> {
        let mut begun = Vec::new();
        for (lane, mut turn) in std::mem::take(&mut self.waiting) {
            match (&mut turn).now_or_never() {
                Some(permit) => {
                    assert_eq!(self.waits(|other| other == lane), 0, "one overtook another of its lane");
                    begun.push((lane, permit.expect("a turn")));
                }
                None => self.waiting.push((lane, turn)),
            }
        }
        begun
    }

    /// Nobody who could have had one of these turns was passed by the same owner before, nor another tool of an owner by
    /// the same tool.
    fn begun(&mut self, begun: &[Lane]) {
        self.had_turns(begun);
        let waiting: HashSet<_> = self.waiting.iter().map(|(lane, _)| *lane).collect();
        for (lane, turn) in waiting.iter().flat_map(|lane| begun.iter().map(move |turn| (*lane, *turn))) {
            let had_a_turn = begun.iter().any(|other| other.0 == lane.0);
            if lane.1 == turn.1 && !had_a_turn && !self.owner_full(lane.0) && !self.is_held(lane.0) {
                let times = self.passed.entry((lane, turn.0)).or_default();
                *times += 1;
                assert!(*times <= 1, "{turn:?} had a turn twice before {lane:?}");
            }
            // With one other turn in between the slot of the tool may have been given away by then.
            if lane.0 == turn.0 && lane.1 != turn.1 && !self.tool_full(lane.1) && begun.len() == 1 {
                let times = self.skipped.entry((lane, turn)).or_default();
                *times += 1;
                assert!(*times <= 1, "{turn:?} had a turn twice before {lane:?} of the same owner");
            }
        }
    }

    fn had_turns(&mut self, begun: &[Lane]) {
        self.passed.retain(|((owner, _), _), _| begun.iter().all(|lane| lane.0 != *owner));
        self.skipped.retain(|(lane, _), _| !begun.contains(lane));
    }

    fn check(&self) {
        for (lane, _) in &self.waiting {
            assert!(self.full(*lane).is_some() || self.is_held(lane.0), "{lane:?} waits and could run");
        }
        for (lane, _) in &self.running {
            assert!(self.runs(|other| other.1 == lane.1) <= lane.1 + 1);
            assert!(self.runs(|other| other.0 == lane.0) <= self.totals.running_per_owner);
        }
        assert!(self.running.len() <= self.totals.running && self.waiting.len() <= self.totals.queued);
    }
}

fn owner(number: usize) -> Owner {
    Owner::Principal { upstream: "/mcp".into(), name: format!("owner {number}").into() }
}

proptest! {
    #[test]
    fn turns_go_round_within_every_limit_and_nobody_is_forgotten(
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
                0..=4 => model.enter((owner, tool)),
                5 | 6 => model.leave(4 * tool + owner),
                7 => model.hold(owner),
                _ if model.waiting.is_empty() => {}
                _ => drop(model.waiting.remove((4 * tool + owner) % model.waiting.len())),
            }
            model.check();
        }
        for owner in 0..4 {
            if model.is_held(owner) {
                model.hold(owner);
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
