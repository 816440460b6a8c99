//! What is known of the run times of each tool.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use moka::{policy::EvictionPolicy, sync::Cache};
use parking_lot::Mutex;

use super::run_times::{RunTimes, UsualTime};
use crate::limit::ToolId;

/// Of how many tools the run times are known. The one that is asked for least recently is evicted first.
const MAX_TOOLS: u64 = 1000;

/// The run times of the calls of one tool, which are shared by those who ask and the calls that end.
pub(super) type SharedRunTimes = Arc<Mutex<RunTimes>>;

/// The run times of the calls of each tool.
#[derive(Debug)]
pub(super) struct ToolTimes {
    /// Made for the first task: an empty cache takes memory too.
    tools: LazyLock<Cache<ToolId, KnownTool>>,
    /// Those of a tool of which nothing is known.
    unknown: SharedRunTimes,
}

/// A tool of which run times are known.
#[derive(Clone, Debug)]
struct KnownTool {
    name: Arc<str>,
    run_times: SharedRunTimes,
}

impl Default for ToolTimes {
    fn default() -> Self {
        let tools = || Cache::builder().max_capacity(MAX_TOOLS).eviction_policy(EvictionPolicy::lru()).build();
        Self { tools: LazyLock::new(tools), unknown: SharedRunTimes::default() }
    }
}

impl ToolTimes {
    /// Returns the run times of a tool.
    pub(super) fn of(&self, tool: &ToolId) -> SharedRunTimes {
        self.tools.get(tool).map_or_else(|| Arc::clone(&self.unknown), |known| known.run_times)
    }

    /// Returns the name of a tool, which all tasks of a known one share.
    pub(super) fn shared_name(&self, tool: &ToolId) -> Arc<str> {
        self.tools.get(tool).map_or_else(|| Arc::clone(&tool.name), |known| known.name)
    }

    /// Notes how long a call took that gave a result.
    pub(super) fn record(&self, tool: &ToolId, took: Duration) {
        self.known(tool).lock().record(took);
    }

    /// Notes how long a call took that failed. A client can invent any name of a tool, and servers answer with an
    /// error. So this counts for a tool that has given a result.
    pub(super) fn record_failure(&self, tool: &ToolId, took: Duration) {
        if let Some(known) = self.tools.get(tool) {
            known.run_times.lock().record(took);
        }
    }

    /// Notes that a call has asked its client something.
    pub(super) fn record_question(&self, tool: &ToolId) {
        self.known(tool).lock().record_question();
    }

    /// Returns how long calls of a tool usually take, if that is known.
    pub(super) fn usual(&self, tool: &ToolId) -> Option<UsualTime> {
        self.tools.get(tool)?.run_times.lock().usual()
    }

    fn known(&self, tool: &ToolId) -> SharedRunTimes {
        let known = || KnownTool { name: Arc::clone(&tool.name), run_times: SharedRunTimes::default() };
        self.tools.get_with_by_ref(tool, known).run_times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolId {
        ToolId { upstream: "/mcp".into(), name: name.into() }
    }

    #[test]
    fn failures_count_only_for_tools_that_have_given_a_result() {
        let times = ToolTimes::default();
        for _ in 0..10 {
            times.record_failure(&tool("invented"), Duration::from_secs(1));
        }
        assert_eq!(times.usual(&tool("invented")), None);
        times.record(&tool("real"), Duration::from_mins(1));
        for _ in 0..10 {
            times.record_failure(&tool("real"), Duration::from_mins(1));
        }
        assert!(matches!(times.usual(&tool("real")), Some(UsualTime::About(_))));
        assert!(!times.unknown.lock().asks(), "nothing is learnt of unknown tools");
    }

    #[test]
    fn tasks_of_a_known_tool_share_its_name() {
        let times = ToolTimes::default();
        let [first, second] = [tool("one"), tool("one")];
        assert!(!Arc::ptr_eq(&times.shared_name(&second), &first.name));
        times.record(&first, Duration::from_secs(1));
        assert!(Arc::ptr_eq(&times.shared_name(&second), &first.name));
    }

    #[test]
    fn tools_are_bounded_and_those_in_use_are_kept() {
        let times = ToolTimes::default();
        for n in 0..2 * MAX_TOOLS {
            times.record(&tool(&n.to_string()), Duration::from_secs(1));
            for _ in 0..4 {
                times.record(&tool("used"), Duration::from_secs(1));
            }
        }
        times.tools.run_pending_tasks();
        assert!(times.tools.entry_count() <= MAX_TOOLS);
        assert!(times.usual(&tool("used")).is_some());
    }
}
