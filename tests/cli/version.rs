//! `taskgate --version`, and the build script that finds its commit.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use tempfile::TempDir;

use crate::kit::Binary;

/// What cargo tells a build for the machine where it runs.
const FOR_THIS_MACHINE: [(&str, &str); 2] =
    [("HOST", "x86_64-unknown-linux-gnu"), ("TARGET", "x86_64-unknown-linux-gnu")];

/// The build script on its own, and folders for it to build in.
struct Build {
    dir: TempDir,
}

impl Build {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
        run(Command::new("rustc").args(["--edition=2024", "-o"]).arg(dir.path().join("script")).arg(source));
        for folder in ["tree", "tree/inner"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir }
    }

    fn git(&self, arguments: &str) -> String {
        self.git_in("tree", arguments)
    }

    fn git_in(&self, folder: &str, arguments: &str) -> String {
        let who = ["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
        run(Command::new("git").current_dir(self.dir.path().join(folder)).args(who).args(arguments.split(' ')))
    }

    /// Returns what a build in a folder tells cargo.
    fn told(&self, folder: &str, profile: &str, commit: Option<&str>) -> String {
        let mut script = Command::new(self.dir.path().join("script"));
        script.current_dir(self.dir.path().join(folder)).env_remove("TASKGATE_COMMIT");
        script.env("PROFILE", profile).env("CARGO_PKG_VERSION", "1.2.3").envs(FOR_THIS_MACHINE);
        run(script.envs(commit.map(|commit| ("TASKGATE_COMMIT", commit))))
    }

    /// Returns the version of a build in a folder.
    fn version(&self, folder: &str, profile: &str, commit: Option<&str>) -> String {
        let told = self.told(folder, profile, commit);
        let version = told.lines().find_map(|line| line.strip_prefix("cargo::rustc-env=VERSION_AND_COMMIT="));
        version.unwrap().to_owned()
    }
}

/// Returns what a command prints. It must exit 0, and does not see a repository that the environment names.
fn run(command: &mut Command) -> String {
    let output = command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn the_binary_tells_the_version_that_the_build_script_found() {
    let version = Binary::run(&["--version"], &[]).await;
    assert_eq!(version.stdout, concat!("taskgate ", env!("VERSION_AND_COMMIT"), "\n"));
    assert!(env!("VERSION_AND_COMMIT").starts_with(env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_release_build_has_the_commit_of_its_own_repository_and_cargo_watches_it_move() {
    let build = Build::new();
    for step in ["init --quiet", "commit --quiet --allow-empty --message=first"] {
        build.git(step);
    }
    let first = build.git("rev-parse --short HEAD");
    assert_eq!(build.version("tree", "release", None), format!("1.2.3 ({first})"));
    assert_eq!(build.version("tree", "debug", None), "1.2.3", "every commit would build all tests again");
    assert_eq!(build.version("tree/inner", "release", None), "1.2.3", "the repository is that of a folder above");

    let told = build.told("tree", "release", None);
    let watched = told.lines().find_map(|line| line.strip_prefix("cargo::rerun-if-changed=")).unwrap();
    let watched = || fs::read(build.dir.path().join("tree").join(watched)).unwrap();
    let before = watched();
    build.git("commit --quiet --allow-empty --message=second");
    assert_ne!(watched(), before);
    assert_ne!(build.version("tree", "release", None), format!("1.2.3 ({first})"));
}

#[test]
fn a_release_build_in_a_worktree_has_the_commit_of_that_and_cargo_watches_it_move() {
    let build = Build::new();
    for step in ["init --quiet", "commit --quiet --allow-empty --message=first", "worktree add --quiet ../linked"] {
        build.git(step);
    }
    build.git("commit --quiet --allow-empty --message=other");
    let first = build.git_in("linked", "rev-parse --short HEAD");
    assert!(build.dir.path().join("linked/.git").is_file());
    assert_eq!(build.version("linked", "release", None), format!("1.2.3 ({first})"));
    let told = build.told("linked", "release", None);
    let watched = told.lines().find_map(|line| line.strip_prefix("cargo::rerun-if-changed=")).unwrap();
    let watched = || fs::read(build.dir.path().join("linked").join(watched)).unwrap();
    let before = watched();
    build.git_in("linked", "commit --quiet --allow-empty --message=second");
    assert_ne!(watched(), before);
    let second = build.git_in("linked", "rev-parse --short HEAD");
    assert_eq!(build.version("linked", "release", None), format!("1.2.3 ({second})"));
}

#[test]
fn a_build_without_git_has_the_commit_of_the_variable_or_none() {
    let build = Build::new();
    assert_eq!(build.version("tree", "release", None), "1.2.3");
    for profile in ["debug", "release"] {
        assert_eq!(build.version("tree", profile, Some("abc1234")), "1.2.3 (abc1234)");
        assert_eq!(build.version("tree", profile, Some("")), "1.2.3");
    }
}

#[test]
fn a_program_is_packed_only_for_a_machine_whose_glibc_loads_it() {
    let build = Build::new();
    let packs = |says: &str, variables: &[(&str, &str)]| {
        let getconf = build.dir.path().join("getconf");
        fs::write(&getconf, format!("#!/bin/sh\n{says}\n")).unwrap();
        fs::set_permissions(&getconf, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", build.dir.path().display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(build.dir.path().join("script"));
        script.current_dir(build.dir.path()).env("PROFILE", "debug").env("CARGO_PKG_VERSION", "1.2.3");
        run(script.env("PATH", path).envs(FOR_THIS_MACHINE).envs(variables.iter().copied())).contains("relative-relocs")
    };
    assert!(packs("echo glibc 2.36", &[]) && packs("echo glibc 3.0", &[]));
    for says in ["echo glibc 2.35", "echo musl 2.36", "echo glibc", "exit 1"] {
        assert!(!packs(says, &[]), "{says}");
    }
    assert!(!packs("echo glibc 2.36", &[("HOST", "aarch64-unknown-linux-gnu")]));
    assert!(!packs("echo glibc 2.36", &[("TARGET", "x86_64-unknown-linux-musl")]));
}
