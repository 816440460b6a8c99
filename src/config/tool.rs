//! What holds for the calls of a tool, and the keys that set it.

use std::sync::Arc;
use std::time::Duration;

use super::reader::Section;
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
    pub poll_interval: Duration,
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

impl Default for Tool {
    fn default() -> Self {
        Self {
            pattern: "*".into(),
            support: Support::Optional,
            ttl: Duration::from_mins(15),
            max_ttl: Duration::from_hours(24),
            poll_interval: Duration::from_secs(2),
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
    let ttl_entry = section.entry("ttl");
    let max_ttl_entry = section.entry("max_ttl");
    let set_ttl = ttl_entry.as_ref().map(|entry| entry.convert(duration));
    let set_max_ttl = max_ttl_entry.as_ref().map(|entry| entry.convert(duration));
    let ttl = set_ttl.unwrap_or(Some(default.ttl));
    let max_ttl = set_max_ttl.unwrap_or(Some(default.max_ttl));
    if let (Some(ttl), Some(max_ttl)) = (ttl, max_ttl)
        && ttl > max_ttl
    {
        let (ttl, max_ttl) = (humantime::format_duration(ttl), humantime::format_duration(max_ttl));
        match (ttl_entry, max_ttl_entry) {
            (Some(entry), Some(_)) => entry.fail(format!("{ttl} is longer than max_ttl, {max_ttl}")),
            (Some(entry), None) => entry.fail(format!("{ttl} is longer than max_ttl, {max_ttl} ({origin})")),
            (None, Some(entry)) => entry.fail(format!("{max_ttl} is shorter than ttl, {ttl} ({origin})")),
            // Both come from [tasks], where this was reported.
            (None, None) => {}
        }
    }
    Tool {
        pattern: Arc::clone(&default.pattern),
        support: section.get("support", one_of(SUPPORT)).unwrap_or(default.support),
        ttl: ttl.unwrap_or(default.ttl),
        max_ttl: max_ttl.unwrap_or(default.max_ttl),
        poll_interval: section.get("poll_interval", duration).unwrap_or(default.poll_interval),
        timeout: section.get("timeout", duration).unwrap_or(default.timeout),
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
        job_after: section.get("job_after", duration_or_off).unwrap_or(default.job_after),
        job_text: section.get("job_text", template).unwrap_or_else(|| default.job_text.clone()),
        job_wait_text: section.get("job_wait_text", template).unwrap_or_else(|| default.job_wait_text.clone()),
    }
}
