//! Walks the TOML tree by hand, so that each value keeps its place and every mistake is reported.

use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::mistakes::Report;
use super::nearest::did_you_mean;

/// A table whose keys are read one by one. [`Section::finish`] reports those that were not read as unknown.
pub(super) struct Section<'t> {
    report: &'t Report<'t>,
    /// `None` where the file has no such table: then every key is unset.
    table: Option<&'t DeTable<'t>>,
    /// The place at which a mistake of the whole table is shown.
    at: usize,
    path: String,
    known: Vec<&'static str>,
}

/// One value, with its place and its dotted name.
pub(super) struct Entry<'t> {
    report: &'t Report<'t>,
    value: &'t DeValue<'t>,
    at: usize,
    key: String,
}

impl<'t> Section<'t> {
    /// Returns the section that is the whole file.
    pub(super) fn root(report: &'t Report<'t>, table: &'t DeTable<'t>) -> Self {
        Self { report, table: Some(table), at: 0, path: String::new(), known: Vec::new() }
    }

    /// Returns the value of `key`, which counts as known from now on.
    pub(super) fn entry(&mut self, key: &'static str) -> Option<Entry<'t>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let value = self.table?.get(key)?;
        Some(Entry::new(self.report, value, self.key(key)))
    }

    /// Returns the value of `key` as `convert` understands it; `None` when it is unset or wrong.
    pub(super) fn get<T>(
        &mut self,
        key: &'static str,
        convert: impl FnOnce(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<T> {
        self.entry(key)?.convert(convert)
    }

    /// Returns the items of the array `key` as `convert` understands them, without those that are wrong.
    pub(super) fn list<T>(
        &mut self,
        key: &'static str,
        convert: impl Fn(&DeValue<'_>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let items = self.entry(key)?.list("")?;
        Some(items.iter().filter_map(|item| item.convert(&convert)).collect())
    }

    /// Returns the table `key`; an empty one when it is unset or not a table.
    pub(super) fn table(&mut self, key: &'static str) -> Self {
        let found = self.entry(key).and_then(Entry::section);
        found.unwrap_or_else(|| Self {
            report: self.report,
            table: None,
            at: self.at,
            path: self.key(key),
            known: Vec::new(),
        })
    }

    /// Returns every key with its value, for a table whose keys are the operator's own.
    pub(super) fn entries(&self) -> Vec<(&'t str, Entry<'t>)> {
        let pairs = self.table.into_iter().flat_map(DeTable::iter);
        pairs.map(|(key, value)| (&**key.get_ref(), Entry::new(self.report, value, self.key(key.get_ref())))).collect()
    }

    /// Reports that `key` is missing from this table.
    pub(super) fn missing(&self, key: &str, message: impl Into<String>) {
        self.report.add_absence(self.at, &self.key(key), message);
    }

    /// Reports a mistake of the whole table.
    pub(super) fn fail(&self, message: impl Into<String>) {
        self.report.add(self.at, &self.path, message);
    }

    /// Reports a mistake in a setting that wins over the file; `given` names its flag and its variable.
    pub(super) fn fail_override(&self, given: &str, message: impl Into<String>) {
        self.report.add_override(given, message);
    }

    /// Reports every key that was not read.
    pub(super) fn finish(self) {
        self.finish_except(&[]);
    }

    /// Reports every key that was not read. Those that belong `elsewhere` have a message of their own.
    pub(super) fn finish_except(self, elsewhere: &[(&str, &str)]) {
        for (key, _) in self.table.into_iter().flat_map(DeTable::iter) {
            let (name, at) = (&**key.get_ref(), key.span().start);
            if self.known.contains(&name) {
                continue;
            }
            let message = match elsewhere.iter().find(|(other, _)| *other == name) {
                Some((_, message)) => (*message).to_owned(),
                None => self.unknown(name),
            };
            self.report.add(at, &self.key(name), message);
        }
    }

    /// Returns the message about an unknown key.
    fn unknown(&self, name: &str) -> String {
        let (meant, known) = (did_you_mean(name, self.known.iter().copied()), self.known.join(", "));
        let the = if meant.is_empty() { "; the" } else { " The" };
        format!("unknown key{meant}{the} keys here are {known}")
    }

    /// Returns the dotted name of a key in this table, quoted where TOML wants quotes.
    fn key(&self, key: &str) -> String {
        let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let key = if bare { key.to_owned() } else { format!("{key:?}") };
        if self.path.is_empty() { key } else { format!("{}.{key}", self.path) }
    }
}

impl<'t> Entry<'t> {
    fn new(report: &'t Report<'t>, value: &'t Spanned<DeValue<'t>>, key: String) -> Self {
        Self { report, value: value.get_ref(), at: value.span().start, key }
    }

    /// Returns the value as `convert` understands it; reports a mistake if it does not.
    pub(super) fn convert<T>(&self, convert: impl FnOnce(&DeValue<'_>) -> Result<T, String>) -> Option<T> {
        convert(self.value).map_err(|message| self.fail(message)).ok()
    }

    /// Returns the value as a table; reports a mistake if it is none.
    pub(super) fn section(self) -> Option<Section<'t>> {
        let Some(table) = self.value.as_table() else {
            self.fail(format!("expected a table, found {}", describe(self.value)));
            return None;
        };
        Some(Section { report: self.report, table: Some(table), at: self.at, path: self.key, known: Vec::new() })
    }

    /// Returns the items of a list of texts; reports a mistake if it is none, in which `or` says what else may stand there.
    pub(super) fn list(&self, or: &str) -> Option<Vec<Self>> {
        match self.value.as_str() {
            // The only text of a list is easily written without its brackets.
            Some(text) => self.items(&format!("an array such as [{text:?}]{or}")),
            None => self.items(&format!("an array{or}")),
        }
    }

    /// Returns the items of an array; reports a mistake if it is none, in which `expected` describes the array.
    pub(super) fn items(&self, expected: &str) -> Option<Vec<Self>> {
        let Some(array) = self.value.as_array() else {
            self.fail(format!("expected {expected}, found {}", describe(self.value)));
            return None;
        };
        let item = |(i, value)| Self::new(self.report, value, format!("{}[{i}]", self.key));
        Some(array.iter().enumerate().map(item).collect())
    }

    /// Returns the value as the path of a file, taken as relative to the folder of the configuration; reports a mistake if
    /// it is none.
    pub(super) fn file_path(&self) -> Option<PathBuf> {
        self.convert(|value| match value.as_str() {
            None => Err(format!("expected a string, found {}", describe(value))),
            Some("") => Err("expected a path, found \"\"".to_owned()),
            Some(path) if path.contains('\0') => Err("expected a path without NUL".to_owned()),
            Some(path) => Ok(self.path(path)),
        })
    }

    /// Returns a path in this value, taken as relative to the folder of the file.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.report.folder.join(path)
    }

    /// Reports a mistake in this value.
    pub(super) fn fail(&self, message: impl Into<String>) {
        self.report.add(self.at, &self.key, message);
    }
}

/// Returns a value as messages show it, on one line.
pub(super) fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
