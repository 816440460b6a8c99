//! Which settings hold for which tool.

use std::sync::Arc;

use wildmatch::WildMatchPattern;

use super::tool::{RequiredTools, Tool};

/// `*` is the only wildcard. The library wants a second one, so it gets a character that is never text.
type Pattern = WildMatchPattern<'*', '\u{10FFFF}'>;

/// What holds for each tool of one upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// For the tools that no pattern matches.
    default: Arc<Tool>,
    /// The compiled patterns with their settings, the longest first.
    patterns: Vec<(Pattern, Arc<Tool>)>,
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
        let patterns = tools.into_iter().map(|tool| (Pattern::new(&tool.pattern), Arc::new(tool))).collect();
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
    pub fn tool(&self, name: &str) -> Arc<Tool> {
        Arc::clone(self.find(name))
    }

    fn find(&self, name: &str) -> &Arc<Tool> {
        let exact = self.patterns.iter().find(|(_, tool)| &*tool.pattern == name);
        let found = exact.or_else(|| self.patterns.iter().find(|(pattern, _)| pattern.matches(name)));
        found.map_or(&self.default, |(_, tool)| tool)
    }

    /// Returns the patterns as they are written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.patterns.iter().map(|(_, tool)| &*tool.pattern)
    }

    /// Returns the patterns that match the tool `name`, whether another one wins or not.
    pub fn matching(&self, name: &str) -> impl Iterator<Item = &str> {
        let matching = move |(pattern, tool): &&(Pattern, Arc<Tool>)| *tool.pattern == *name || pattern.matches(name);
        self.patterns.iter().filter(matching).map(|(_, tool)| &*tool.pattern)
    }

    /// Returns the pattern whose settings hold for the tool `name`, if they set more than its support.
    #[must_use]
    pub fn limiting_pattern(&self, name: &str) -> Option<&str> {
        let tool = self.find(name);
        let plain = Tool { pattern: Arc::clone(&tool.pattern), support: tool.support, ..Tool::clone(&self.default) };
        (**tool != plain).then_some(&*tool.pattern)
    }

    /// Returns every pattern with its settings, in the order in which they are tried; the last one is `*`
    /// with the settings of `[tasks]`.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &Tool)> {
        self.patterns.iter().map(|(_, tool)| tool).chain([&self.default]).map(|tool| (&*tool.pattern, &**tool))
    }
}
