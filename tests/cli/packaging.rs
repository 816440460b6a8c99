//! `taskgate completions`, `taskgate man` and the files in `packaging/`.

use std::{fs, path::Path, process::Stdio, time::Duration};

use taskgate::config::{self, Overrides};
use tokio::process::Command;

use crate::{USAGE, kit::Binary};

#[tokio::test]
async fn each_shell_gets_a_script_with_the_subcommands_that_the_help_shows() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Binary::run(&["completions", shell], &[]).await;
        assert_eq!((script.code, script.stderr), (Some(0), String::new()));
        for word in ["serve", "stdio", "check", "demo", "completions", "allowed-host", "version"] {
            assert!(script.stdout.contains(word), "{shell} has no {word}: {}", script.stdout);
        }
        assert!(!script.stdout.contains("demo-server"), "{shell}: {}", script.stdout);
    }
}

#[tokio::test]
async fn bash_completes_a_subcommand_with_the_script() {
    let script = Binary::run(&["completions", "bash"], &[]).await.stdout;
    let ask = "COMP_WORDS=(taskgate st) COMP_CWORD=1; _taskgate taskgate st taskgate; echo \"${COMPREPLY[*]}\"";
    let bash = Command::new("bash").args(["-c", &format!("{script}\n{ask}")]).output().await.unwrap();
    assert_eq!(String::from_utf8(bash.stdout).unwrap(), "stdio store\n", "{}", String::from_utf8_lossy(&bash.stderr));
}

#[tokio::test]
async fn writing_a_script_to_a_closed_pipe_exits_0() {
    let (_, closed) = std::io::pipe().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
    let script =
        command.args(["completions", "bash"]).env_clear().stdout(closed).stderr(Stdio::piped()).spawn().unwrap();
    let ended = script.wait_with_output().await.unwrap();
    assert_eq!((ended.status.code(), ended.stderr), (Some(0), Vec::new()));
}

#[tokio::test]
async fn a_script_that_cannot_be_written_is_an_error() {
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskgate"));
    let script = command.args(["completions", "bash"]).env_clear().stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let ended = script.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && said.contains("the script cannot be written"), "{said}");
}

#[tokio::test]
async fn an_unknown_shell_is_answered_with_the_known_ones() {
    let ended = Binary::run(&["completions", "tcsh"], &[]).await;
    assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
    assert!(ended.stderr.contains("tcsh") && ended.stderr.contains("zsh"), "{}", ended.stderr);
}

#[tokio::test]
async fn the_man_pages_cover_every_subcommand_that_the_help_shows() {
    let folder = tempfile::tempdir().unwrap();
    let written = Binary::run(&["man", folder.path().to_str().unwrap()], &[]).await;
    assert_eq!((written.code, written.stdout, written.stderr), (Some(0), String::new(), String::new()));
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let store = ["-store-backup.1", "-store-check.1", "-store-export.1", "-store.1"];
    let expected = [&["-check.1", "-completions.1", "-demo.1", "-serve.1", "-stdio.1"][..], &store, &[".1"]].concat();
    assert_eq!(names, expected.iter().map(|name| format!("taskgate{name}")).collect::<Vec<_>>());
    let serve = fs::read_to_string(folder.path().join("taskgate-serve.1")).unwrap();
    assert!(serve.contains("TASKGATE_LISTEN") && serve.contains("allowed\\-host"), "{serve}");
}

#[tokio::test]
async fn a_missing_folder_for_man_pages_is_named() {
    let ended = Binary::run(&["man", "/no/such/folder"], &[]).await;
    assert_eq!((ended.code, ended.stdout), (Some(1), String::new()));
    assert!(ended.stderr.contains("/no/such/folder"), "{}", ended.stderr);
}

#[test]
fn the_systemd_unit_fits_the_drain_the_connections_and_the_exit_codes_of_taskgate() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/taskgate.service");
    let unit = fs::read_to_string(unit).unwrap();
    let number = |key: &str| -> u64 {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap().parse().unwrap()
    };
    let text = "[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"";
    let server = config::parse("config.toml", text, Overrides::default()).unwrap().server;
    let stop = Duration::from_secs(number("TimeoutStopSec"));
    assert_eq!(stop, server.drain_timeout + Duration::from_secs(15), "docs/operations.md says 15 s more");
    assert!(number("LimitNOFILE") > 2 * u64::try_from(server.max_connections).unwrap());
    for (line, why) in [
        ("RestartPreventExitStatus=64", "a wrong configuration is not tried again and again"),
        ("RestartSec=2s", "a port or a file may be in use for a moment"),
        ("StartLimitIntervalSec=0", "or for longer"),
        ("KillMode=mixed", "a stop lets the stdio servers live while taskgate drains"),
    ] {
        assert!(unit.lines().any(|other| other == line), "{line}: {why}");
    }
}
