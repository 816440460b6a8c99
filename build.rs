//! Gives `taskgate --version` the commit that it was built from, and has the program packed where it can be.
#![allow(clippy::print_stdout, reason = "cargo reads it")]

use std::{
    env::{self, VarError},
    path::Path,
    process::Command,
};

/// The version of glibc from which on it loads a packed program.
const PACKS_FROM: (u32, u32) = (2, 36);
/// The variable that names the commit for a build without git. If it is empty, the version names no commit.
const COMMIT: &str = "TASKGATE_COMMIT";

fn main() -> Result<(), VarError> {
    println!("cargo::rerun-if-env-changed={COMMIT}");
    let commit = match env::var(COMMIT) {
        Ok(commit) => Some(commit).filter(|commit| !commit.is_empty()),
        // A debug build names none: otherwise every commit would build all test binaries again.
        Err(VarError::NotPresent) if env::var("PROFILE")? == "debug" => None,
        Err(VarError::NotPresent) => commit_of_this_tree(),
        Err(error) => return Err(error),
    };
    let commit = commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    // Without the prefix TASKGATE_: cargo sets the variable where it runs taskgate too, which would warn of it.
    println!("cargo::rustc-env=VERSION_AND_COMMIT={}{commit}", env::var("CARGO_PKG_VERSION")?);
    if is_packed()? {
        // The list of the addresses that a start fills in: half a megabyte less for it to read.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
    Ok(())
}

/// Returns whether the linker can pack the program, and this machine load it. Of another machine nothing is known.
fn is_packed() -> Result<bool, VarError> {
    // Here the linker comes with Rust.
    let is_known = env::var("TARGET")? == "x86_64-unknown-linux-gnu" && env::var("HOST")? == env::var("TARGET")?;
    Ok(is_known && glibc().is_some_and(|version| version >= PACKS_FROM))
}

/// Returns the version of this machine's glibc, if it says one.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns the commit of this tree, and makes cargo ask again when it changes.
fn commit_of_this_tree() -> Option<String> {
    // Without this, git would look in the folders above, and find the repository of a packager.
    if !Path::new(".git").exists() {
        return None;
    }
    // git writes every change of HEAD there. Where it keeps no such file, cargo asks at every build.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short", "HEAD"])
}

/// Returns what git prints; `None` if there is no git, or no answer.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("--git-dir=.git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
