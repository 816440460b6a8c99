//! The `[audit]` section.

use std::path::PathBuf;

use super::Store;
use super::reader::Section;
use super::values::one_of;

/// The `[audit]` section: where the lines about who does what go, and how they name a principal.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Where the lines go.
    pub to: AuditTo,
    /// How the lines name a principal.
    pub owner: AuditOwner,
}

/// Where audit lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditTo {
    /// Nowhere.
    Off,
    /// To the log, under the target `taskgate::audit`.
    Log,
    /// To a file, one JSON object a line.
    File(PathBuf),
}

/// How audit lines name a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditOwner {
    /// By the beginning of the SHA-256 of its name.
    Hash,
    /// By its name.
    Principal,
}

const OWNERS: [(&str, AuditOwner); 2] = [("hash", AuditOwner::Hash), ("principal", AuditOwner::Principal)];

/// The values of `to`.
#[derive(Clone, Copy)]
enum Destination {
    Off,
    Log,
    File,
}

const DESTINATIONS: [(&str, Destination); 3] =
    [("off", Destination::Off), ("log", Destination::Log), ("file", Destination::File)];

impl Default for Audit {
    fn default() -> Self {
        Self { to: AuditTo::Off, owner: AuditOwner::Hash }
    }
}

/// Reads the section. The lines must not go into what the `store` keeps.
pub(super) fn read(mut section: Section<'_>, store: &Store) -> Audit {
    let default = Audit::default();
    let destination = section.get("to", one_of(&DESTINATIONS));
    let file_entry = section.entry("file");
    let owner = section.get("owner", one_of(&OWNERS)).unwrap_or(default.owner);
    let to = match (destination, file_entry) {
        (Some(Destination::File), Some(entry)) => {
            let path = entry.file_path();
            if path.as_deref().is_some_and(|path| store.has(path)) {
                entry.fail("a file of the store, which audit lines would damage; set another one");
            }
            path.map(AuditTo::File)
        }
        (Some(Destination::File), None) => {
            section.missing("file", "missing; to = \"file\" needs a path such as \"/var/log/taskgate/audit.jsonl\"");
            None
        }
        (destination, Some(entry)) => {
            entry.fail("only used with to = \"file\"");
            destination.map(|_| AuditTo::Off)
        }
        (Some(Destination::Log), None) => Some(AuditTo::Log),
        (Some(Destination::Off) | None, None) => Some(AuditTo::Off),
    };
    section.finish();
    Audit { to: to.unwrap_or(default.to), owner }
}
