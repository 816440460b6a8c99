//! What is wrong with a configuration file, and where.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::str::Utf8Error;

/// What the parser says of a key that is there twice.
const DUPLICATE: &str = "duplicate key";
/// The longest key and the longest message of a mistake, in characters: they repeat what stands in the file.
const LONGEST: usize = 1000;

/// Everything that is wrong with a file, in the order of the text. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

/// One thing that is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name as it was given, or the flag and its variable where the setting is in no file.
    pub file: String,
    /// Line, from 1; 0 where the mistake has no place in a file.
    pub line: usize,
    /// Column in characters, from 1; 0 where the mistake has no place in a file.
    pub column: usize,
    /// The setting, such as `upstream[0].tools."export_*".ttl`; empty where the mistake is in no single setting.
    pub key: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl Mistake {
    /// Returns whether it is about the file `name` as such, which cannot be read then.
    #[must_use]
    pub fn is_of_whole(&self, name: &str) -> bool {
        self.line == 0 && self.file == name
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, mistake) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            mistake.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl Mistakes {
    /// Returns the mistakes, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    pub(super) fn unreadable(file: &str, error: &io::Error) -> Self {
        let message = format!("cannot be read: {error}");
        Self(vec![Mistake { file: file.to_owned(), line: 0, column: 0, key: String::new(), message }])
    }

    pub(super) fn not_utf8(file: &str, bytes: &[u8], error: Utf8Error) -> Self {
        let valid = String::from_utf8_lossy(bytes.get(..error.valid_up_to()).unwrap_or_default());
        let (line, column) = position(&valid, valid.len());
        let message = "not UTF-8 text from here on".to_owned();
        Self(vec![Mistake { file: file.to_owned(), line, column, key: String::new(), message }])
    }
}

/// Gathers the mistakes of one file while it is read.
pub(super) struct Report<'t> {
    file: &'t str,
    text: &'t str,
    /// The folder to which paths in the text are relative.
    pub(super) folder: &'t Path,
    /// Lines that are not TOML. What the parser recovers from them is a guess, and not worth a second mistake.
    broken_lines: Vec<usize>,
    found: RefCell<Vec<Mistake>>,
}

impl<'t> Report<'t> {
    pub(super) fn new(file: &'t str, text: &'t str, folder: &'t Path, syntax: &[toml::de::Error]) -> Self {
        let report = Self { file, text, folder, broken_lines: Vec::new(), found: RefCell::default() };
        for error in syntax {
            let at = error.span().map_or(text.len(), |span| span.start);
            let message = error.message();
            let twice = error.span().and_then(|span| text.get(span)).filter(|_| message == DUPLICATE);
            let twice = twice.map_or_else(String::new, |key| format!(" {key}"));
            report.add(at, "", format!("not valid TOML: {message}{twice}"));
        }
        let mut broken_lines: Vec<_> = report.found.borrow().iter().map(|mistake| mistake.line).collect();
        broken_lines.extend(syntax.iter().flat_map(|error| below_broken_heading(text, error)));
        Self { broken_lines, ..report }
    }

    /// Reports a mistake at byte `at`.
    pub(super) fn add(&self, at: usize, key: &str, message: impl Into<String>) {
        let (line, column) = position(self.text, at);
        if self.broken_lines.contains(&line) {
            return;
        }
        let (file, key, message) = (self.file.to_owned(), short(key.to_owned()), short(message.into()));
        self.found.borrow_mut().push(Mistake { file, line, column, key, message });
    }

    /// Reports a mistake in a setting that no file has; `given` names the flag and the variable that have it.
    pub(super) fn add_override(&self, given: &str, message: impl Into<String>) {
        let (file, key, message) = (given.to_owned(), String::new(), short(message.into()));
        self.found.borrow_mut().push(Mistake { file, line: 0, column: 0, key, message });
    }

    /// Reports that something is missing. Reports nothing where the text is not TOML: it may stand in a broken line.
    pub(super) fn add_absence(&self, at: usize, key: &str, message: impl Into<String>) {
        if self.broken_lines.is_empty() {
            self.add(at, key, message);
        }
    }

    pub(super) fn into_result(self) -> Result<(), Mistakes> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|mistake| (mistake.line, mistake.column));
        if found.is_empty() { Ok(()) } else { Err(Mistakes(found)) }
    }
}

/// Leaves out the middle of a text that is too long: its end may say what to do.
fn short(text: String) -> String {
    let at = |number| text.char_indices().nth(number).map(|(at, _)| at);
    if at(LONGEST).is_none() {
        return text;
    }
    let from_end = text.char_indices().rev().nth(LONGEST / 2 - 1).map_or(0, |(at, _)| at);
    format!("{} … {}", &text[..at(LONGEST / 2).unwrap_or_default()], &text[from_end..])
}

/// Returns the lines below a broken heading, up to the next heading: the parser took their keys for another table's.
fn below_broken_heading(text: &str, error: &toml::de::Error) -> Range<usize> {
    let is_heading = |line: &str| line.trim_start().starts_with('[');
    let (line, _) = position(text, error.span().map_or(text.len(), |span| span.start));
    let mut lines = text.lines().skip(line - 1);
    // A heading that is there twice is whole.
    let broken = lines.next().is_some_and(is_heading) && error.message() != DUPLICATE;
    let below = if broken { lines.take_while(|line| !is_heading(line)).count() } else { 0 };
    line + 1..line + 1 + below
}

/// Returns the line and the column of a byte offset, both from 1; columns count characters.
fn position(text: &str, at: usize) -> (usize, usize) {
    // A byte order mark takes no column.
    let before = text.get(..at).unwrap_or(text).trim_start_matches('\u{feff}');
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_in_the_middle_of_its_mistake() {
        let long = "é".repeat(1 << 20);
        let text = format!("[server]\nlisten = \"{long}\"\n\"{long}\" = 1\n");
        let mistakes = crate::config::parse("config.toml", &text, crate::config::Overrides::default());
        let mistakes = mistakes.expect_err("wrong");
        for mistake in mistakes.iter() {
            assert!(mistake.key.chars().count().max(mistake.message.chars().count()) <= LONGEST + 3);
        }
        let said = mistakes.to_string();
        assert!(said.contains("expected an address such as \"127.0.0.1:8808\", found \"éé"), "{said}");
        assert!(said.contains("é … é") && said.contains("unknown key; the keys here are "), "{said}");
        assert_eq!((short("é".repeat(LONGEST)), short(String::new())), ("é".repeat(LONGEST), String::new()));
    }
}
