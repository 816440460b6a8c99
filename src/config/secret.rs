//! Secret values: read from the configuration, a file or a variable, and never printed.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
};

use toml::de::DeValue;

use super::reader::Entry;

/// The largest file, in bytes: far beyond any password or token, so that a wrong file is not read for long.
const MAX_FILE: u64 = 64 << 10;

/// A value that `Debug` does not show and no mistake repeats.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    value: String,
    /// The file that the value stands in, if it does.
    file: Option<PathBuf>,
}

impl Secret {
    /// Returns the value.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.value
    }

    /// Returns the file that the value stands in, if it does.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the value again, if it stands in a file; waits for the file system.
    ///
    /// # Errors
    /// Says why it cannot be read.
    pub fn reread(&self) -> Option<Result<Self, String>> {
        self.file.as_deref().map(from_file)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Reads a secret: a string, or what `{ env = "NAME" }` or `{ file = "path" }` refers to.
pub(super) fn literal_or_reference(entry: &Entry<'_>, value: &DeValue<'_>) -> Result<Secret, String> {
    let literal = value.as_str().map(|text| Ok(Secret { value: text.to_owned(), file: None }));
    let expected = || Err("expected a string, { env = \"NAME\" } or { file = \"path\" }".to_owned());
    literal.or_else(|| referred_to(entry, value)).unwrap_or_else(expected)
}

/// Reads a secret that the value refers to. A string is a mistake, because configuration files are shown around.
pub(super) fn reference(entry: &Entry<'_>, value: &DeValue<'_>) -> Result<Secret, String> {
    let expected =
        || Err("expected { env = \"NAME\" } or { file = \"path\" }, so that it is not in this file".to_owned());
    referred_to(entry, value).unwrap_or_else(expected)
}

/// Reads the secret that a table refers to; `None` for anything that is no such table.
fn referred_to(entry: &Entry<'_>, value: &DeValue<'_>) -> Option<Result<Secret, String>> {
    let table = value.as_table().filter(|table| table.len() == 1)?;
    let (key, place) = table.iter().next()?;
    let place = place.get_ref().as_str()?;
    match &**key.get_ref() {
        "env" => Some(from_variable(place)),
        "file" => Some(from_file(&entry.path(place))),
        _ => None,
    }
}

fn from_variable(name: &str) -> Result<Secret, String> {
    let value = env::var(name).map_err(|error| match error {
        env::VarError::NotPresent => format!("the environment variable {name:?} is not set"),
        env::VarError::NotUnicode(_) => format!("the environment variable {name:?} is not UTF-8 text"),
    })?;
    if value.is_empty() {
        Err(format!("the environment variable {name:?} is empty"))
    } else {
        Ok(Secret { value, file: None })
    }
}

fn from_file(path: &Path) -> Result<Secret, String> {
    let value = read(path).map_err(|error| format!("the file \"{}\" cannot be used: {error}", path.display()))?;
    if value.is_empty() {
        return Err(format!("the file \"{}\" is empty", path.display()));
    }
    Ok(Secret { value, file: Some(path.to_owned()) })
}

fn read(path: &Path) -> Result<String, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    if found.len() > MAX_FILE {
        return Err(format!("it has more than {MAX_FILE} bytes"));
    }
    let mut text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    // Editors end a file with a newline, which belongs to no secret.
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use toml::de::DeTable;

    use super::super::{mistakes::Report, reader::Section};
    use super::*;

    fn read(toml: &str) -> Result<String, String> {
        let (table, errors) = DeTable::parse_recoverable(toml);
        assert!(errors.is_empty(), "{toml}");
        let report = Report::new("file", toml, Path::new(""), &[]);
        let entry = Section::root(&report, table.get_ref()).entry("secret").expect("a key");
        let value = table.get_ref().get("secret").expect("a key").get_ref();
        let secret = literal_or_reference(&entry, value);
        assert_eq!(reference(&entry, value).ok(), secret.clone().ok().filter(|_| value.as_str().is_none()));
        secret.map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn a_secret_is_read_from_where_it_stands_and_is_never_shown() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"from a file\r\n").expect("room");
        let path = file.path().display();
        assert_eq!(read(&format!("secret = {{ file = '{path}' }}")).as_deref(), Ok("from a file"));
        assert_eq!(read("secret = { env = \"CARGO_PKG_NAME\" }").as_deref(), Ok("taskgate"));
        assert_eq!(read("secret = \"literal\"").as_deref(), Ok("literal"));
        assert_eq!(format!("{:?}", Secret { value: "literal".to_owned(), file: None }), "Secret");
    }

    #[test]
    fn a_mistake_about_a_secret_does_not_repeat_it() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        for (value, said) in [
            ("{ env = \"TASKGATE_NO_SUCH_VARIABLE\" }".to_owned(), "is not set"),
            ("{ file = \"/no/such/file\" }".to_owned(), "cannot be used"),
            ("{ file = \"/\" }".to_owned(), "not a file"),
            (format!("{{ file = '{}' }}", empty.path().display()), "empty"),
            ("{ env = \"A\", file = \"b\" }".to_owned(), "expected"),
            ("{ literal = \"hush\" }".to_owned(), "expected"),
            ("42424242".to_owned(), "expected"),
        ] {
            let mistake = read(&format!("secret = {value}")).expect_err(&value);
            assert!(mistake.contains(said) && !mistake.contains("hush") && !mistake.contains("4242"), "{mistake}");
        }
    }
}
