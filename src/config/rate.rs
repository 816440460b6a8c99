//! The `[rate]` section.

use std::num::NonZeroU32;
use std::time::Duration;

use toml::de::DeValue;

use super::reader::{Section, describe};

/// The `[rate]` section: how often one owner may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Requests with the methods `tasks/get`, `tasks/result`, `tasks/list`, `tasks/cancel` and `tasks/update`, and
    /// calls of the tools for jobs.
    pub task_methods: Rate,
    /// Calls as tasks.
    pub creations: Rate,
    /// Ids of tasks that are not found, before the answers are slowed.
    pub failed_lookups: Rate,
}

/// A count in a period; all of it may come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// The count.
    pub count: NonZeroU32,
    /// The period.
    pub period: Duration,
}

/// The largest count: in a period of one second each still has a microsecond.
const MAX_COUNT: u32 = 1_000_000;
const PERIODS: [(&str, Duration); 3] =
    [("s", Duration::from_secs(1)), ("m", Duration::from_mins(1)), ("h", Duration::from_hours(1))];

impl Rate {
    const fn new(count: u32, period: Duration) -> Self {
        let count = match NonZeroU32::new(count) {
            Some(count) => count,
            None => NonZeroU32::MIN,
        };
        Self { count, period }
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            task_methods: Rate::new(300_000, Duration::from_mins(1)),
            creations: Rate::new(60_000, Duration::from_mins(1)),
            failed_lookups: Rate::new(60, Duration::from_mins(1)),
        }
    }
}

pub(super) fn read(mut section: Section<'_>) -> Rates {
    let default = Rates::default();
    let rates = Rates {
        task_methods: section.get("task_methods", rate).unwrap_or(default.task_methods),
        creations: section.get("creations", rate).unwrap_or(default.creations),
        failed_lookups: section.get("failed_lookups", rate).unwrap_or(default.failed_lookups),
    };
    section.finish();
    rates
}

fn rate(value: &DeValue<'_>) -> Result<Rate, String> {
    let parsed = value.as_str().and_then(|text| {
        let (count, unit) = text.split_once('/')?;
        let count = count.trim().parse().ok().filter(|count| (1..=MAX_COUNT).contains(count))?;
        let (_, period) = PERIODS.iter().find(|(name, _)| *name == unit.trim())?;
        Some(Rate::new(count, *period))
    });
    parsed.ok_or_else(|| {
        let found = describe(value);
        format!(
            "expected a rate such as \"100/s\", \"600/m\" or \"1000/h\", from 1 to {MAX_COUNT} in the period, found {found}"
        )
    })
}
