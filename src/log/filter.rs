//! What `--log` may say. A directive that names no level would be taken for a target, and silence everything else.

use taskgate::config::nearest;
use tracing_subscriber::EnvFilter;

/// Every level, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// What others call them.
const SYNONYMS: [(&str, &str); 6] = [
    ("none", "off"),
    ("err", "error"),
    ("warning", "warn"),
    ("information", "info"),
    ("verbose", "debug"),
    ("all", "trace"),
];
/// What begins the targets of taskgate itself.
const OWN: &str = "taskgate";

/// Checks the value of `--log` or `TASKGATE_LOG`; returns it without spaces.
///
/// # Errors
/// A sentence that names what is wrong and what may stand there.
pub(crate) fn filter(directives: &str) -> Result<String, String> {
    let directives: Vec<_> = directives.split(',').map(str::trim).collect();
    for directive in &directives {
        check(directive).map_err(|why| {
            let end = if why.ends_with('?') { "" } else { ";" };
            let levels = LEVELS[1..].join(", ");
            format!("{why}{end} --log (TASKGATE_LOG) takes {levels}, or directives like taskgate=debug,hyper=info")
        })?;
    }
    let directives = directives.join(",");
    EnvFilter::try_new(&directives).map_err(|error| error.to_string())?;
    Ok(directives)
}

fn check(directive: &str) -> Result<(), String> {
    let (target, level) = match directive.rsplit_once('=') {
        Some((target, level)) => (Some(target), level),
        None => (None, directive),
    };
    if !LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level)) {
        let hint = meant(level).map_or_else(String::new, |meant| format!("; did you mean {meant:?}?"));
        return Err(format!("{level:?} is no level{hint}"));
    }
    let root = target.map(|target| target.split([':', '[']).next().unwrap_or(target));
    match root {
        Some(root) if root != OWN && nearest(root, [OWN]).is_some() => {
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
    use super::*;

    #[test]
    fn levels_and_directives_with_one_are_taken() {
        for directives in
            ["error", "WARN", "off", "taskgate=debug", "taskgate=warn,taskgate::audit=info", "info, h2=warn"]
        {
            assert_eq!(filter(directives), Ok(directives.replace(' ', "")));
        }
    }

    #[test]
    fn what_is_no_level_is_refused_with_the_one_that_was_meant() {
        for (directives, start) in [
            ("warning", "\"warning\" is no level; did you mean \"warn\"?"),
            ("Inof", "\"Inof\" is no level; did you mean \"info\"?"),
            ("taskgate=debgu", "\"debgu\" is no level; did you mean \"debug\"?"),
            ("info,verbose", "\"verbose\" is no level; did you mean \"debug\"?"),
            ("taskgate", "\"taskgate\" is no level;"),
            ("taskgat=debug", "\"taskgat\" logs nothing; did you mean \"taskgate\"?"),
            ("", "\"\" is no level;"),
            ("info,", "\"\" is no level;"),
        ] {
            let why = filter(directives).expect_err(directives);
            assert!(why.starts_with(start), "{why}");
            assert!(why.contains("takes error, warn, info, debug, trace, or directives like"), "{why}");
            assert!(!why.contains("?;"), "{why}");
        }
    }
}
