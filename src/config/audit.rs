//! The `[audit]` section.

use std::path::PathBuf;

use super::reader::Section;
use super::values::{one_of, text};

/// The `[audit]` section: which lines are written about who does what.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Where they go.
    pub to: AuditTo,
    /// How they name a principal.
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

#[derive(Clone, Copy)]
enum Place {
    Off,
    Log,
    File,
}

const PLACES: [(&str, Place); 3] = [("off", Place::Off), ("log", Place::Log), ("file", Place::File)];

impl Default for Audit {
    fn default() -> Self {
        Self { to: AuditTo::Off, owner: AuditOwner::Hash }
    }
}

pub(super) fn read(mut section: Section<'_>) -> Audit {
    let default = Audit::default();
    let place = section.get("to", one_of(&PLACES));
    let file_entry = section.entry("file");
    let owner = section.get("owner", one_of(&OWNERS)).unwrap_or(default.owner);
    let to = match (place, file_entry) {
        (Some(Place::File), Some(entry)) => {
            entry.convert(|value| Ok(entry.path(&not_empty(text(value)?)?))).map(AuditTo::File)
        }
        (Some(Place::File), None) => {
            section.missing("file", "missing; to = \"file\" needs a path such as \"/var/log/taskgate/audit.jsonl\"");
            None
        }
        (place, Some(entry)) => {
            entry.fail("only used with to = \"file\"");
            place.map(|_| AuditTo::Off)
        }
        (Some(Place::Log), None) => Some(AuditTo::Log),
        (Some(Place::Off) | None, None) => Some(AuditTo::Off),
    };
    section.finish();
    Audit { to: to.unwrap_or(default.to), owner }
}

fn not_empty(path: String) -> Result<String, String> {
    if path.is_empty() { Err("expected a path, found \"\"".to_owned()) } else { Ok(path) }
}
