//! How often the client of one call is told to poll, and what it is told of the time.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    State, Task,
    clock::millis,
    poll_demand::PollDemand,
    run_times::{PollBounds, UsualTime},
    tool_times::SharedRunTimes,
    ttl::POLLS_TO_COLLECT,
};
use crate::{
    config::{PollInterval, Tool},
    limit::Account,
};

/// A call that asks its client is polled at least this often, within the bounds, as every fixed interval was by
/// default: people wait for its questions.
const ASKING: Duration = Duration::from_secs(2);
/// A call that waits for its turn is told to be polled once in this part of the time that it has waited.
const QUEUED_PART: u32 = 8;
/// A client polls [`POLLS_TO_COLLECT`] times at least in the time for which a task is kept after its end, and so often
/// if there are too many polls.
const FEWEST_POLLS: u32 = 2;

/// What a client is told of the time of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Milliseconds until it should poll.
    pub poll_interval: u64,
    /// How long calls of the tool usually take, if that is known and the task's call has its turn.
    pub usual: Option<UsualTime>,
}

/// How often the client of a call is told to poll.
#[derive(Debug)]
pub(super) enum Pace {
    /// Always after so many milliseconds.
    Fixed(u64),
    /// After a time that fits.
    Auto(Box<AutoPace>),
}

/// A pace that fits how long calls of the tool take, how long this one has run, and how many polls there are.
#[derive(Debug)]
pub(super) struct AutoPace {
    bounds: PollBounds,
    /// The longest interval if there are too many polls.
    longest: Duration,
    run_times: SharedRunTimes,
    account: Arc<Account>,
    created: Instant,
    /// When the call began, or was about to; `None` while it waits for its turn.
    began: Option<Instant>,
    /// Whether people or the process wait for its client, so that it is polled as one that asks.
    hurried: bool,
    /// When the client was told an interval last.
    told_at: Instant,
    /// The interval that fitted the call at that time.
    fitting: Duration,
    /// The interval that the client was told, which is longer if there were too many polls.
    told: Duration,
}

impl Outlook {
    /// Returns what is told of a task that has ended, or whose call another process runs.
    pub(super) fn unknown(task: &Task) -> Self {
        Self { poll_interval: task.poll_interval, usual: None }
    }

    /// Returns the text for a person about a task: its own, and how long its call will probably take.
    #[must_use]
    pub fn status_message<'a>(&self, task: &'a Task) -> Option<Cow<'a, str>> {
        let text = task.status_message.as_deref();
        let Some(usual) = self.usual.filter(|_| task.state == State::Working) else { return text.map(Cow::Borrowed) };
        Some(Cow::Owned(match text {
            Some(text) => format!("{} ({usual})", text.trim_end_matches('.')),
            None => sentence(usual),
        }))
    }

    /// Returns a text for the model while the task runs, with how long its call will probably take.
    #[must_use]
    pub fn immediate_response<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.usual.map_or(Cow::Borrowed(text), |usual| Cow::Owned(format!("{text} {}", sentence(usual))))
    }
}

/// Returns a sentence such as "Usually done in about 4 minutes."
fn sentence(usual: UsualTime) -> String {
    let mut text = usual.to_string();
    text[..1].make_ascii_uppercase();
    text.push('.');
    text
}

impl Pace {
    /// Returns the pace of a call whose task was `created` then, and is `kept` for so many milliseconds after its end.
    pub(super) fn new(
        tool: &Tool,
        kept: u64,
        run_times: SharedRunTimes,
        account: &Arc<Account>,
        created: Instant,
    ) -> Self {
        if let PollInterval::Fixed(interval) = tool.poll_interval {
            return Self::Fixed(millis(interval));
        }
        let (min, max) = (tool.min_poll_interval, tool.max_poll_interval);
        let at_most = |polls: u32| Duration::from_millis(kept / u64::from(polls)).clamp(min, max);
        let bounds = PollBounds { min, max: at_most(POLLS_TO_COLLECT) };
        let (account, now) = (Arc::clone(account), Instant::now());
        let mut pace = AutoPace {
            bounds,
            longest: at_most(FEWEST_POLLS),
            run_times,
            account,
            created,
            began: None,
            hurried: false,
            told_at: now,
            fitting: Duration::ZERO,
            told: Duration::ZERO,
        };
        pace.fitting = pace.fitting(now);
        pace.told = pace.fitting;
        Self::Auto(Box::new(pace))
    }

    /// Notes that the call began at `began`.
    pub(super) fn begin(&mut self, began: Instant) {
        if let Self::Auto(pace) = self {
            pace.began = Some(began);
        }
    }

    /// Has the call polled as one that asks from now on: it has asked its client something, or the process stops.
    pub(super) fn hurry(&mut self) {
        if let Self::Auto(pace) = self {
            pace.hurried = true;
        }
    }

    /// Returns what the client is told now. `crowding` is the factor by which the clients of all calls should stretch
    /// the time between polls.
    pub(super) fn outlook(&self, crowding: f64, now: Instant) -> Outlook {
        match self {
            Self::Fixed(poll_interval) => Outlook { poll_interval: *poll_interval, usual: None },
            Self::Auto(pace) => pace.outlook(pace.fitting(now), crowding),
        }
    }

    /// Returns what the client is told that polls now, and notes the poll in the demand of all calls.
    pub(super) fn poll(&mut self, demand: &mut PollDemand, now: Instant) -> Outlook {
        match self {
            Self::Fixed(poll_interval) => Outlook { poll_interval: *poll_interval, usual: None },
            Self::Auto(pace) => {
                // A client that waited as long as it was told, because there are many, wanted more than this one poll.
                // One that did not wait wanted no more than others.
                let waited = now.duration_since(pace.told_at).min(pace.told);
                demand.note(waited.div_duration_f64(pace.fitting), now);
                pace.fitting = pace.fitting(now);
                let outlook = pace.outlook(pace.fitting, demand.crowding(now));
                (pace.told_at, pace.told) = (now, Duration::from_millis(outlook.poll_interval));
                outlook
            }
        }
    }
}

impl AutoPace {
    /// Returns the interval that fits the call where there are not too many polls.
    fn fitting(&self, now: Instant) -> Duration {
        let run_times = self.run_times.lock();
        let mut bounds = self.bounds;
        if self.hurried || run_times.asks() {
            bounds.max = bounds.max.min(ASKING.max(bounds.min));
        }
        if let Some(began) = self.began {
            return run_times.next_poll(now.duration_since(began), bounds);
        }
        // It ends no sooner than if it began now.
        let waited = now.duration_since(self.created) / QUEUED_PART;
        run_times.next_poll(Duration::ZERO, bounds).max(waited.min(bounds.max))
    }

    fn outlook(&self, fitting: Duration, crowding: f64) -> Outlook {
        let crowding = crowding * self.account.crowding();
        let stretched = Duration::try_from_secs_f64(fitting.as_secs_f64() * crowding).unwrap_or(Duration::MAX);
        let usual = self.began.and_then(|_| self.run_times.lock().usual());
        Outlook { poll_interval: millis(stretched.min(self.longest).max(fitting)), usual }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{config::Rates, identity::Owner, limit::Accounts, task::state::tests::task};

    /// Returns the pace of a call that runs since now, whose task is kept for so many seconds.
    fn pace(tool: &Tool, kept: u64, run_times: SharedRunTimes) -> Pace {
        let account = Accounts::new(Rates::default()).of(&Owner::session(uuid::Uuid::nil()));
        let mut pace = Pace::new(tool, 1000 * kept, run_times, &account, Instant::now());
        pace.begin(Instant::now());
        pace
    }

    /// Returns the run times of a tool whose calls take 100 s.
    fn known() -> SharedRunTimes {
        let run_times = SharedRunTimes::default();
        for _ in 0..100 {
            run_times.lock().record(Duration::from_secs(100));
        }
        run_times
    }

    fn interval(pace: &Pace) -> u64 {
        pace.outlook(1.0, Instant::now()).poll_interval
    }

    #[test]
    fn a_person_and_the_model_are_told_how_long_a_call_that_runs_usually_takes() {
        let owner = Owner::session(uuid::Uuid::nil());
        let outlook = Outlook { poll_interval: 1, usual: Some(UsualTime::About(Duration::from_mins(4))) };
        let told = |text: Option<&str>, state| {
            let task = Task { status_message: text.map(Arc::from), state, ..task(&owner) };
            outlook.status_message(&task).map(Cow::into_owned)
        };
        assert_eq!(told(None, State::Working).as_deref(), Some("Usually done in about 4 minutes."));
        let with_text = told(Some("3 of 10: indexing"), State::Working);
        assert_eq!(with_text.as_deref(), Some("3 of 10: indexing (usually done in about 4 minutes)"));
        assert_eq!(told(Some("Input required"), State::InputRequired).as_deref(), Some("Input required"));
        assert_eq!(told(None, State::InputRequired), None);
        assert_eq!(outlook.immediate_response("Started."), "Started. Usually done in about 4 minutes.");
        assert_eq!(Outlook { usual: None, ..outlook }.immediate_response("Started."), "Started.");
    }

    #[test]
    fn a_fixed_interval_stays_what_it_is_and_says_nothing_of_the_time() {
        let tool = Tool { poll_interval: PollInterval::Fixed(Duration::from_millis(1500)), ..Tool::default() };
        let mut pace = pace(&tool, 60, known());
        pace.hurry();
        let (mut demand, now) = (PollDemand::new(Instant::now()), Instant::now());
        let fixed = Outlook { poll_interval: 1500, usual: None };
        assert_eq!((pace.poll(&mut demand, now), pace.outlook(100.0, now)), (fixed, fixed));
    }

    #[tokio::test(start_paused = true)]
    async fn an_interval_follows_what_is_known_of_the_tool_within_its_bounds() {
        let pace = pace(&Tool::default(), 3600, known());
        assert_eq!(interval(&pace), 30_000, "the longest");
        assert!(pace.outlook(1.0, Instant::now()).usual.is_some());
        tokio::time::advance(Duration::from_secs(90)).await;
        assert!((1000..10_000).contains(&interval(&pace)));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(interval(&pace), 500, "the shortest");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_polls_ten_times_while_its_task_is_kept_and_twice_if_there_are_too_many_polls() {
        let pace = pace(&Tool::default(), 40, known());
        assert_eq!(interval(&pace), 4000);
        assert_eq!(pace.outlook(1000.0, Instant::now()).poll_interval, 20_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_asks_or_whose_tool_asks_is_polled_every_two_seconds() {
        let mut asked = pace(&Tool::default(), 3600, known());
        asked.hurry();
        assert_eq!(interval(&asked), 2000);
        let asking = known();
        asking.lock().record_question();
        assert_eq!(interval(&pace(&Tool::default(), 3600, asking)), 2000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waits_for_its_turn_is_polled_ever_more_seldom() {
        let account = Accounts::new(Rates::default()).of(&Owner::session(uuid::Uuid::nil()));
        let pace = Pace::new(&Tool::default(), 3_600_000, Arc::default(), &account, Instant::now());
        assert_eq!((interval(&pace), pace.outlook(1.0, Instant::now()).usual), (500, None));
        tokio::time::advance(Duration::from_secs(80)).await;
        assert_eq!(interval(&pace), 10_000);
        tokio::time::advance(Duration::from_secs(800)).await;
        assert_eq!(interval(&pace), 30_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_pollers_is_slowed_to_what_the_process_takes_and_not_by_a_client_that_does_not_wait() {
        let mut demand = PollDemand::new(Instant::now());
        let mut paces: Vec<_> = (0..10_000).map(|_| (pace(&Tool::default(), 3600, Arc::default()), 0)).collect();
        let mut polls = 0;
        for millis in (0..60_000_u64).step_by(100) {
            tokio::time::advance(Duration::from_millis(100)).await;
            for (pace, due) in &mut paces {
                if *due <= millis {
                    *due = millis + pace.poll(&mut demand, Instant::now()).poll_interval;
                    polls += u64::from(millis >= 30_000);
                }
            }
        }
        let rate = polls / 30;
        assert!((1000..4000).contains(&rate), "{rate} polls a second, and 20000 without a limit");

        let mut alone = PollDemand::new(Instant::now());
        let (mut rude, _) = paces.remove(0);
        for _ in 0..100_000 {
            rude.poll(&mut alone, Instant::now());
        }
        assert!(alone.crowding(Instant::now()) <= 1.0);
    }
}
