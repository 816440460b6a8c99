//! Gives `taskgate --version` the commit that it was built from.
#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::{
    env::{self, VarError},
    path::Path,
    process::Command,
};

/// The variable that names the commit for a build without git. If it is empty, the version has no commit.
const COMMIT: &str = "TASKGATE_COMMIT";

fn main() -> Result<(), VarError> {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let commit = match env::var(COMMIT) {
        Ok(commit) => Some(commit).filter(|commit| !commit.is_empty()),
        // A debug build has none: every commit would build all test binaries again.
        Err(VarError::NotPresent) if env::var("PROFILE")? == "debug" => None,
        Err(VarError::NotPresent) => checked_out(),
        Err(error) => return Err(error),
    };
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    // Without the prefix: cargo sets the variable where it runs taskgate too, which would warn of it.
    println!("cargo::rustc-env=VERSION_AND_COMMIT={}{commit}", env::var("CARGO_PKG_VERSION")?);
    Ok(())
}

/// Returns the commit of this tree, and makes cargo ask again when it changes.
fn checked_out() -> Option<String> {
    // git would look for a repository in the folders above, and find that of a packager.
    if !Path::new(".git").exists() {
        return None;
    }
    // Every change of HEAD is written there. Where git keeps no such file, cargo asks at every build.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short", "HEAD"])
}

/// Returns what git prints; `None` if there is no git, or no answer.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("--git-dir=.git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
