//! Values that must not be seen: where they stand, and that nothing prints them.

use std::{env, fmt, fs, path::Path};

use toml::de::DeValue;

/// Far beyond any password or token, so that a wrong file is not read for long.
const LONGEST_FILE: u64 = 64 << 10;

/// A value that is not shown by `Debug` and never part of a mistake.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[allow(dead_code, reason = "for the headers of upstreams")]
/// A string, or where one is found: `{ env = "NAME" }` or `{ file = "path" }`.
pub(super) fn literal_or_found(value: &DeValue<'_>) -> Result<Secret, String> {
    let literal = value.as_str().map(|text| Ok(Secret(text.to_owned())));
    let expected = || Err("expected a string, { env = \"NAME\" } or { file = \"path\" }".to_owned());
    literal.or_else(|| at_its_place(value)).unwrap_or_else(expected)
}

/// Where a secret is found; a string is a mistake, because configuration files are shown around.
pub(super) fn found(value: &DeValue<'_>) -> Result<Secret, String> {
    let expected =
        || Err("expected { env = \"NAME\" } or { file = \"path\" }, so that it is not in this file".to_owned());
    at_its_place(value).unwrap_or_else(expected)
}

/// The secret that a table names; `None` for anything that is no such table.
fn at_its_place(value: &DeValue<'_>) -> Option<Result<Secret, String>> {
    let table = value.as_table().filter(|table| table.len() == 1)?;
    let (key, place) = table.iter().next()?;
    let place = place.get_ref().as_str()?;
    let read = match &**key.get_ref() {
        "env" => env::var(place).map_err(|error| match error {
            env::VarError::NotPresent => format!("the environment variable {place:?} is not set"),
            env::VarError::NotUnicode(_) => format!("the environment variable {place:?} is not UTF-8 text"),
        }),
        "file" => read(Path::new(place)).map_err(|error| format!("the file {place:?} cannot be used: {error}")),
        _ => return None,
    };
    Some(read.and_then(|secret| {
        if secret.is_empty() { Err(format!("what {place:?} holds is empty")) } else { Ok(Secret(secret)) }
    }))
}

fn read(path: &Path) -> Result<String, String> {
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no file".to_owned());
    }
    if found.len() > LONGEST_FILE {
        return Err(format!("it has more than {LONGEST_FILE} bytes"));
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

    use super::*;

    fn read(toml: &str) -> Result<String, String> {
        let (table, errors) = DeTable::parse_recoverable(toml);
        assert!(errors.is_empty(), "{toml}");
        let value = table.get_ref().get("secret").expect("a key").get_ref();
        assert_eq!(found(value).ok(), literal_or_found(value).ok().filter(|_| value.as_str().is_none()));
        literal_or_found(value).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn a_secret_is_read_from_its_place_and_is_never_shown() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(b"from a file\r\n").expect("room");
        let path = file.path().display();
        assert_eq!(read(&format!("secret = {{ file = '{path}' }}")).as_deref(), Ok("from a file"));
        assert_eq!(read("secret = { env = \"CARGO_PKG_NAME\" }").as_deref(), Ok("taskgate"));
        assert_eq!(read("secret = \"literal\"").as_deref(), Ok("literal"));
        assert_eq!(format!("{:?}", Secret("literal".to_owned())), "Secret");
    }

    #[test]
    fn what_is_no_secret_is_a_mistake_that_does_not_repeat_it() {
        let empty = tempfile::NamedTempFile::new().expect("a file");
        for (value, said) in [
            ("{ env = \"TASKGATE_NO_SUCH_VARIABLE\" }".to_owned(), "is not set"),
            ("{ file = \"/no/such/file\" }".to_owned(), "cannot be used"),
            ("{ file = \"/\" }".to_owned(), "no file"),
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
