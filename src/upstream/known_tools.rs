//! What one session knows of its server's tools from their lists: their titles, and which names of taskgate's own tools
//! they take.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::wire::{excerpt, tools::Listed};

/// How many titles one session keeps.
const MAX_TITLES: usize = 1024;
/// What may stand in front of the names of taskgate's own tools. The first one is used that gives no name which the
/// server has.
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

/// A request for a page of a list.
#[derive(Clone, Copy, Debug)]
pub struct ListRequest {
    /// It has no cursor.
    pub first: bool,
    /// [`KnownTools::changes`] before it was sent.
    pub asked_at: u64,
}

/// Which part of a list a page is.
#[derive(Clone, Copy, Debug)]
pub struct ListPage {
    /// What has asked for it.
    pub request: ListRequest,
    /// None follows.
    pub last: bool,
}

#[derive(Debug, Default)]
struct Known {
    /// How often the server has said that its tools have changed.
    changes: u64,
    /// Whether the first page of a list was seen since the server has said that its tools have changed.
    begun: bool,
    /// Whether the last page was seen after the first: without that it is not known which names are free.
    listed: bool,
    /// Whether taskgate asks for a list of its own accord now.
    asking: bool,
    /// Which of [`PREFIXES`] give a name that the server has.
    taken: [bool; PREFIXES.len()],
    /// The titles by the names.
    titles: HashMap<Box<str>, Box<str>>,
}

impl JobTool {
    /// All tools for jobs.
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
    JobToolNames::with(name).is_some()
}

impl KnownTools {
    /// Returns the count of changes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.lock().changes
    }

    /// Takes in a page of the list. Ignores one that was asked for before the last change.
    pub fn learn(&self, tools: &[Listed<'_>], page: ListPage) {
        let titles: Vec<_> = tools.iter().filter_map(|tool| Some((excerpt(&tool.name), title(tool)?))).collect();
        let mut known = self.0.lock();
        let ListRequest { first, asked_at } = page.request;
        if asked_at != known.changes {
            return;
        }
        known.begun |= first;
        known.listed |= known.begun && page.last;
        if first && page.last {
            known.taken = <[bool; PREFIXES.len()]>::default();
            known.titles.clear();
        }
        for tool in tools {
            for (prefix, taken) in PREFIXES.into_iter().zip(&mut known.taken) {
                *taken |= JobToolNames { prefix }.find(&tool.name).is_some();
            }
        }
        for (name, title) in titles {
            if known.titles.len() < MAX_TITLES {
                known.titles.insert(name.into(), title);
            }
        }
    }

    /// Forgets which names are taken, because the tools have changed.
    pub(super) fn forget(&self) {
        let mut known = self.0.lock();
        known.changes += 1;
        (known.begun, known.listed) = (false, false);
        known.taken = <[bool; PREFIXES.len()]>::default();
    }

    /// Returns whether taskgate has to ask for a list: none was seen to its end since the last change, and it does not
    /// ask now. From then on it does, until [`KnownTools::asked`].
    pub(super) fn ask(&self) -> bool {
        let mut known = self.0.lock();
        !known.listed && !std::mem::replace(&mut known.asking, true)
    }

    /// Notes that taskgate has asked.
    pub(super) fn asked(&self) {
        self.0.lock().asking = false;
    }

    /// Returns whether a list was seen to its end since the last change.
    #[must_use]
    pub fn are_listed(&self) -> bool {
        self.0.lock().listed
    }

    /// Returns the names of the tools for jobs; `None` where the server has tools of all these names.
    #[must_use]
    pub fn job_tools(&self) -> Option<JobToolNames> {
        self.job_tools_beside(&[])
    }

    /// Returns the names of the tools for jobs in a list that ends with these tools, also where that was not learnt.
    #[must_use]
    pub fn job_tools_beside(&self, page: &[Listed<'_>]) -> Option<JobToolNames> {
        let taken = self.0.lock().taken;
        let free = PREFIXES.into_iter().zip(taken).filter(|(_, taken)| !taken);
        let mut all = free.map(|(prefix, _)| JobToolNames { prefix });
        all.find(|names| !page.iter().any(|tool| names.find(&tool.name).is_some()))
    }

    /// Returns the tool for jobs that has a name, and the names of all of them; `None` where the server has a tool of
    /// that name. A server that has not told its list to the end is taken to have no more such tools, whichever names
    /// an earlier list has led to.
    #[must_use]
    pub fn called(&self, name: &str) -> Option<(JobTool, JobToolNames)> {
        let Known { listed, taken, .. } = *self.0.lock();
        let free = PREFIXES.into_iter().zip(taken).filter(|(_, taken)| !taken);
        let mut all = free.map(|(prefix, _)| JobToolNames { prefix });
        let names = if listed { all.next() } else { all.find(|names| names.find(name).is_some()) }?;
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

    const WHOLE: Part = Part { first: true, last: true };
    const FIRST: Part = Part { first: true, last: false };
    const NEXT: Part = Part { first: false, last: false };
    const LAST: Part = Part { first: false, last: true };

    #[derive(Clone, Copy, Debug)]
    struct Part {
        first: bool,
        last: bool,
    }

    fn learn(known: &KnownTools, tools: &str, part: Part) {
        learn_late(known, known.changes(), tools, part);
    }

    fn learn_late(known: &KnownTools, asked_at: u64, tools: &str, Part { first, last }: Part) {
        let page = ListPage { request: ListRequest { first, asked_at }, last };
        known.learn(&listed(&format!(r#"{{"tools":[{tools}]}}"#)).expect("tools"), page);
    }

    #[test]
    fn a_list_that_was_asked_for_before_a_change_is_ignored() {
        let known = KnownTools::default();
        let before = known.changes();
        known.forget();
        learn_late(&known, before, r#"{"name":"wait_for_job","title":"Old"}"#, WHOLE);
        assert!(!known.are_listed() && known.called("wait_for_job").is_some());
        let page = listed(r#"{"tools":[{"name":"wait_for_job"}]}"#).expect("tools");
        let beside = known.job_tools_beside(&page).map(|names| names.of(JobTool::Wait));
        assert_eq!(beside.as_deref(), Some("taskgate_wait_for_job"), "its page has no name twice");
        assert_eq!(&*known.title("wait_for_job"), "wait_for_job");
        learn(&known, r#"{"name":"list_jobs"}"#, FIRST);
        learn_late(&known, before, "", LAST);
        assert!(!known.are_listed(), "it is the end of another list");
        learn(&known, "", LAST);
        assert!(known.are_listed() && known.called("list_jobs").is_none());
    }

    #[test]
    fn a_name_that_the_server_has_gets_a_prefix_until_its_tools_change() {
        let known = KnownTools::default();
        let wait = |known: &KnownTools| known.job_tools().map(|names| names.of(JobTool::Wait));
        learn(&known, r#"{"name":"a"}"#, FIRST);
        assert_eq!(wait(&known).as_deref(), Some("wait_for_job"));
        learn(&known, r#"{"name":"list_jobs"}"#, NEXT);
        learn(&known, r#"{"name":"b"}"#, LAST);
        assert_eq!(wait(&known).as_deref(), Some("taskgate_wait_for_job"));
        learn(&known, r#"{"name":"taskgate_cancel_job"},{"name":"taskgate2_cancel_job"}"#, NEXT);
        assert_eq!(wait(&known), None);
        known.forget();
        assert!(!known.are_listed());
        learn(&known, r#"{"name":"list_jobs"}"#, WHOLE);
        learn(&known, r#"{"name":"a"}"#, WHOLE);
        assert_eq!(wait(&known).as_deref(), Some("wait_for_job"));
    }

    #[test]
    fn a_name_is_taken_for_ours_by_a_list_only_when_that_was_seen_to_its_end() {
        let known = KnownTools::default();
        for (tools, page, listed) in [("", LAST, false), (r#"{"name":"a"}"#, FIRST, false), ("", NEXT, false)] {
            learn(&known, tools, page);
            assert_eq!(known.are_listed(), listed, "{page:?}");
        }
        learn(&known, r#"{"name":"wait_for_job"}"#, NEXT);
        assert_eq!(known.called("wait_for_job"), None, "what was told holds at once");
        assert!(known.called("taskgate_wait_for_job").is_some());
        learn(&known, "", LAST);
        assert!(known.are_listed());
        assert!(!may_be_job_tool("my_list_jobs"), "it has no name that taskgate gives");
    }

    #[test]
    fn titles_are_bounded() {
        let known = KnownTools::default();
        for page in 0..20 {
            let tools: Vec<_> =
                (0..100).map(|n| format!(r#"{{"name":"{page}-{n}","title":"{}"}}"#, "x".repeat(600))).collect();
            learn(&known, &tools.join(","), NEXT);
        }
        assert_eq!(known.0.lock().titles.len(), MAX_TITLES);
        assert_eq!(known.title("0-0").len(), 500);
    }

    #[test]
    fn a_tool_is_named_by_its_title_where_it_has_one() {
        let known = KnownTools::default();
        let list = r#"{"name":"a","title":"An A"},{"name":"b","annotations":{"title":"A B"}},{"name":"c"}"#;
        learn(&known, list, WHOLE);
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| known.title(name)).each_ref().map(|title| &**title),
            ["An A", "A B", "c", "d"]
        );
    }
}
