//! The `[store]` section.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::Secret;
use super::reader::{Entry, Section};
use super::secret::reference;
use super::values::{one_of, size};

/// The least length of a key, in bytes. A shorter one can be guessed from the file.
const MIN_KEY: usize = 32;
/// The least that `max_store_bytes` can be: room for the ends of a few large results.
const MIN_BYTES: usize = 16 << 20;
/// The name of the file in the folder for state.
const FILE: &str = "taskgate.db";

/// The `[store]` section: where tasks are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Store {
    /// In memory, as long as the process lives.
    #[default]
    Memory,
    /// In a file.
    File(StoreFile),
}

/// A file for tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreFile {
    /// Where it is.
    pub path: PathBuf,
    /// The most bytes that it may take, without its log.
    pub max_store_bytes: usize,
    /// Seals it.
    pub key: Option<Secret>,
    /// May have sealed it before.
    pub old_keys: Vec<Secret>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Memory,
    File,
}

const KINDS: [(&str, Kind); 2] = [("memory", Kind::Memory), ("file", Kind::File)];

/// What stands behind the path of the file in those beside it.
const BESIDE: [&str; 6] = ["", "-wal", "-shm", "-mark", "-journal", "-new"];

impl Store {
    /// Returns whether a path is that of the file, or of one that stands beside it.
    pub(super) fn has(&self, path: &Path) -> bool {
        let Self::File(file) = self else { return false };
        let (path, file) = (place(path), place(&file.path).into_os_string());
        BESIDE.iter().any(|suffix| {
            let mut beside = file.clone();
            beside.push(suffix);
            path == place(Path::new(&beside))
        })
    }
}

/// Returns a path without links, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let of_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(of_folder).unwrap_or(path)
}

impl StoreFile {
    /// Returns a file that is not sealed, with the default limit.
    #[must_use]
    pub fn at(path: PathBuf) -> Self {
        Self { path, max_store_bytes: 4 << 30, key: None, old_keys: Vec::new() }
    }
}

/// Reads the section. `given` is the path that wins over it, and makes the store a file.
pub(super) fn read(mut section: Section<'_>, given: Option<PathBuf>) -> Store {
    let kind = section.get("kind", one_of(&KINDS));
    let kind = if given.is_some() { Kind::File } else { kind.unwrap_or(Kind::Memory) };
    let bytes = section.get("max_store_bytes", |value| at_least(size(value)?));
    let (path, key, old_keys) = (section.entry("path"), section.entry("key"), section.entry("old_keys"));
    let store = match kind {
        Kind::Memory => {
            for entry in [path, key, old_keys].into_iter().flatten() {
                entry.fail("only used with kind = \"file\"");
            }
            Some(Store::Memory)
        }
        Kind::File => {
            if let Some(entry) = old_keys.as_ref().filter(|_| key.is_none()) {
                entry.fail("only used with key, which takes their place");
            }
            let old_keys = old_keys.and_then(|entry| entry.items("an array")).unwrap_or_default();
            let old_keys = old_keys.iter().filter_map(secret).collect();
            let key = key.and_then(|entry| secret(&entry));
            let named = path.map(|entry| entry.file_path());
            let path = match (given, named) {
                (Some(path), _) => Some(path),
                (None, Some(named)) => named,
                (None, None) => default_path(&section),
            };
            path.map(StoreFile::at).map(|file| {
                let max_store_bytes = bytes.unwrap_or(file.max_store_bytes);
                Store::File(StoreFile { max_store_bytes, key, old_keys, ..file })
            })
        }
    };
    section.finish();
    store.unwrap_or_default()
}

/// Reads a key that stands elsewhere.
fn secret(entry: &Entry<'_>) -> Option<Secret> {
    entry.convert(|value| {
        let key = reference(entry, value)?;
        if key.expose().len() < MIN_KEY {
            return Err(format!("expected at least {MIN_KEY} bytes, such as `openssl rand -base64 32` prints"));
        }
        Ok(key)
    })
}

fn at_least(bytes: usize) -> Result<usize, String> {
    if bytes < MIN_BYTES {
        Err(format!("expected a size of at least {MIN_BYTES} bytes, found {bytes}"))
    } else {
        Ok(bytes)
    }
}

/// Returns where the file is if nothing says so: in the folder for state of the service, or else of the user.
fn default_path(section: &Section<'_>) -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd separates several folders by colons.
    let service = env::var("STATE_DIRECTORY").ok().and_then(|all| all.split(':').next().map(PathBuf::from));
    let service = service.filter(|path| path.is_absolute());
    let user = || folder("XDG_STATE_HOME").or_else(|| folder("HOME").map(|home| home.join(Path::new(".local/state"))));
    let path = service.or_else(|| user().map(|state| state.join("taskgate")));
    if path.is_none() {
        section.missing("path", "missing, and neither STATE_DIRECTORY nor XDG_STATE_HOME nor HOME is set");
    }
    path.map(|folder| folder.join(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_what_stands_beside_it_and_links_to_them_are_of_the_store() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name);
        let store = Store::File(StoreFile::at(place("tasks.db")));
        std::os::unix::fs::symlink(folder.path(), place("link")).expect("room");
        std::os::unix::fs::symlink(place("tasks.db-wal"), place("log")).expect("room");
        let all = ["tasks.db", "./tasks.db", "link/tasks.db", "tasks.db-wal", "tasks.db-shm", "link/tasks.db-mark"];
        for is_there in [false, true] {
            for name in all {
                assert!(store.has(&place(name)), "{name}");
            }
            for name in ["tasks", "tasks.db.jsonl", "other/tasks.db"] {
                assert!(!store.has(&place(name)), "{name}");
            }
            assert_eq!(store.has(&place("log")), is_there);
            for name in ["tasks.db", "tasks.db-wal"] {
                std::fs::write(place(name), "").expect("room");
            }
        }
        assert!(!Store::Memory.has(&place("tasks.db")));
    }
}
