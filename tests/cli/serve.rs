//! `taskgate serve`, the mistakes that keep it from starting, and the help.

use std::net::TcpListener;

use serde_json::json;

use crate::{
    USAGE, file,
    kit::{Binary, Client, Options, Upstream},
};

const UPSTREAM: &str = "http://127.0.0.1:9/mcp";

/// Checks arguments that cannot work: exit code 64, the reason on stderr, nothing on stdout.
async fn refused(args: &[&str], env: &[(&str, &str)]) -> String {
    let ended = Binary::run(args, env).await;
    assert_eq!((ended.code, ended.stdout), (USAGE, String::new()), "{args:?}: {}", ended.stderr);
    ended.stderr
}

#[tokio::test]
async fn serve_without_a_target_says_what_to_give() {
    let why = refused(&["serve"], &[]).await;
    for way in ["--upstream", "-- COMMAND", "--config"] {
        assert!(why.contains(way), "{way} in {why}");
    }
}

#[tokio::test]
async fn serve_with_two_targets_says_so() {
    let why = refused(&["serve", "--upstream", UPSTREAM, "--", "cat"], &[]).await;
    assert!(why.contains("not both"), "{why}");
}

#[tokio::test]
async fn invalid_arguments_are_named() {
    for (args, part) in [
        (&["serve", "--listen", "here", "--upstream", UPSTREAM][..], "--listen"),
        (&["serve", "--upstream", "ftp://host/mcp"], "ftp"),
        (&["serve", "--upstream", UPSTREAM, "--allowed-origin", "host"], "--allowed-origin"),
        (&["serve", "--upstream", UPSTREAM, "--log", "taskgate=loud"], "taskgate=loud"),
        (&["serve", "--upstream", UPSTREAM, "--log-format", "xml"], "xml"),
        (&["serve", "--nonsense"], "--nonsense"),
        (&["nonsense"], "nonsense"),
        (&["stdio", "--upstream", "ftp://host/mcp"], "ftp"),
    ] {
        let why = refused(args, &[]).await;
        assert!(why.contains(part), "{part} in {why}");
    }
    let why = refused(&["serve", "--upstream", UPSTREAM], &[("TASKGATE_LISTEN", "there")]).await;
    assert!(why.contains("there"), "{why}");
}

#[tokio::test]
async fn a_port_in_use_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for place in ["--listen", "--admin"] {
        let other = if place == "--admin" { "--listen" } else { "--admin" };
        let args = ["serve", "--upstream", UPSTREAM, place, &address, other, "127.0.0.1:0"];
        let ended = Binary::run(&args, &[]).await;
        assert_eq!((ended.code, ended.stdout), (Some(1), String::new()));
        assert!(ended.stderr.contains(&format!("cannot listen on {address}: ")), "{}", ended.stderr);
        assert!(ended.stderr.contains(place), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn serve_writes_its_log_to_stderr_and_nothing_to_stdout() {
    let upstream = Upstream::json().await;
    let url = upstream.url();
    let args = ["serve", "--upstream", &url, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "trace"];
    let taskgate = Binary::start(&args, &[]);
    let client = Client::connect(&taskgate.url().await).await;
    assert!(taskgate.admin().await.starts_with("http://127.0.0.1:"));
    let id = client.create_id("fail").await;
    client.until(&id, "failed").await;
    assert_eq!(client.delete().await.status, 200);
    taskgate.signal(rustix::process::Signal::TERM);
    let ended = taskgate.end().await;
    assert_eq!((ended.code, ended.stdout), (Some(0), String::new()));
    for part in ["session opened", "the result says isError", "session ended", "stopping"] {
        assert!(ended.stderr.contains(part), "{part} in {}", ended.stderr);
    }
}

#[tokio::test]
async fn the_log_can_be_json_with_one_object_a_line() {
    let args = ["serve", "--upstream", UPSTREAM, "--listen", "127.0.0.1:0"];
    let taskgate = Binary::start(&args, &[("TASKGATE_LOG_FORMAT", "json")]);
    taskgate.url().await;
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[0]["fields"]["message"].as_str().unwrap().starts_with("listening on http://127.0.0.1:"), "{log}");
}

#[tokio::test]
async fn help_names_every_subcommand_and_each_explains_itself() {
    let help = Binary::run(&["--help"], &[]).await;
    assert_eq!((help.code, help.stderr), (Some(0), String::new()));
    for subcommand in ["serve", "check", "demo"] {
        assert!(help.stdout.contains(&format!("\n  {subcommand} ")), "{}", help.stdout);
        let own = Binary::run(&[subcommand, "--help"], &[]).await;
        assert_eq!((own.code, own.stderr), (Some(0), String::new()));
        assert!(own.stdout.contains(&format!("taskgate {subcommand}")), "{}", own.stdout);
    }
    // A part of the demo, hidden from the help.
    assert!(!help.stdout.contains("demo-server"), "{}", help.stdout);
}

#[tokio::test]
async fn patterns_that_match_no_tool_and_limits_without_effect_are_warned_of_once() {
    let upstream = Upstream::json().await;
    let tables = ["ech*", "export_*", "fetch"].map(|pattern| format!("[upstream.tools.\"{pattern}\"]\n")).concat();
    let (_dir, path) = file(&format!("[[upstream]]\nurl = {:?}\n{tables}", upstream.url()));
    let args = ["serve", "--listen", "127.0.0.1:0", "--config", &path];
    let taskgate = Binary::start(&args, &[]);
    let url = taskgate.url().await;
    for _ in 0..2 {
        Client::connect(&url).await.ask("tools/list", json!({})).await;
    }
    let capabilities = json!({ "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } });
    let options = Options { capabilities, versions: vec!["2025-11-25"], ..Options::default() };
    let native = Upstream::start(options).await;
    let (_dir, path) = file(&format!("[[upstream]]\nurl = {:?}\nnative = \"keep\"\n", native.url()));
    let keeps = Binary::start(&["serve", "--listen", "127.0.0.1:0", "--config", &path], &[]);
    let url = keeps.url().await;
    for _ in 0..2 {
        Client::connect(&url).await;
    }
    for (taskgate, said) in [(taskgate, "match none of the tools"), (keeps, "has tasks of its own")] {
        taskgate.signal(rustix::process::Signal::TERM);
        let log = taskgate.end().await.stderr;
        let lines: Vec<_> = log.lines().filter(|line| line.contains(said)).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains("WARN") && lines[0].contains("/mcp"), "{log}");
        if said.starts_with("match") {
            assert!(lines[0].contains("export_*, fetch") && !lines[0].contains("ech*"), "{log}");
        }
    }
}

#[tokio::test]
async fn limits_for_tools_that_keep_the_servers_tasks_are_named_in_a_warning() {
    let capabilities = json!({ "tools": {}, "tasks": { "requests": { "tools": { "call": {} } } } });
    let native = |name: &str| json!({ "name": name, "inputSchema": {}, "execution": { "taskSupport": "optional" } });
    let tools = json!([{ "name": "echo", "inputSchema": {} }, native("research"), native("report")]);
    let upstream = Upstream::start(Options { capabilities, versions: vec!["2025-11-25"], tools, ..Options::default() });
    let upstream = upstream.await;
    let (_dir, path) = file(&format!(
        "[[upstream]]\nurl = {:?}\n[upstream.tools.echo]\ntimeout = \"3m\"\n[upstream.tools.\"rese*\"]\ntimeout = \"3m\"\n\
         [upstream.tools.report]\nsupport = \"forbidden\"\n",
        upstream.url()
    ));
    let taskgate = Binary::start(&["serve", "--listen", "127.0.0.1:0", "--config", &path], &[]);
    let url = taskgate.url().await;
    for _ in 0..2 {
        Client::connect(&url).await.ask("tools/list", json!({})).await;
    }
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    let lines: Vec<_> = log.lines().filter(|line| line.contains("keeps its own tasks")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("upstream=\"/mcp\" patterns=\"rese*\""), "{log}");
}

#[tokio::test]
async fn an_address_beyond_the_machine_without_users_is_one_warning_at_the_start() {
    for (listen, warnings) in [("0.0.0.0:0", 1), ("127.0.0.1:0", 0)] {
        let taskgate = Binary::start(&["serve", "--upstream", UPSTREAM, "--listen", listen], &[]);
        taskgate.url().await;
        taskgate.signal(rustix::process::Signal::TERM);
        let log = taskgate.end().await.stderr;
        let said = log.lines().filter(|line| line.contains("WARN")).collect::<Vec<_>>();
        assert_eq!(said.len(), warnings, "{log}");
        assert!(said.iter().all(|line| line.contains("knows no users") && line.contains("auth.mode")), "{log}");
    }
}

#[tokio::test]
async fn an_audit_file_that_cannot_be_opened_is_named_with_what_to_do() {
    let (dir, path) = file("[audit]\nto = \"file\"\nfile = \"none/audit.jsonl\"\n");
    let args = ["serve", "--config", &path, "--upstream", UPSTREAM, "--listen", "127.0.0.1:0"];
    let ended = Binary::run(&args, &[]).await;
    let audit = dir.path().join("none/audit.jsonl");
    assert_eq!((ended.code, ended.stdout), (Some(1), String::new()));
    assert!(ended.stderr.contains(audit.to_str().unwrap()), "{}", ended.stderr);
    assert!(ended.stderr.contains("; name a file in a folder that exists"), "{}", ended.stderr);
}

#[tokio::test]
async fn an_audit_log_in_a_log_that_leaves_its_lines_out_is_a_warning() {
    let (_dir, path) = file("[audit]\nto = \"log\"\n");
    for (level, warned) in [("info", false), ("warn,taskgate=info,taskgate::audit=warn", true)] {
        let args = ["--log", level, "serve", "--config", &path, "--upstream", UPSTREAM, "--listen", "127.0.0.1:0"];
        let taskgate = Binary::start(&args, &[]);
        taskgate.url().await;
        taskgate.signal(rustix::process::Signal::TERM);
        let log = taskgate.end().await.stderr;
        assert_eq!(log.contains("add taskgate::audit=info"), warned, "{log}");
    }
}

#[tokio::test]
async fn a_command_without_two_dashes_gets_the_way_to_write_it() {
    for subcommand in ["serve", "stdio"] {
        let why = refused(&[subcommand, "npx", "-y", "server"], &[]).await;
        assert!(why.contains("put `--` before the command that starts the server"), "{why}");
    }
    for args in [&["check", "npx"][..], &["serve", "--nonsense"]] {
        let why = refused(args, &[]).await;
        assert!(!why.contains("put `--`"), "{why}");
    }
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_a_warning_at_the_start() {
    let taskgate = Binary::start(&["serve", "--listen", "127.0.0.1:0", "--", "no-such-server"], &[]);
    taskgate.url().await;
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    let said: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(said.len(), 1, "{log}");
    assert!(said[0].contains("/mcp: its command no-such-server does not exist, or is not on PATH"), "{log}");
}
