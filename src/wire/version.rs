//! The protocol revisions with sessions that taskgate speaks on either side; [`super::modern`] has the one without.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::value::RawValue;

use super::object::{Members, unquote};

/// A revision of the Model Context Protocol with sessions, ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// `2024-11-05`
    V2024_11_05,
    /// `2025-03-26`
    V2025_03_26,
    /// `2025-06-18`
    V2025_06_18,
    /// `2025-11-25`, the first revision with tasks
    V2025_11_25,
}

impl Version {
    /// Every revision with sessions, oldest first.
    pub const ALL: [Self; 4] = [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];

    /// The newest revision with sessions.
    pub const LATEST: Self = Self::V2025_11_25;

    /// Returns the revision of that name, if there is one with sessions.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == name)
    }

    /// Returns the name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// Returns whether tasks exist in this revision.
    #[must_use]
    pub const fn has_tasks(self) -> bool {
        matches!(self, Self::V2025_11_25)
    }

    /// Returns whether clients of this revision know events without data, and servers that end a connection but not the
    /// stream on it (section "Sending Messages to the Server" 6).
    #[must_use]
    pub const fn interrupts_streams(self) -> bool {
        matches!(self, Self::V2025_11_25)
    }

    /// Returns the newest revision older than `offer` that the raw error of an `initialize` names as supported
    /// ("Lifecycle", section "Error Handling").
    #[must_use]
    pub fn supported_below(error: &str, offer: Self) -> Option<Self> {
        let data = Members::parse(error).ok()?.object("data")?;
        let supported: Vec<&RawValue> = serde_json::from_str(data.get("supported")?).ok()?;
        let spoken = supported.into_iter().filter_map(|raw| Self::parse(&unquote(raw.get())?));
        spoken.filter(|version| *version < offer).max()
    }

    /// Lists the revisions with sessions for error messages.
    #[must_use]
    pub fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| D::Error::custom("a revision that taskgate does not speak"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_unknown_names_are_refused() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()), Some(version));
        }
        assert_eq!(Version::parse("2025-11-26"), None);
    }
}
