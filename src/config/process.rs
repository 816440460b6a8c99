//! The keys of `[[upstream]]` that say how taskgate starts the processes of a stdio server.

use std::path::{Path, PathBuf};

use super::reader::{Entry, Section};
use super::values::{count, flag, text, text_without_nul};

/// How taskgate starts the processes of a stdio server.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Variables that a process gets besides taskgate's own environment.
    pub env: Vec<(String, String)>,
    /// The directory that it starts in; taskgate's own if unset.
    pub cwd: Option<PathBuf>,
    /// Whether all sessions use one process; otherwise each has its own.
    pub shared: bool,
    /// Most processes at once, those that are about to end included.
    pub max_children: usize,
}

impl Default for Process {
    fn default() -> Self {
        Self { env: Vec::new(), cwd: None, shared: false, max_children: 100 }
    }
}

/// Reads the keys. Each of them is a mistake where `http` says that the server is no process.
pub(super) fn read(section: &mut Section<'_>, http: bool) -> Process {
    let default = Process::default();
    let (env, cwd) = (section.entry("env"), section.entry("cwd"));
    let (shared, max_children) = (section.entry("shared"), section.entry("max_children"));
    if http {
        for entry in [env, cwd, shared, max_children].iter().flatten() {
            entry.fail("set for a server with a url; only a command has processes");
        }
        return default;
    }
    Process {
        env: env.map(variables).unwrap_or_default(),
        cwd: cwd.and_then(|entry| entry.convert(|value| folder(&entry.path(&text(value)?)))),
        shared: shared.and_then(|entry| entry.convert(flag)).unwrap_or(default.shared),
        max_children: max_children.and_then(|entry| entry.convert(count(1))).unwrap_or(default.max_children),
    }
}

fn variables(entry: Entry<'_>) -> Vec<(String, String)> {
    let Some(section) = entry.section() else { return Vec::new() };
    let variable = |(name, entry): (&str, Entry<'_>)| {
        if name.is_empty() || name.contains(['=', '\0']) {
            entry.fail("an environment variable's name is not empty and has no \"=\" and no NUL in it");
        }
        Some((name.to_owned(), entry.convert(text_without_nul)?))
    };
    section.entries().into_iter().filter_map(variable).collect()
}

fn folder(path: &Path) -> Result<PathBuf, String> {
    let problem = match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(path.to_owned()),
        Ok(_) => "is not a directory".to_owned(),
        Err(error) => format!("cannot be used: {error}"),
    };
    Err(format!("expected an existing directory, but \"{}\" {problem}", path.display()))
}
