//! Which tools a server runs as tasks itself, as its `tools/list` says.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::wire::tools::Listed;

/// How many names one session keeps, and how many bytes. With more of them, each call asks the server.
const MAX_NAMES: usize = 1024;
const MAX_BYTES: usize = 64 * 1024;
/// How many calls of one session may wait for the server's list at once.
pub const MAX_WAITING: usize = 64;

/// Which tools the server runs as tasks, as far as one session knows.
#[derive(Debug)]
pub struct NativeTools {
    known: Mutex<Known>,
    /// Held by the call that asks the server.
    pub asking: tokio::sync::Mutex<()>,
    /// One permit for each call that may wait for the server's list.
    pub waiting: Semaphore,
}

#[derive(Debug, Default)]
struct Known {
    /// How often the server has said that its tools have changed.
    changes: u64,
    /// Whether the whole list has been seen, so that every other tool has no tasks of the server.
    whole: bool,
    /// The tools that the server runs as tasks.
    native: ToolNames,
}

/// Names of tools, as many as may be kept.
#[derive(Debug, Default)]
pub struct ToolNames {
    kept: HashSet<Box<str>>,
    bytes: usize,
    /// Whether there were too many, so that none is kept.
    over: bool,
}

impl ToolNames {
    /// Adds the tools that the server runs as tasks.
    pub fn add_native(&mut self, tools: &[Listed<'_>]) {
        tools.iter().filter(|tool| tool.native).for_each(|tool| self.add(&tool.name));
    }

    fn add(&mut self, name: &str) {
        if self.over || !self.kept.insert(name.into()) {
            return;
        }
        self.bytes += name.len();
        if self.kept.len() > MAX_NAMES || self.bytes > MAX_BYTES {
            *self = Self { over: true, ..Self::default() };
        }
    }

    fn remove(&mut self, name: &str) {
        if self.kept.remove(name) {
            self.bytes -= name.len();
        }
    }
}

impl Default for NativeTools {
    fn default() -> Self {
        Self { known: Mutex::default(), asking: tokio::sync::Mutex::default(), waiting: Semaphore::new(MAX_WAITING) }
    }
}

impl NativeTools {
    /// Returns whether the server runs a tool as a task; `None` if that is not known.
    #[must_use]
    pub fn has(&self, name: &str) -> Option<bool> {
        let known = self.known.lock();
        if known.native.kept.contains(name) { Some(true) } else { known.whole.then_some(false) }
    }

    /// Returns the count of changes, which [`NativeTools::learn`] needs from before the list was asked for.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.known.lock().changes
    }

    /// Forgets everything, because the tools have changed.
    pub(super) fn forget(&self) {
        let mut known = self.known.lock();
        *known = Known { changes: known.changes + 1, ..Known::default() };
    }

    /// Takes in a page of the list. Ignores one that was asked for before the last change.
    pub fn learn(&self, asked_at: u64, tools: &[Listed<'_>]) {
        let mut known = self.known.lock();
        if known.changes != asked_at {
            return;
        }
        for tool in tools {
            if tool.native { known.native.add(&tool.name) } else { known.native.remove(&tool.name) }
        }
        known.whole &= !known.native.over;
    }

    /// Takes in the names of all tools that the server runs as tasks.
    pub fn learn_all(&self, asked_at: u64, native: ToolNames) {
        let mut known = self.known.lock();
        if known.changes == asked_at {
            *known = Known { changes: asked_at, whole: !native.over, native };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tools::listed;

    fn learn(tools: &NativeTools, asked_at: u64, list: &str, whole: bool) {
        let list = listed(list).expect("tools");
        if !whole {
            return tools.learn(asked_at, &list);
        }
        let mut names = ToolNames::default();
        names.add_native(&list);
        tools.learn_all(asked_at, names);
    }

    const LIST: &str = r#"{"tools":[{"name":"own","execution":{"taskSupport":"optional"}},{"name":"other"},
        {"name":"must","execution":{"taskSupport":"required"}},{"name":"no","execution":{"taskSupport":"forbidden"}}]}"#;

    #[test]
    fn a_page_of_the_list_says_nothing_about_other_tools() {
        let tools = NativeTools::default();
        learn(&tools, 0, LIST, false);
        assert_eq!(["own", "must", "other", "no"].map(|name| tools.has(name)), [Some(true), Some(true), None, None]);
        learn(&tools, 0, LIST, true);
        assert_eq!(["own", "other", "no"].map(|name| tools.has(name)), [Some(true), Some(false), Some(false)]);
        learn(&tools, 0, r#"{"tools":[{"name":"own"}]}"#, false);
        assert_eq!(tools.has("own"), Some(false));
    }

    #[test]
    fn a_list_that_was_asked_for_before_a_change_is_ignored() {
        let tools = NativeTools::default();
        let before = tools.changes();
        learn(&tools, before, LIST, true);
        tools.forget();
        assert_eq!(tools.has("own"), None);
        learn(&tools, before, LIST, true);
        assert_eq!(tools.has("own"), None);
        learn(&tools, tools.changes(), LIST, true);
        assert_eq!(tools.has("own"), Some(true));
    }

    #[test]
    fn names_are_bounded_in_number_and_bytes_and_beyond_that_none_is_known() {
        for (count, length) in [(MAX_NAMES + 1, 4), (70, 1024)] {
            let tools = NativeTools::default();
            let tool = |n| format!(r#"{{"name":"{n:0>length$}","execution":{{"taskSupport":"optional"}}}}"#);
            let list: Vec<_> = (0..count).map(tool).collect();
            learn(&tools, 0, &format!(r#"{{"tools":[{}]}}"#, list.join(",")), true);
            assert_eq!(tools.has("own"), None);
            assert!(tools.known.lock().native.kept.is_empty());
        }
    }
}
