//! The environment variables whose names begin with `TASKGATE_`: which taskgate reads, and which are set in vain.

use std::{collections::BTreeSet, env, ffi::OsStr, path::PathBuf};

use clap::{
    ArgMatches, Command,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};
use taskgate::config::{Target, nearest, target_from_url, text_without_secrets};

/// The variable that may hold the text of a configuration instead of a file.
pub(crate) const CONFIG_TOML: &str = "TASKGATE_CONFIG_TOML";
/// The variable that may name the server behind.
const UPSTREAM: &str = "TASKGATE_UPSTREAM";
/// The variable that may name the file to keep tasks in.
const STORE: &str = "TASKGATE_STORE";
/// The variable by which taskgate finds its child processes again. A child that is itself a taskgate has it.
const CHILD: &str = "TASKGATE_CHILD";
const PREFIX: &str = "TASKGATE_";

/// Returns what is wrong with a variable, if that is why the arguments cannot be read.
pub(crate) fn wrong_in_error(command: &Command, error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (argument, value) = (text(ContextKind::InvalidArg)?, text(ContextKind::InvalidValue)?);
    let is_meant = |other: &&clap::Arg| other.to_string() == argument;
    let variable = every_argument(command).find(is_meant)?.get_env()?;
    let given = env::var(variable).ok()?;
    if value.is_empty() && given.is_empty() {
        return Some(set_but_empty(variable));
    }
    let why = match (std::error::Error::source(error), error.get(ContextKind::ValidValue)) {
        (Some(why), _) => why.to_string(),
        (None, Some(ContextValue::Strings(words))) => format!("expected one of {}", words.join(", ")),
        _ => return None,
    };
    let is_it = given == value || given.split(',').any(|part| part == value);
    is_it.then(|| format!("{}: {:?}: {why}", variable.display(), text_without_secrets(value)))
}

/// Returns what is wrong with a variable that is set but empty, if an argument takes its value from it.
pub(crate) fn empty_in_matches(command: &Command, matches: &ArgMatches) -> Option<String> {
    let is_empty_variable = |argument: &&clap::Arg| {
        let id = argument.get_id().as_str();
        let matches = [Some(matches), matches.subcommand().map(|(_, matches)| matches)];
        matches.into_iter().flatten().any(|matches| {
            let raw = matches.try_get_raw(id).ok().flatten();
            raw.is_some_and(|mut values| values.any(OsStr::is_empty))
                && matches.value_source(id) == Some(ValueSource::EnvVariable)
        })
    };
    every_argument(command).find(is_empty_variable)?.get_env().map(set_but_empty)
}

/// Returns the text of a configuration, if the environment holds one.
pub(crate) fn config_toml() -> Result<Option<String>, String> {
    match env::var(CONFIG_TOML) {
        Ok(text) if text.is_empty() => Err(set_but_empty(OsStr::new(CONFIG_TOML))),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("the environment variable {CONFIG_TOML} is not UTF-8 text")),
    }
}

/// Returns the server behind, if the environment names one.
pub(crate) fn upstream() -> Result<Option<Target>, String> {
    match env::var(UPSTREAM) {
        Ok(text) if text.is_empty() => Err(set_but_empty(OsStr::new(UPSTREAM))),
        Ok(text) => target_from_url(&text).map(Some).map_err(|why| format!("{UPSTREAM}: {why}")),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("the environment variable {UPSTREAM} is not UTF-8 text")),
    }
}

/// Returns the file to keep tasks in, if the environment names one.
pub(crate) fn store() -> Result<Option<PathBuf>, String> {
    match env::var_os(STORE) {
        Some(path) if path.is_empty() => Err(set_but_empty(OsStr::new(STORE))),
        path => Ok(path.map(PathBuf::from)),
    }
}

/// Returns a warning for every variable that means nothing to taskgate.
pub(crate) fn unknown(command: &Command) -> Vec<String> {
    let known: BTreeSet<&str> =
        every_argument(command).filter_map(clap::Arg::get_env).filter_map(OsStr::to_str).collect();
    let known = || known.iter().copied().chain([CONFIG_TOML]);
    let set = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    let set = set.filter(|(name, _)| name.starts_with(PREFIX) && name != CHILD && known().all(|known| known != name));
    let unknown = set.filter(|(name, value)| !is_of_kubernetes(name, value));
    // The prefix, which all have, would make any two names look alike.
    let meant = |name: &str| nearest(&name[PREFIX.len()..], known().map(|known| &known[PREFIX.len()..]));
    let hint = |name: &str| match meant(name) {
        Some(known) => format!("did you mean {PREFIX}{known}?"),
        None => format!("it knows {}", known().collect::<Vec<_>>().join(", ")),
    };
    let warning = |name: String| format!("the environment variable {name} means nothing to taskgate; {}", hint(&name));
    unknown.map(|(name, _)| warning(name)).collect()
}

fn set_but_empty(variable: &OsStr) -> String {
    format!("the environment variable {} is set but empty; unset it or give it a value", variable.display())
}

/// Returns whether the variable is one that Kubernetes sets in every pod for a service whose name begins with
/// `taskgate`.
fn is_of_kubernetes(name: &str, value: &OsStr) -> bool {
    let address = value.to_str().is_some_and(|value| value.contains("://"));
    let of_port = name.ends_with("_PORT") && address;
    of_port || ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| name.contains(part))
}

fn every_argument(command: &Command) -> impl Iterator<Item = &clap::Arg> {
    command.get_arguments().chain(command.get_subcommands().flat_map(Command::get_arguments))
}
