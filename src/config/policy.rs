//! Which settings hold for which tool.

use std::sync::Arc;

use super::tool::{RequiredTools, Tool};

/// The longest name of which more than the beginning and the end is compared with patterns, in bytes. Revision 2025-11-25
/// ("Tools", "Tool Names") has names of 128 characters at most, and a client may send what fills its request.
const LONGEST_NAME: usize = 4 << 10;

/// What holds for each tool of one upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// For the tools that no pattern matches.
    default: Arc<Tool>,
    /// The settings for each pattern, the longest pattern first.
    patterns: Vec<Arc<Tool>>,
    /// See [`Policy::has_heartbeats`].
    heartbeats: bool,
    /// Whether plain calls of a tool may become jobs in some revision.
    jobs: bool,
    /// Whether those of a tool may that has not to be a task.
    optional_jobs: bool,
}

impl Policy {
    /// Makes a policy of the settings for each pattern, and the `default` for all other tools.
    pub(super) fn new(default: Tool, mut tools: Vec<Tool>) -> Self {
        // Patterns of the same length are ordered by their text, so that the file's order never matters.
        tools.sort_by(|a, b| {
            b.pattern.chars().count().cmp(&a.pattern.chars().count()).then_with(|| a.pattern.cmp(&b.pattern))
        });
        let all = || tools.iter().chain([&default]);
        let heartbeats = all().any(|tool| tool.heartbeat.is_some());
        let has_jobs = |required| all().any(|tool| tool.may_become_job(required));
        let (jobs, optional_jobs) = (has_jobs(RequiredTools::CalledPlainly), has_jobs(RequiredTools::Refused));
        let patterns = tools.into_iter().map(Arc::new).collect();
        Self { default: Arc::new(default), patterns, heartbeats, jobs, optional_jobs }
    }

    /// Returns whether plain calls of a tool may be sent heartbeats.
    #[must_use]
    pub fn has_heartbeats(&self) -> bool {
        self.heartbeats
    }

    /// Returns whether plain calls of a tool are helped in either way.
    #[must_use]
    pub fn helps_hosts(&self) -> bool {
        self.heartbeats || self.jobs
    }

    /// Returns whether plain calls of a tool may become jobs where that becomes of `required` tools.
    #[must_use]
    pub fn has_jobs(&self, required: RequiredTools) -> bool {
        match required {
            RequiredTools::CalledPlainly => self.jobs,
            RequiredTools::Refused => self.optional_jobs,
        }
    }

    /// Returns the settings for the tool `name`: those under its exact name, else under the longest pattern
    /// that matches, else those of `[tasks]`. A call keeps the settings that it began with.
    #[must_use]
    pub fn tool(&self, name: &str) -> &Arc<Tool> {
        let exact = self.patterns.iter().find(|tool| &*tool.pattern == name);
        let found = exact.or_else(|| self.patterns.iter().find(|tool| matches(&tool.pattern, name)));
        found.unwrap_or(&self.default)
    }

    /// Returns the patterns as they are written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|tool| &*tool.pattern)
    }

    /// Returns the patterns that match the tool `name`, whether another one wins or not.
    pub fn matching(&self, name: &str) -> impl Iterator<Item = &str> {
        self.patterns().filter(move |pattern| *pattern == name || matches(pattern, name))
    }

    /// Returns the pattern whose settings hold for the tool `name`, if they set more than its support.
    #[must_use]
    pub fn limiting_pattern(&self, name: &str) -> Option<&str> {
        let tool = self.tool(name);
        let plain = Tool { pattern: Arc::clone(&tool.pattern), support: tool.support, ..Tool::clone(&self.default) };
        (**tool != plain).then_some(&*tool.pattern)
    }

    /// Returns every pattern with its settings, in the order in which they are tried; the last one is `*`
    /// with the settings of `[tasks]`.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &Tool)> {
        self.patterns.iter().chain([&self.default]).map(|tool| (&*tool.pattern, &**tool))
    }
}

/// Returns whether a name matches a pattern, in which each `*` stands for any text. Every piece between two of them is
/// looked for once, from the left: where it stands first, it leaves the most for those behind it.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let between = name.strip_prefix(first).and_then(|name| name.strip_suffix(last));
    let Some(mut left) = between.filter(|_| name.len() <= LONGEST_NAME || middle.bytes().all(|byte| byte == b'*'))
    else {
        return false;
    };
    middle.split('*').all(|piece| {
        let found = left.split_once(piece).map(|(_, after)| after);
        left = found.unwrap_or(left);
        found.is_some()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Compares as slowly as it can be done.
    fn slowly(pattern: &[u8], name: &[u8]) -> bool {
        match pattern {
            [] => name.is_empty(),
            [b'*', rest @ ..] => (0..=name.len()).any(|at| slowly(rest, &name[at..])),
            [byte, rest @ ..] => name.first() == Some(byte) && slowly(rest, &name[1..]),
        }
    }

    proptest! {
        #[test]
        fn a_star_stands_for_any_text(pattern in "[ab*]{0,7}", name in "[ab]{0,9}") {
            prop_assert_eq!(matches(&pattern, &name), slowly(pattern.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn of_a_name_beyond_4_kib_only_the_beginning_and_the_end_are_compared() {
        let name = |length: usize| format!("get{}all", "x".repeat(length - 6));
        for (pattern, longest, longer) in [
            ("*", true, true),
            ("**", true, true),
            ("get*", true, true),
            ("get*all", true, true),
            ("*x*", true, false),
            ("get*x*", true, false),
            ("set*", false, false),
        ] {
            assert_eq!(matches(pattern, &name(LONGEST_NAME)), longest, "{pattern}");
            assert_eq!(matches(pattern, &name(LONGEST_NAME + 1)), longer, "{pattern}");
        }
    }
}
