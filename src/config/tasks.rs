//! The `[tasks]` section, and the same keys again for the tools that match a pattern.

use super::policy::Policy;
use super::reader::{Entry, Section};
use super::tool::{self, Tool};
use super::values::{count, one_of, size};

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
    let tool = tool::read(&mut section, &Tool::default(), "the default");
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
    let tool = tool::read(&mut section, default, "inherited from [tasks]");
    section.finish_except(ELSEWHERE);
    Some(Tool { pattern: pattern.into(), ..tool })
}
