//! What one session knows of its server's tools from their lists: their titles, and which names of taskgate's own tools they
//! take.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::excerpt;
use crate::wire::tools::Listed;

/// How many titles one session keeps.
const MAX_TITLES: usize = 1024;
/// Put in front of the names of taskgate's own tools, the first that gives names which the server does not have.
const PREFIXES: [&str; 3] = ["", "taskgate_", "taskgate2_"];

/// The tools for jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobTool {
    /// Waits for jobs.
    Wait,
    /// Cancels a job.
    Cancel,
    /// Lists jobs.
    List,
}

/// The names of the tools for jobs in one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobToolNames {
    prefix: &'static str,
}

/// The tools of a server as its lists have told them.
#[derive(Debug, Default)]
pub struct KnownTools(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Whether a list was seen since the server has said that its tools have changed.
    listed: bool,
    /// Whether taskgate asks for a list of its own accord now.
    asking: bool,
    /// Which of [`PREFIXES`] give a name that the server has.
    taken: [bool; PREFIXES.len()],
    /// The titles by the names.
    titles: HashMap<Box<str>, Box<str>>,
}

impl JobTool {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Wait, Self::Cancel, Self::List];

    const fn base(self) -> &'static str {
        match self {
            Self::Wait => "wait_for_job",
            Self::Cancel => "cancel_job",
            Self::List => "list_jobs",
        }
    }
}

impl JobToolNames {
    /// Returns the name of a tool.
    #[must_use]
    pub fn of(self, tool: JobTool) -> String {
        format!("{}{}", self.prefix, tool.base())
    }

    /// Returns the names of which `name` is one, whatever names the server has.
    #[must_use]
    pub fn with(name: &str) -> Option<Self> {
        PREFIXES.into_iter().map(|prefix| Self { prefix }).find(|names| names.find(name).is_some())
    }

    /// Returns the tool that has a name.
    #[must_use]
    pub fn find(self, name: &str) -> Option<JobTool> {
        let base = name.strip_prefix(self.prefix)?;
        JobTool::ALL.into_iter().find(|tool| tool.base() == base)
    }
}

/// Returns whether a name may be that of a tool for jobs.
#[must_use]
pub fn may_be_job_tool(name: &str) -> bool {
    JobTool::ALL.into_iter().any(|tool| name.ends_with(tool.base()))
}

impl KnownTools {
    /// Takes in a page of the list; `whole`: it is all of it.
    pub fn learn(&self, tools: &[Listed<'_>], whole: bool) {
        let mut known = self.0.lock();
        known.listed = true;
        if whole {
            known.taken = <[bool; PREFIXES.len()]>::default();
            known.titles.clear();
        }
        for tool in tools {
            for (prefix, taken) in PREFIXES.into_iter().zip(&mut known.taken) {
                *taken |= JobToolNames { prefix }.find(&tool.name).is_some();
            }
            if let Some(title) = title(tool)
                && known.titles.len() < MAX_TITLES
            {
                known.titles.insert(excerpt(&tool.name).into(), title);
            }
        }
    }

    /// Forgets which names are taken, because the tools have changed.
    pub(super) fn forget(&self) {
        let mut known = self.0.lock();
        known.listed = false;
        known.taken = <[bool; PREFIXES.len()]>::default();
    }

    /// Returns whether taskgate has to ask for a list: none was seen since the last change, and it does not ask now. From then on
    /// it does, until [`KnownTools::asked`].
    pub(super) fn ask(&self) -> bool {
        let mut known = self.0.lock();
        !known.listed && !std::mem::replace(&mut known.asking, true)
    }

    /// Notes that taskgate has asked.
    pub(super) fn asked(&self) {
        self.0.lock().asking = false;
    }

    /// Returns whether a list was seen since the last change.
    #[must_use]
    pub fn are_listed(&self) -> bool {
        self.0.lock().listed
    }

    /// Returns the names of the tools for jobs; `None` where the server has tools of all these names.
    #[must_use]
    pub fn job_tools(&self) -> Option<JobToolNames> {
        let taken = self.0.lock().taken;
        PREFIXES.into_iter().zip(taken).find(|(_, taken)| !taken).map(|(prefix, _)| JobToolNames { prefix })
    }

    /// Returns the tool for jobs that has a name, and the names of all of them; `None` where the server has a tool of that name.
    /// A server that has told no list is taken to have no such tool, whichever names an earlier list has led to.
    #[must_use]
    pub fn called(&self, name: &str) -> Option<(JobTool, JobToolNames)> {
        let names = if self.are_listed() { self.job_tools() } else { JobToolNames::with(name) }?;
        Some((names.find(name)?, names))
    }

    /// Returns the title of a tool, or else its name.
    #[must_use]
    pub fn title(&self, name: &str) -> Box<str> {
        let name = excerpt(name);
        self.0.lock().titles.get(&*name).cloned().unwrap_or_else(|| name.into())
    }
}

/// Returns the title that a tool has, in either of its places.
fn title(tool: &Listed<'_>) -> Option<Box<str>> {
    let annotations = tool.members.object("annotations");
    let title = tool.members.text("title").or_else(|| annotations.as_ref().and_then(|it| it.text("title")))?;
    (!title.is_empty()).then(|| excerpt(&title).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tools::listed;

    fn learn(known: &KnownTools, tools: &str, whole: bool) {
        known.learn(&listed(&format!(r#"{{"tools":[{tools}]}}"#)).expect("tools"), whole);
    }

    #[test]
    fn a_name_that_the_server_has_gets_a_prefix_until_its_tools_change() {
        let known = KnownTools::default();
        let wait = |known: &KnownTools| known.job_tools().map(|names| names.of(JobTool::Wait));
        learn(&known, r#"{"name":"a"}"#, false);
        assert_eq!(wait(&known).as_deref(), Some("wait_for_job"));
        learn(&known, r#"{"name":"list_jobs"}"#, false);
        learn(&known, r#"{"name":"b"}"#, false);
        assert_eq!(wait(&known).as_deref(), Some("taskgate_wait_for_job"));
        learn(&known, r#"{"name":"taskgate_cancel_job"},{"name":"taskgate2_cancel_job"}"#, false);
        assert_eq!(wait(&known), None);
        known.forget();
        assert!(!known.are_listed());
        learn(&known, r#"{"name":"list_jobs"}"#, true);
        learn(&known, r#"{"name":"a"}"#, true);
        assert_eq!(wait(&known).as_deref(), Some("wait_for_job"));
    }

    #[test]
    fn titles_are_bounded() {
        let known = KnownTools::default();
        for page in 0..20 {
            let tools: Vec<_> =
                (0..100).map(|n| format!(r#"{{"name":"{page}-{n}","title":"{}"}}"#, "x".repeat(600))).collect();
            learn(&known, &tools.join(","), false);
        }
        assert_eq!(known.0.lock().titles.len(), MAX_TITLES);
        assert_eq!(known.title("0-0").len(), 500);
    }

    #[test]
    fn a_tool_is_named_by_its_title_where_it_has_one() {
        let known = KnownTools::default();
        let list = r#"{"name":"a","title":"An A"},{"name":"b","annotations":{"title":"A B"}},{"name":"c"}"#;
        learn(&known, list, true);
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| known.title(name)).each_ref().map(|title| &**title),
            ["An A", "A B", "c", "d"]
        );
    }
}
