//! The `[tasks]` section, and the same keys again for the tools that match a pattern.

use std::sync::Arc;
use std::time::Duration;

use super::policy::Policy;
use super::reader::{Entry, Section};
use super::values::{count, duration, one_of, size, text};

/// The process-wide part of the `[tasks]` section; the rest of it is in each upstream's [`Policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tasks {
    /// Most tasks of one owner, running and kept.
    pub max_tasks_per_owner: usize,
    /// Most tasks of the process, running and kept.
    pub max_tasks: usize,
    /// Most calls of one owner that run as tasks at once, across tools.
    pub max_running_per_owner: usize,
    /// Most calls of the process that run as tasks at once.
    pub max_running_total: usize,
    /// Most calls of one owner that wait for their turn, across tools.
    pub max_queued_per_owner: usize,
    /// Most calls of the process that wait for their turn.
    pub max_queued_total: usize,
    /// Most bytes of the requests of one owner's calls that wait for their turn.
    pub max_queued_bytes_per_owner: usize,
    /// Most bytes of the requests of all calls that wait for their turn.
    pub max_queued_bytes: usize,
    /// Most requests that wait for one task's result at once.
    pub max_waiters: usize,
    /// Most requests of one owner that wait for results at once.
    pub max_waiters_per_owner: usize,
    /// Most requests of the process that wait for results at once.
    pub max_waiters_total: usize,
    /// Bytes of kept results from which on taskgate takes no new tasks, and starts none that wait.
    pub max_result_bytes: usize,
    /// The same for the results of one owner.
    pub max_result_bytes_per_owner: usize,
}

/// What happens to an upstream's own tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Native {
    /// The upstream's tasks serve the tools that it lists with tasks; taskgate's serve all others.
    Auto,
    /// The upstream keeps its tasks; taskgate adds none.
    Keep,
    /// taskgate hides the upstream's tasks and offers its own.
    Replace,
}

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
    /// Text that the model gets at once, while the task runs.
    pub immediate_response: Option<String>,
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

impl Default for Tasks {
    fn default() -> Self {
        Self {
            max_tasks_per_owner: 1000,
            max_tasks: 100_000,
            max_running_per_owner: 256,
            max_running_total: 1024,
            max_queued_per_owner: 1000,
            max_queued_total: 10_000,
            max_queued_bytes_per_owner: 64 << 20,
            max_queued_bytes: 128 << 20,
            max_waiters: 256,
            max_waiters_per_owner: 1000,
            max_waiters_total: 10_000,
            max_result_bytes: 512 << 20,
            max_result_bytes_per_owner: 128 << 20,
        }
    }
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
            immediate_response: None,
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
const NATIVE: &[(&str, Native)] = &[("auto", Native::Auto), ("keep", Native::Keep), ("replace", Native::Replace)];

const PROCESS: &str = "holds for the whole process, not for a tool; set it in [tasks]";
/// Keys of `[tasks]` that a pattern cannot have.
const ELSEWHERE: &[(&str, &str)] = &[
    ("max_tasks", PROCESS),
    ("max_tasks_per_owner", PROCESS),
    ("max_running_per_owner", PROCESS),
    ("max_running_total", PROCESS),
    ("max_queued_per_owner", PROCESS),
    ("max_queued_total", PROCESS),
    ("max_queued_bytes_per_owner", PROCESS),
    ("max_queued_bytes", PROCESS),
    ("max_waiters", PROCESS),
    ("max_waiters_per_owner", PROCESS),
    ("max_waiters_total", PROCESS),
    ("max_result_bytes", PROCESS),
    ("max_result_bytes_per_owner", PROCESS),
    ("status_notifications", "holds for a whole upstream, not for a tool; set it in [[upstream]]"),
    ("native", "holds for a whole upstream, not for a tool; set it in [[upstream]] or in [tasks]"),
];

/// What `[tasks]` sets: limits of the process, and the defaults for upstreams and tools.
pub(super) struct Defaults {
    pub(super) limits: Tasks,
    pub(super) native: Native,
    pub(super) tool: Tool,
}

pub(super) fn read(mut section: Section<'_>) -> Defaults {
    let tool = tool(&mut section, &Tool::default(), "the default");
    let native = native(&mut section, Native::Auto);
    let limits = limits(&mut section);
    section.finish();
    Defaults { limits, native, tool }
}

fn limits(section: &mut Section<'_>) -> Tasks {
    let default = Tasks::default();
    let mut number = |key, default| section.get(key, count(1)).unwrap_or(default);
    Tasks {
        max_tasks_per_owner: number("max_tasks_per_owner", default.max_tasks_per_owner),
        max_tasks: number("max_tasks", default.max_tasks),
        max_running_per_owner: number("max_running_per_owner", default.max_running_per_owner),
        max_running_total: number("max_running_total", default.max_running_total),
        max_queued_per_owner: number("max_queued_per_owner", default.max_queued_per_owner),
        max_queued_total: number("max_queued_total", default.max_queued_total),
        max_waiters: number("max_waiters", default.max_waiters),
        max_waiters_per_owner: number("max_waiters_per_owner", default.max_waiters_per_owner),
        max_waiters_total: number("max_waiters_total", default.max_waiters_total),
        max_queued_bytes_per_owner: section
            .get("max_queued_bytes_per_owner", size)
            .unwrap_or(default.max_queued_bytes_per_owner),
        max_queued_bytes: section.get("max_queued_bytes", size).unwrap_or(default.max_queued_bytes),
        max_result_bytes: section.get("max_result_bytes", size).unwrap_or(default.max_result_bytes),
        max_result_bytes_per_owner: section
            .get("max_result_bytes_per_owner", size)
            .unwrap_or(default.max_result_bytes_per_owner),
    }
}

/// Reads the key `native`, which `[tasks]` and `[[upstream]]` have.
pub(super) fn native(section: &mut Section<'_>, default: Native) -> Native {
    section.get("native", one_of(NATIVE)).unwrap_or(default)
}

/// Reads the table `[upstream.tools]`: settings by pattern.
pub(super) fn policy(tools: &Section<'_>, default: &Tool) -> Policy {
    let patterns = tools.entries().into_iter().filter_map(|(pattern, entry)| pattern_tool(pattern, entry, default));
    Policy::new(default.clone(), patterns.collect())
}

fn pattern_tool(pattern: &str, entry: Entry<'_>, default: &Tool) -> Option<Tool> {
    if pattern.is_empty() {
        entry.fail("an empty pattern matches no tool");
    }
    let mut section = entry.section()?;
    let tool = tool(&mut section, default, "inherited from [tasks]");
    section.finish_except(ELSEWHERE);
    Some(Tool { pattern: pattern.into(), ..tool })
}

/// Reads the keys that `[tasks]` and each pattern have; `origin` says where the value of an unset one comes from.
fn tool(section: &mut Section<'_>, default: &Tool, origin: &str) -> Tool {
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
        immediate_response: match section.get("immediate_response", text) {
            // With an empty text a tool does without that of [tasks].
            Some(text) => Some(text).filter(|text| !text.is_empty()),
            None => default.immediate_response.clone(),
        },
    }
}
