//! What happens to each call: chosen by chance, from the seed of the run and the number of the call alone.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use crate::Form;

/// The seed of a run that is given none.
const SEED: u64 = 9;

/// Returns the seed of this run: that of `TASKGATE_SEED`, or always the same.
pub(crate) fn seed() -> u64 {
    std::env::var("TASKGATE_SEED").map_or(SEED, |seed| seed.parse().expect("TASKGATE_SEED is a number"))
}

/// Numbers that look random and follow from a seed, by `SplitMix64`.
pub(crate) struct Chance(u64);

impl Chance {
    /// Returns the numbers of one caller.
    pub(crate) fn of(seed: u64, caller: &str) -> Self {
        // Mixed first, or the callers of the next seed would be those of this one in another order.
        let mixed = caller.bytes().fold(Self(seed).next(), |mixed, byte| Self(mixed ^ u64::from(byte)).next());
        Self(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn millis(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most + 1))
    }
}

/// What the caller does while its call runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It waits for the end, and answers what it is asked.
    Stays,
    /// It closes the connection, or no longer polls, after some time.
    Leaves(Duration),
    /// It does so when it is asked.
    LeavesAsked,
    /// It cancels after some time.
    Cancels(Duration),
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What every message about it has in it.
    pub(crate) tag: String,
    pub(crate) way: Way,
    /// Whether it may be, or shall be, a task.
    pub(crate) task: bool,
    /// Whether no other call is made meanwhile. Those that were given up may still run.
    pub(crate) alone: bool,
    /// The pause before it.
    pub(crate) pause: Duration,
    /// What the server does, as it is told in the arguments.
    pub(crate) arguments: Value,
}

impl Plan {
    /// Returns the next call of a caller.
    pub(crate) fn next(chance: &mut Chance, caller: &str, form: Form) -> Self {
        let mut tag = format!("tag-{caller}-");
        write!(tag, "{:016x}", chance.next()).unwrap();
        let way = match chance.below(8) {
            0 | 1 => Way::Leaves(chance.millis(90)),
            2 => Way::LeavesAsked,
            3 | 4 => Way::Cancels(chance.millis(90)),
            _ => Way::Stays,
        };
        let rarely = if form.is_shared() { 24 } else { 12 };
        let end = match chance.below(rarely) {
            0 => "cut",
            1 => "forget",
            2 | 3 => ["404", "408", "504"][usize::try_from(chance.below(3)).unwrap()],
            4 => "no id",
            _ => "answer",
        };
        // Over stdio there is none.
        let end = if form.is_stdio() && end.parse::<u16>().is_ok() { "no id" } else { end };
        let questions = [0, 1, 1, 2][usize::try_from(chance.below(4)).unwrap()];
        let resumes = form == Form::Resumable;
        // What has begun as a stream has no other status.
        let questions = if (resumes || form == Form::Stream) && end.parse::<u16>().is_ok() { 0 } else { questions };
        let arguments = json!({
            "tag": tag,
            "questions": questions,
            "samples": chance.one_in(3),
            // A caller that stays gets to its end also where the server waits for every answer. A shared process may ask
            // one that does not.
            "patient": way == Way::Stays && !form.is_shared(),
            // taskgate notes within a second where an answer goes on.
            "pause": chance.below(if resumes { 1500 } else { 120 }),
            "end": end,
            // A call that a shared process never answers is in the way of all others for as long as it runs.
            "late": resumes || form.is_shared() || !chance.one_in(4),
        });
        let alone = chance.one_in(if form.is_shared() { 6 } else { 24 });
        Self { tag, way, task: chance.one_in(2), alone, pause: chance.millis(60), arguments }
    }
}
