//! Checks the value of `--log`. A directive without a level would count as a target, and silence everything else.

use taskgate::config::nearest;
use tracing_subscriber::filter::Targets;

/// Every level, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What other programs call them.
const SYNONYMS: [(&str, &str); 6] = [
    ("none", "off"),
    ("err", "error"),
    ("warning", "warn"),
    ("information", "info"),
    ("verbose", "debug"),
    ("all", "trace"),
];
/// The first part of taskgate's own targets.
const OWN: &str = "taskgate";
/// The second part: the audit lines, and the rooms that log.
const PARTS: [&str; 8] = ["audit", "app", "disk", "gate", "identity", "observe", "task", "upstream"];

/// Checks the value of `--log` or `TASKGATE_LOG`; returns it without spaces.
///
/// # Errors
/// A sentence that says what is wrong, and what would be right.
pub(crate) fn filter(directives: &str) -> Result<String, String> {
    let directives: Vec<_> = directives.split(',').map(str::trim).collect();
    for directive in &directives {
        check(directive).map_err(|why| {
            let end = if why.ends_with('?') { "" } else { ";" };
            let levels = LEVELS.join(", ");
            format!("{why}{end} --log (TASKGATE_LOG) takes {levels}, or directives like taskgate=debug,hyper=info")
        })?;
    }
    let directives = directives.join(",");
    directives.parse::<Targets>().map_err(|error| error.to_string())?;
    Ok(directives)
}

fn check(directive: &str) -> Result<(), String> {
    let (target, level) = match directive.rsplit_once('=') {
        Some((target, level)) => (Some(target), level),
        None => (None, directive),
    };
    if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        let hint = meant(level).map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
        return Err(format!("{level:?} is not a level{hint}"));
    }
    let mut parts = target.map_or("", |target| target.split('[').next().unwrap_or(target)).split("::");
    match (parts.next(), parts.next()) {
        (Some(OWN), Some(part)) if !PARTS.contains(&part) => {
            let hint = match nearest(part, PARTS) {
                Some(meant) => format!("did you mean \"{OWN}::{meant}\"?"),
                None => format!("the parts of {OWN} are {}", PARTS.join(", ")),
            };
            Err(format!("\"{OWN}::{part}\" logs nothing; {hint}"))
        }
        (Some(root), _) if !matches!(root, "" | OWN) && nearest(root, [OWN]).is_some() => {
            Err(format!("{root:?} logs nothing; did you mean {OWN:?}?"))
        }
        _ => Ok(()),
    }
}

/// Returns the level that `word` may stand for.
fn meant(word: &str) -> Option<&'static str> {
    let synonym = SYNONYMS.iter().find(|(other, _)| other.eq_ignore_ascii_case(word));
    synonym.map(|(_, level)| *level).or_else(|| nearest(word, LEVELS))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn levels_and_directives_with_a_level_are_accepted() {
        for directives in [
            "error",
            "WARN",
            "off",
            "taskgate=debug",
            "taskgate=warn,taskgate::audit=info",
            "taskgate::upstream::stderr=off,info",
            "info, h2=warn",
        ] {
            assert_eq!(filter(directives), Ok(directives.replace(' ', "")));
        }
    }

    /// Returns whether a file, or one below a folder, writes to the log.
    fn logs(path: &Path) -> bool {
        if path.is_dir() {
            return fs::read_dir(path).expect("a folder").any(|entry| logs(&entry.expect("an entry").path()));
        }
        let macros = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
        path.exists() && macros.iter().any(|log| fs::read_to_string(path).expect("text").contains(log))
    }

    #[test]
    fn the_rooms_that_log_and_no_others_can_be_named() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let rooms =
            include_str!("../lib.rs").lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        let log = rooms.filter(|room| logs(&source.join(room)) || logs(&source.join(format!("{room}.rs"))));
        assert_eq!(PARTS[1..], log.collect::<Vec<_>>());
    }

    #[test]
    fn other_words_are_refused_with_the_level_that_was_meant() {
        for (directives, start) in [
            ("warning", "\"warning\" is not a level; did you mean \"warn\"?"),
            ("Inof", "\"Inof\" is not a level; did you mean \"info\"?"),
            ("taskgate=debgu", "\"debgu\" is not a level; did you mean \"debug\"?"),
            ("info,verbose", "\"verbose\" is not a level; did you mean \"debug\"?"),
            ("taskgate", "\"taskgate\" is not a level;"),
            ("taskgate::uptream=debug", "\"taskgate::uptream\" logs nothing; did you mean \"taskgate::upstream\"?"),
            ("taskgate::children=debug", "\"taskgate::children\" logs nothing; the parts of taskgate are audit, app, "),
            ("taskgate:task=debug", "\"taskgate:task\" logs nothing; did you mean \"taskgate\"?"),
            ("taskgat=debug", "\"taskgat\" logs nothing; did you mean \"taskgate\"?"),
            ("", "\"\" is not a level;"),
            ("info,", "\"\" is not a level;"),
        ] {
            let why = filter(directives).expect_err(directives);
            assert!(why.starts_with(start), "{why}");
            assert!(why.contains("takes off, error, warn, info, debug, trace, or directives like"), "{why}");
            assert!(!why.contains("?;"), "{why}");
        }
    }
}
