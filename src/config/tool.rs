//! What holds for the calls of a tool, and the keys that set it.

use std::sync::Arc;
use std::time::Duration;

use toml::de::DeValue;

use super::reader::{Entry, Section, describe};
use super::template::{Template, template};
use super::values::{count, duration, duration_or_off, duration_or_zero, one_of, size, text};

/// What holds for the calls of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// The pattern that these settings come from, `*` for those of `[tasks]`. It is for messages only:
    /// each tool has limits of its own, by its name.
    pub pattern: Arc<str>,
    /// Whether a call may, must or cannot be a task.
    pub support: Support,
    /// How long a task is kept after its end when the client asks for nothing.
    pub ttl: Duration,
    /// The longest ttl that a client gets by asking. At least `ttl`.
    pub max_ttl: Duration,
    /// How often clients are told to poll.
    pub poll_interval: PollInterval,
    /// The shortest interval that `poll_interval = "auto"` tells.
    pub min_poll_interval: Duration,
    /// The longest interval that `poll_interval = "auto"` tells. At least `min_poll_interval`.
    pub max_poll_interval: Duration,
    /// How long one call may run, from its turn on.
    pub timeout: Duration,
    /// How long a question of the server to the client may stay without an answer.
    pub input_timeout: Duration,
    /// Most calls of one tool that run as tasks at once.
    pub max_running: usize,
    /// Most calls of one tool and one owner that wait for their turn; 0 refuses instead of queueing.
    pub max_queued: usize,
    /// Largest result that is kept, in bytes.
    pub max_result: usize,
    /// After how long a call becomes a task whose client leaves that to the server; zero is at once.
    pub task_after: Duration,
    /// Text that the model gets at once, while the task runs.
    pub immediate_response: Option<String>,
    /// How often a plain call with a progress token is sent progress while its server is silent; `None` is never.
    pub heartbeat: Option<Duration>,
    /// After how long a plain call of a client without tasks becomes a job; `None` is never.
    pub job_after: Option<Duration>,
    /// The words that answer a call that has become a job; `None` for those of taskgate.
    pub job_text: Option<Template>,
    /// The words that answer a client that has waited for a job that still runs; `None` for those of taskgate.
    pub job_wait_text: Option<Template>,
}

/// How often clients are told to poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollInterval {
    /// As it fits how long calls of the tool take, how long this one has run, and how many polls there are.
    Auto,
    /// Always this often.
    Fixed(Duration),
}

/// Whether calls of a tool run as tasks; the values of `execution.taskSupport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// Never.
    Forbidden,
    /// When the client asks for it.
    Optional,
    /// Always; a call without a task is refused.
    Required,
}

/// What becomes of plain calls of the tools that have to be tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredTools {
    /// They are taken: the client's revision has no tasks.
    CalledPlainly,
    /// They are refused.
    Refused,
}

impl Default for Tool {
    fn default() -> Self {
        Self {
            pattern: "*".into(),
            support: Support::Optional,
            ttl: Duration::from_mins(15),
            max_ttl: Duration::from_hours(24),
            poll_interval: PollInterval::Auto,
            min_poll_interval: Duration::from_millis(500),
            max_poll_interval: Duration::from_secs(30),
            timeout: Duration::from_hours(1),
            input_timeout: Duration::from_hours(1),
            max_running: 32,
            max_queued: 256,
            max_result: 16 << 20,
            task_after: Duration::from_secs(1),
            immediate_response: None,
            heartbeat: None,
            job_after: None,
            job_text: None,
            job_wait_text: None,
        }
    }
}

impl Tool {
    /// Returns after how long a plain call becomes a job. A job is a task, so a tool without tasks has none.
    #[must_use]
    pub fn becomes_job_after(&self) -> Option<Duration> {
        self.job_after.filter(|_| self.support != Support::Forbidden)
    }

    /// Returns whether a plain call may become a job where that becomes of `required` tools.
    #[must_use]
    pub fn may_become_job(&self, required: RequiredTools) -> bool {
        let is_refused = self.support == Support::Required && required == RequiredTools::Refused;
        self.becomes_job_after().is_some() && !is_refused
    }

    /// Returns the interval that clients are told where it is not known how long a call has run.
    #[must_use]
    pub fn usual_poll_interval(&self) -> Duration {
        match self.poll_interval {
            PollInterval::Fixed(interval) => interval,
            PollInterval::Auto => Duration::from_secs(2).max(self.min_poll_interval).min(self.max_poll_interval),
        }
    }
}

impl Support {
    /// Returns the value as `execution.taskSupport` has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::Optional => "optional",
            Self::Required => "required",
        }
    }
}

const SUPPORT: &[(&str, Support)] =
    &[("forbidden", Support::Forbidden), ("optional", Support::Optional), ("required", Support::Required)];

/// Reads the keys that `[tasks]` and each pattern have; `origin` says where the value of an unset one comes from.
pub(super) fn read(section: &mut Section<'_>, default: &Tool, origin: &str) -> Tool {
    let ttl = Span { short: default.ttl, long: default.max_ttl };
    let ttl = span(section, ["ttl", "max_ttl"], ttl, origin);
    let poll = Span { short: default.min_poll_interval, long: default.max_poll_interval };
    let poll = span(section, ["min_poll_interval", "max_poll_interval"], poll, origin);
    let support = section.get("support", one_of(SUPPORT)).unwrap_or(default.support);
    let (timeout, job_after) = timeout_and_job_after(section, default, support, origin);
    Tool {
        pattern: Arc::clone(&default.pattern),
        support,
        ttl: ttl.short,
        max_ttl: ttl.long,
        poll_interval: section.get("poll_interval", poll_interval).unwrap_or(default.poll_interval),
        min_poll_interval: poll.short,
        max_poll_interval: poll.long,
        timeout,
        input_timeout: section.get("input_timeout", duration).unwrap_or(default.input_timeout),
        max_running: section.get("max_running", count(1)).unwrap_or(default.max_running),
        max_queued: section.get("max_queued", count(0)).unwrap_or(default.max_queued),
        max_result: section.get("max_result", size).unwrap_or(default.max_result),
        task_after: section.get("task_after", duration_or_zero).unwrap_or(default.task_after),
        immediate_response: match section.get("immediate_response", text) {
            // With an empty text a tool does without that of [tasks].
            Some(text) => Some(text).filter(|text| !text.is_empty()),
            None => default.immediate_response.clone(),
        },
        heartbeat: section.get("heartbeat", duration_or_off).unwrap_or(default.heartbeat),
        job_after,
        job_text: section.get("job_text", template).unwrap_or_else(|| default.job_text.clone()),
        job_wait_text: section.get("job_wait_text", template).unwrap_or_else(|| default.job_wait_text.clone()),
    }
}

/// Two durations, of which the first is not longer than the second.
#[derive(Clone, Copy)]
struct Span {
    short: Duration,
    long: Duration,
}

/// Reads two keys whose values make a [`Span`]. `origin` says where the value of an unset one comes from.
fn span(section: &mut Section<'_>, keys: [&'static str; 2], default: Span, origin: &str) -> Span {
    let [short_entry, long_entry] = keys.map(|key| section.entry(key));
    let set = |entry: &Option<Entry<'_>>| entry.as_ref().map(|entry| entry.convert(duration));
    let short = set(&short_entry).unwrap_or(Some(default.short));
    let long = set(&long_entry).unwrap_or(Some(default.long));
    if let (Some(short), Some(long)) = (short, long)
        && short > long
    {
        let [short_key, long_key] = keys;
        let (short, long) = (humantime::format_duration(short), humantime::format_duration(long));
        match (short_entry, long_entry) {
            (Some(entry), Some(_)) => entry.fail(format!("{short} is longer than {long_key}, {long}")),
            (Some(entry), None) => entry.fail(format!("{short} is longer than {long_key}, {long} ({origin})")),
            (None, Some(entry)) => entry.fail(format!("{long} is shorter than {short_key}, {short} ({origin})")),
            // Both come from [tasks], where this was reported.
            (None, None) => {}
        }
    }
    Span { short: short.unwrap_or(default.short), long: long.unwrap_or(default.long) }
}

/// Reads `timeout` and `job_after`, which has to be shorter: a call that becomes a job has run for that long by then.
/// `origin` says where the value of an unset one comes from.
fn timeout_and_job_after(
    section: &mut Section<'_>,
    default: &Tool,
    support: Support,
    origin: &str,
) -> (Duration, Option<Duration>) {
    let [timeout_entry, job_entry] = ["timeout", "job_after"].map(|key| section.entry(key));
    let timeout = timeout_entry.as_ref().map_or(Some(default.timeout), |entry| entry.convert(duration));
    let job_after = job_entry.as_ref().map_or(Some(default.job_after), |entry| entry.convert(duration_or_off));
    if let (Some(limit), Some(Some(after))) = (timeout, job_after)
        && after >= limit
        && support != Support::Forbidden
    {
        let (limit, after) = (humantime::format_duration(limit), humantime::format_duration(after));
        let why = "a call would be cut off as it becomes a job; set a shorter job_after or a longer timeout";
        match (timeout_entry, job_entry) {
            (Some(_), Some(job)) => job.fail(format!("{after} is not shorter than timeout, {limit}: {why}")),
            (None, Some(job)) => job.fail(format!("{after} is not shorter than timeout, {limit} ({origin}): {why}")),
            (Some(timeout), None) => {
                timeout.fail(format!("{limit} is not longer than job_after, {after} ({origin}): {why}"));
            }
            // Both come from [tasks], where this was reported unless `support` is "forbidden" there.
            (None, None) if default.support == Support::Forbidden => {
                let both = format!("job_after, {after}, is not shorter than timeout, {limit} ({origin})");
                section.fail(format!("{both}: {why}"));
            }
            (None, None) => {}
        }
    }
    (timeout.unwrap_or(default.timeout), job_after.unwrap_or(default.job_after))
}

/// Reads `"auto"` or a duration.
fn poll_interval(value: &DeValue<'_>) -> Result<PollInterval, String> {
    match value.as_str() {
        Some("auto") => Ok(PollInterval::Auto),
        Some(text) if humantime::parse_duration(text).is_ok() => duration(value).map(PollInterval::Fixed),
        _ => Err(format!("expected \"auto\" or a duration such as \"2s\", found {}", describe(value))),
    }
}
