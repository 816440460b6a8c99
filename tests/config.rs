//! Reading configuration: what files mean, and what the reports say about wrong ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::format_push_string, clippy::assigning_clones, reason = "plain code reads better in a test")]

#[path = "config/auth.rs"]
mod auth;
#[path = "config/complete.rs"]
mod complete;
#[path = "config/overrides.rs"]
mod overrides;
#[path = "config/paths.rs"]
mod paths;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use taskgate::config::{
    AuditOwner, AuditTo, Auth, Config, Mistakes, Native, Overrides, PollInterval, Process, Rates, Store, StoreFile,
    Support, Target, Tasks, Tool, Transport, allowed_host, allowed_origin, load, parse, target_from_url,
};
use tempfile::TempDir;

const ONE: &str = "[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"\n";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the TOML files of a folder, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(!files.is_empty(), "{folder} has no files");
    files
}

fn valid(text: &str) -> Config {
    parse("config.toml", text, Overrides::default()).unwrap_or_else(|mistakes| panic!("{mistakes}\n{text}"))
}

fn mistakes(text: &str) -> Mistakes {
    parse("config.toml", text, Overrides::default()).unwrap_err()
}

fn server_url() -> Target {
    target_from_url("http://127.0.0.1:9/mcp").unwrap()
}

/// Overrides that supply the server behind.
fn with_target() -> Overrides {
    Overrides { target: Some(server_url()), ..Overrides::default() }
}

#[test]
fn every_invalid_file_gets_exactly_the_expected_report() {
    let mut wrong = Vec::new();
    for path in files("tests/config/invalid") {
        let name = path.file_name().unwrap().to_str().unwrap();
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
        let text = fs::read_to_string(&path).unwrap();
        let actual = match parse(name, &text, Overrides::default()) {
            Ok(_) => "accepted\n".to_owned(),
            Err(mistakes) => format!("{mistakes}\n"),
        };
        if actual != expected {
            wrong.push(format!("{name}\n--- expected\n{expected}--- actual\n{actual}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_valid_file_and_every_example_loads() {
    for folder in ["tests/config/valid", "examples/config"] {
        for path in files(folder) {
            let (_files, text) = with_files(&fs::read_to_string(&path).unwrap());
            parse(path.to_str().unwrap(), &text, Overrides::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        }
    }
}

#[test]
fn every_toml_block_in_the_documentation_is_valid() {
    for page in ["README.md", "docs/configuration.md", "docs/clients.md", "docs/security.md", "docs/servers.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let blocks: Vec<_> = text.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert!(!blocks.is_empty(), "{page} has no toml blocks");
        for block in blocks {
            let (_files, block) = with_files(block);
            // A block about one section leaves the server behind to the command line.
            let overrides = if block.contains("[[upstream]]") { Overrides::default() } else { with_target() };
            parse(page, &block, overrides).unwrap_or_else(|mistakes| panic!("{mistakes}\n{block}"));
        }
    }
}

/// Returns a text with the files that it names in another place, where they exist.
fn with_files(text: &str) -> (TempDir, String) {
    let (folder, key) = (tempfile::tempdir().unwrap(), KeyPair::generate().unwrap());
    let certificate = CertificateParams::default().self_signed(&key).unwrap();
    for (name, text) in [
        ("cert.pem", certificate.pem()),
        ("clients.pem", certificate.pem()),
        ("key.pem", key.serialize_pem()),
        ("secret", "hush".to_owned()),
        ("store-key", "hush".repeat(8)),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let text = text.replace("/etc/taskgate", folder.path().to_str().unwrap());
    (folder, text)
}

/// Keys with their defaults from the tables of the reference, by section.
fn reference() -> BTreeMap<String, BTreeMap<String, String>> {
    let text = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let mut sections = BTreeMap::<_, BTreeMap<_, _>>::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = heading.trim_matches(['`', '[', ']']).to_owned();
        } else if let Some(row) = line.strip_prefix("| `") {
            let cells: Vec<_> = row.split(" | ").collect();
            let key = cells[0].trim_matches('`').to_owned();
            sections.entry(section.clone()).or_default().insert(key, cells[2].to_owned());
        }
    }
    sections
}

#[test]
fn the_reference_lists_exactly_the_keys_that_exist() {
    let reference = reference();
    assert_eq!(
        reference.keys().collect::<Vec<_>>(),
        ["audit", "auth", "rate", "server", "server.tls", "store", "tasks", "upstream"]
    );
    for (section, keys) in reference {
        let header = if section == "upstream" { "[[upstream]]" } else { &format!("[{section}]") };
        let report = mistakes(&format!("{header}\nno_such_key = 1\n"));
        let unknown = report.iter().find(|mistake| mistake.key.ends_with("no_such_key")).unwrap();
        let (_, known) = unknown.message.split_once(" are ").unwrap();
        let mut known: Vec<_> = known.split(", ").collect();
        known.sort_unstable();
        assert_eq!(keys.keys().collect::<Vec<_>>(), known, "{section}");
    }
}

#[test]
fn the_reference_has_the_true_defaults() {
    let mut text = String::new();
    // Where no key has a default, some keys may be required.
    let has_default = |keys: &BTreeMap<_, String>| keys.values().any(|default| default.starts_with('`'));
    for (section, keys) in reference().into_iter().filter(|(_, keys)| has_default(keys)) {
        text += &format!("[{section}]\n").replace("[upstream]", "[[upstream]]");
        for (key, default) in keys {
            if let Some(default) = default.strip_prefix('`') {
                text += &format!("{key} = {}\n", default.trim_end_matches('`'));
            }
        }
    }
    // A stdio server may have any of the keys with a default.
    let target = Target::Command { program: "server".to_owned(), args: Vec::new() };
    let overrides = Overrides { target: Some(target.clone()), ..Overrides::default() };
    assert_eq!(parse("config.toml", &text, overrides).unwrap(), Config::for_upstream(target));
}

/// Returns the counts and seconds of the rates.
fn rates(Rates { task_methods, creations, failed_lookups }: Rates) -> [(u32, u64); 3] {
    [task_methods, creations, failed_lookups].map(|rate| (rate.count.get(), rate.period.as_secs()))
}

#[test]
fn an_unset_key_has_its_default() {
    let Config { server, auth, audit, rate, store, tasks, upstreams } = valid(ONE);
    assert_eq!(server.listen.to_string(), "127.0.0.1:8808");
    assert_eq!(server.admin, None);
    assert_eq!((server.max_body, server.max_outbox, server.max_sessions), (4 << 20, 1 << 20, 10_000));
    assert_eq!((server.max_connections, server.max_head), (20_000, 64 << 10));
    assert_eq!((server.head_timeout, server.body_timeout), (Duration::from_secs(10), Duration::from_mins(1)));
    assert_eq!(server.session_idle, Duration::from_mins(30));
    assert_eq!(server.drain_timeout, Duration::from_secs(30));
    assert_eq!(auth, Auth::None);
    assert_eq!((server.max_outbox_total, server.max_sessions_per_owner, server.max_streams), (128 << 20, 1000, 256));
    assert_eq!(server.max_body_total, 128 << 20);
    let expected = Tasks {
        max_tasks_per_owner: 1000,
        max_tasks: 100_000,
        max_running_per_owner: 256,
        max_running_total: 1024,
        max_queued_per_owner: 1000,
        max_queued_total: 10_000,
        max_queued_bytes_per_owner: 64 << 20,
        max_queued_bytes: 128 << 20,
        max_waiters: 256,
        max_waiters_per_owner: 1000,
        max_waiters_total: 10_000,
        max_result_bytes: 512 << 20,
        max_result_bytes_per_owner: 128 << 20,
    };
    assert_eq!((tasks, store), (expected, Store::Memory));
    assert_eq!((audit.to, audit.owner), (AuditTo::Off, AuditOwner::Hash));
    assert_eq!(rates(rate), [(300_000, 60), (60_000, 60), (60, 60)]);
    let [upstream] = &upstreams[..] else { panic!("{upstreams:?}") };
    assert_eq!((&*upstream.path, upstream.native), ("/mcp", Native::Auto));
    assert_eq!(upstream.transport, Transport::Auto);
    assert_eq!(upstream.process, Process { env: Vec::new(), cwd: None, shared: false, max_children: 100 });
    let tool = upstream.policy.tool("any");
    let expected = Tool {
        pattern: "*".into(),
        support: Support::Optional,
        ttl: Duration::from_mins(15),
        max_ttl: Duration::from_hours(24),
        poll_interval: PollInterval::Auto,
        min_poll_interval: Duration::from_millis(500),
        max_poll_interval: Duration::from_secs(30),
        timeout: Duration::from_hours(1),
        input_timeout: Duration::from_hours(1),
        max_running: 32,
        max_queued: 256,
        max_result: 16 * 1024 * 1024,
        task_after: Duration::from_secs(1),
        immediate_response: None,
        heartbeat: None,
        job_after: None,
        job_text: None,
        job_wait_text: None,
    };
    assert_eq!(**tool, expected);
}

#[test]
fn every_key_takes_effect() {
    let path = root().join("tests/config/valid/everything.toml");
    let Config { server, auth, audit, rate, store, tasks, upstreams } = load(&path, Overrides::default()).unwrap();
    assert_eq!(
        (server.listen.to_string(), server.admin.unwrap().to_string()),
        ("0.0.0.0:80".into(), "[::1]:9808".into())
    );
    assert_eq!(server.allowed_hosts, ["mcp.example.com", "mcp.example.com:8443", "[::1]:80"]);
    assert_eq!(server.allowed_origins, ["https://app.example.com", "http://localhost:5173", "vscode-webview://panel"]);
    assert_eq!((server.max_body, server.max_outbox, server.max_sessions), (1 << 20, 64 << 10, 1));
    assert_eq!(server.max_body_total, 3 << 20);
    assert_eq!((server.max_connections, server.max_head), (1, 1024));
    assert_eq!((server.head_timeout, server.body_timeout), (Duration::from_secs(5), Duration::from_secs(20)));
    assert_eq!(server.session_idle, Duration::from_mins(90));
    assert_eq!(server.drain_timeout, Duration::from_secs(90));
    let file = StoreFile { max_store_bytes: 16 << 20, ..StoreFile::at(root().join("tests/config/valid/tasks.db")) };
    assert_eq!(store, Store::File(file));
    let Auth::Header { name, trusted_peers } = auth else { panic!("{auth:?}") };
    assert_eq!(name, "x-forwarded-user");
    let trusted = |peer: &str| trusted_peers.iter().any(|net| net.contains(&peer.parse::<std::net::IpAddr>().unwrap()));
    assert!(trusted("127.0.0.1") && !trusted("127.0.0.2") && trusted("10.9.8.7") && trusted("fd00::1"));
    assert_eq!((server.max_outbox_total, server.max_sessions_per_owner, server.max_streams), (2 << 20, 2, 3));
    let expected = Tasks {
        max_tasks_per_owner: 1,
        max_tasks: 2,
        max_waiters: 3,
        max_waiters_per_owner: 4,
        max_waiters_total: 5,
        max_running_per_owner: 6,
        max_running_total: 7,
        max_queued_per_owner: 8,
        max_queued_total: 9,
        max_queued_bytes_per_owner: 12 << 10,
        max_queued_bytes: 13 << 10,
        max_result_bytes: 10 << 10,
        max_result_bytes_per_owner: 11 << 10,
    };
    assert_eq!(tasks, expected);
    assert_eq!((audit.to, audit.owner), (AuditTo::File(path.with_file_name("audit.jsonl")), AuditOwner::Principal));
    assert_eq!(rates(rate), [(1, 1), (20, 60), (1_000_000, 3600)]);
    let [http, stdio] = &upstreams[..] else { panic!("{upstreams:?}") };
    assert_eq!((&*http.path, http.sse_path.as_deref(), http.native), ("/", Some("/sse"), Native::Keep));
    assert_eq!(http.target, target_from_url("https://example.com").unwrap());
    assert_eq!((http.transport, stdio.transport), (Transport::StreamableHttp, Transport::Auto));
    assert_eq!((&*stdio.path, stdio.native), ("/files", Native::Replace));
    let sent: Vec<_> = http.forward.headers.iter().map(|(name, value)| (name.as_str(), value.expose())).collect();
    assert_eq!(sent, [("x-team", "search"), ("authorization", "taskgate")]);
    assert!(!http.forward.authorization && stdio.forward.authorization);
    let args = vec![String::new(), "--flag".to_owned()];
    assert_eq!(stdio.target, Target::Command { program: "server".to_owned(), args });
    assert_eq!(http.process, Process::default());
    let env = [("API_KEY", "a=b"), ("EMPTY", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let process = Process { env: env.to_vec(), cwd: Some("/".into()), shared: true, max_children: 3 };
    assert_eq!(stdio.process, process);
    let expected = Tool {
        pattern: "*".into(),
        support: Support::Forbidden,
        ttl: Duration::from_millis(1),
        max_ttl: Duration::from_hours(365 * 24),
        poll_interval: PollInterval::Fixed(Duration::from_millis(500)),
        min_poll_interval: Duration::from_millis(50),
        max_poll_interval: Duration::from_mins(1),
        timeout: Duration::from_mins(2),
        input_timeout: Duration::from_mins(3),
        max_running: 1,
        max_queued: 0,
        max_result: 1000,
        task_after: Duration::from_millis(300),
        immediate_response: Some("Working on it.".to_owned()),
        heartbeat: Some(Duration::from_secs(15)),
        job_after: Some(Duration::from_secs(45)),
        job_text: http.policy.tool("export_all").job_text.clone(),
        job_wait_text: http.policy.tool("export_all").job_wait_text.clone(),
    };
    let words = |text: &Option<taskgate::config::Template>| text.as_ref().unwrap().fill(str::to_uppercase);
    assert_eq!(words(&expected.job_text), "Job JOB_ID.");
    assert_eq!(words(&expected.job_wait_text), "Wait for JOB_ID.");
    assert_eq!(**http.policy.tool("export_all"), expected);
    let exports =
        Tool { pattern: "export_*".into(), support: Support::Required, immediate_response: None, ..expected.clone() };
    assert_eq!(**stdio.policy.tool("export_some"), exports);
    let one = Tool { pattern: "export_all".into(), max_running: 7, max_queued: 8, ..expected };
    assert_eq!(**stdio.policy.tool("export_all"), one);
}

#[test]
fn the_exact_name_wins_then_the_longest_pattern_that_matches() {
    let patterns = ["*", "get_*", "*_all", "get_u*_all", "get_users", "g?t", "é*", "a*b*c", "x*", "run", "*run*"];
    let tables = patterns.map(|pattern| format!("[upstream.tools.\"{pattern}\"]\n")).concat();
    let config = valid(&format!("{ONE}{tables}"));
    let policy = &config.upstreams[0].policy;
    for (name, key) in [
        ("get_users", "get_users"),
        ("run", "run"),
        ("rerun", "*run*"),
        ("get_users_all", "get_u*_all"),
        ("get_x", "get_*"),
        // `*_all` and `get_*` are of one length, and `*` comes first.
        ("get_x_all", "*_all"),
        ("get_", "get_*"),
        ("GET_users", "*"),
        ("get", "*"),
        ("g?t", "g?t"),
        ("été", "é*"),
        ("abc", "a*b*c"),
        ("a-b-c-b-c", "a*b*c"),
        ("ab", "*"),
        // A name that looks like a pattern is still a name.
        ("x*", "x*"),
        ("", "*"),
    ] {
        assert_eq!(&*policy.tool(name).pattern, key, "{name}");
    }
    let keys: Vec<_> = policy.tools().map(|(pattern, _)| pattern).collect();
    assert_eq!(
        keys,
        ["get_u*_all", "get_users", "*_all", "*run*", "a*b*c", "get_*", "g?t", "run", "x*", "é*", "*", "*"]
    );
}

#[test]
fn a_table_of_tools_belongs_to_the_block_above() {
    let path = root().join("examples/config/many.toml");
    let config = load(&path, Overrides::default()).unwrap();
    let support = |i: usize, tool| config.upstreams[i].policy.tool(tool).support.as_str();
    assert_eq!((support(0, "list"), support(1, "list"), support(1, "index")), ("optional", "forbidden", "optional"));
    assert_eq!(
        config.upstreams.iter().map(|upstream| &*upstream.path).collect::<Vec<_>>(),
        ["/reports", "/files", "/search"]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    let report = load(&path, Overrides::default()).unwrap_err().to_string();
    assert!(report.starts_with(&format!("{}: cannot be read: ", path.display())), "{report}");
    fs::write(&path, b"[server]\nlisten = \"\xc3\xa9\xff\"\n").unwrap();
    let report = load(&path, Overrides::default()).unwrap_err().to_string();
    assert_eq!(report, format!("{}:2:12: not UTF-8 text from here on", path.display()));
}

#[test]
fn hosts_and_origins_are_kept_as_browsers_send_them() {
    assert_eq!(allowed_host("MCP.Example.com:8443").unwrap(), "mcp.example.com:8443");
    for (given, kept) in [
        ("HTTPS://App.Example.com", "https://app.example.com"),
        ("https://app.example.com:443", "https://app.example.com"),
        ("http://app.example.com:80", "http://app.example.com"),
        ("https://app.example.com:80", "https://app.example.com:80"),
        ("http://[::1]:80", "http://[::1]"),
    ] {
        assert_eq!(allowed_origin(given).unwrap(), kept);
    }
}
