//! The last words of a child: what it wrote to stderr before its end, and which line of that explains the end.

use std::{collections::VecDeque, fmt};

use crate::wire::excerpt;

/// How many lines are kept.
const LINES: usize = 10;
/// Parts of lines that look like errors, in lower case.
const SIGNS: [&str; 9] =
    ["error", "exception", "panicked", "fatal", "not found", "cannot", "failed", "denied", "no such"];
/// How package managers begin each line that explains why a server could not be started.
const PREFIXES: [&str; 2] = ["npm error", "npm ERR!"];

/// The last lines, each cut to a length, without the frames of stack traces.
#[derive(Debug, Default)]
pub(super) struct LastWords(VecDeque<Box<str>>);

impl LastWords {
    /// Takes in a line.
    pub(super) fn hear(&mut self, line: &str) {
        if line.starts_with("at ") {
            return;
        }
        if self.0.len() == LINES {
            self.0.pop_front();
        }
        self.0.push_back(excerpt(line).into());
    }

    /// Returns how a child has ended, with the line that explains it.
    pub(super) fn behind(&self, end: impl fmt::Display) -> String {
        self.telling().map_or_else(|| end.to_string(), |words| format!("{end}; its last words: {words}"))
    }

    /// Returns the line that explains the end: the last one that looks like an error, or else the last one with a
    /// letter or a digit.
    pub(super) fn telling(&self) -> Option<String> {
        let error = self.0.iter().rposition(|line| looks_like_an_error(line));
        let at = error.or_else(|| self.0.iter().rposition(|line| line.contains(char::is_alphanumeric)))?;
        let line = &self.0[at];
        // As in Rust's "thread 'main' panicked at src/main.rs:1:5:".
        match self.0.get(at + 1).filter(|_| line.ends_with(':')) {
            Some(next) => Some(excerpt(&format!("{line} {next}")).into_owned()),
            None => Some(line.to_string()),
        }
    }
}

fn looks_like_an_error(line: &str) -> bool {
    let line = PREFIXES.iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line).to_lowercase();
    SIGNS.iter().any(|sign| line.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn telling(text: &str) -> Option<String> {
        let mut words = LastWords::default();
        // As they are read: trimmed, and without empty lines.
        text.lines().map(str::trim).filter(|line| !line.is_empty()).for_each(|line| words.hear(line));
        words.telling()
    }

    #[test]
    fn the_last_line_that_looks_like_an_error_explains_the_end() {
        let frames = "    at Module._compile (node:internal/modules/cjs/loader:1554:14)\n".repeat(12);
        let node = format!(
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/srv/index.js'\n\
             {frames} {{\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}}\n\nNode.js v20.20.2\n"
        );
        let python = "Traceback (most recent call last):\n  File \"s.py\", line 1, in <module>\n    import mcp\n\
            ModuleNotFoundError: No module named 'mcp'\n+-----------+\n";
        let rust = "thread 'main' panicked at src/main.rs:2:5:\nno licence\n\
            note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
        let npm = "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/x - Not found\n\
            npm error 404 tarball, folder, http url, or git folder.\n\
            npm error A complete log of this run can be found in: /home/ann/.npm/_logs/1.log";
        for (text, line) in [
            (&*node, "Error: Cannot find module '/srv/index.js'"),
            (python, "ModuleNotFoundError: No module named 'mcp'"),
            (rust, "thread 'main' panicked at src/main.rs:2:5: no licence"),
            (npm, "npm error 404 Not Found - GET https://registry.example/x - Not found"),
            ("sh: 1: index-server: not found", "sh: 1: index-server: not found"),
        ] {
            assert_eq!(telling(text).as_deref(), Some(line));
        }
    }

    #[test]
    fn without_an_error_the_last_line_that_is_more_than_punctuation_explains_the_end() {
        assert_eq!(telling("first\nthe disk is on fire\n+------+\n...").as_deref(), Some("the disk is on fire"));
        assert_eq!(telling("+-----+"), None);
        assert_eq!(telling(""), None);
    }

    #[test]
    fn ten_lines_are_kept_and_an_error_before_them_is_forgotten() {
        let later = |count: usize| format!("Error: long ago\n{}", "all is well\n".repeat(count));
        assert_eq!(telling(&later(LINES - 1)).as_deref(), Some("Error: long ago"));
        assert_eq!(telling(&later(LINES)).as_deref(), Some("all is well"));
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut words = LastWords::default();
        words.hear(&"x".repeat(10_000));
        assert_eq!(words.telling().map(|line| line.len()), Some(500));
    }
}
