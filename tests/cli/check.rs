//! `taskgate check`

use crate::{USAGE, file, kit::Binary};

const WRONG: &str = "[server]\nlisten = \"here\"\nport = 1\n[tasks]\nttl = \"soon\"\n";

#[tokio::test]
async fn a_valid_file_exits_0_and_shows_its_endpoints() {
    let text = "[server]\nlisten = \"127.0.0.1:4000\"\n\
        [[upstream]]\npath = \"/a\"\nurl = \"http://127.0.0.1:3000/mcp\"\n\
        [[upstream]]\npath = \"/b\"\ncommand = [\"npx\", \"-y\", \"server\"]\n";
    let (_dir, path) = file(text);
    let checked = Binary::run(&["check", "--config", &path], &[]).await;
    let shown = format!(
        "{path}: no mistakes\n  http://127.0.0.1:4000/a -> http://127.0.0.1:3000/mcp\n  \
         http://127.0.0.1:4000/b -> npx -y server\n"
    );
    assert_eq!((checked.code, checked.stdout, checked.stderr), (Some(0), shown, String::new()));
}

#[tokio::test]
async fn every_mistake_is_named_with_its_place_and_the_exit_code_is_64() {
    let (_dir, path) = file(WRONG);
    let checked = Binary::run(&["check", "--config", &path], &[]).await;
    assert_eq!((checked.code, checked.stdout), (USAGE, String::new()));
    let places: Vec<String> = ["2:10: server.listen: ", "3:1: server.port: ", "5:7: tasks.ttl: "]
        .map(|place| format!("{path}:{place}"))
        .to_vec();
    for place in &places {
        assert!(checked.stderr.contains(place), "{place} in {}", checked.stderr);
    }
    assert!(checked.stderr.contains("upstream"), "{}", checked.stderr);
}

#[tokio::test]
async fn a_missing_file_is_named() {
    let checked = Binary::run(&["check", "--config", "/no/such/config.toml"], &[]).await;
    assert_eq!((checked.code, checked.stdout), (USAGE, String::new()));
    assert!(checked.stderr.contains("/no/such/config.toml"), "{}", checked.stderr);
    assert!(checked.stderr.contains("No such file"), "{}", checked.stderr);
}

#[tokio::test]
async fn the_file_may_come_from_the_environment() {
    let (_dir, path) = file("[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"\n");
    let checked = Binary::run(&["check"], &[("TASKGATE_CONFIG", &path)]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.starts_with(&path), "{}", checked.stdout);
}

#[tokio::test]
async fn check_reads_the_file_alone_and_nothing_that_would_override_it() {
    let (_dir, path) = file("[server]\nlisten = \"here\"\n[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"\n");
    let checked = Binary::run(&["check", "--config", &path], &[("TASKGATE_LISTEN", "127.0.0.1:0")]).await;
    assert_eq!(checked.code, USAGE);
}

#[tokio::test]
async fn check_needs_a_file() {
    let checked = Binary::run(&["check"], &[]).await;
    assert_eq!((checked.code, checked.stdout), (USAGE, String::new()));
    assert!(checked.stderr.contains("--config"), "{}", checked.stderr);
}

#[tokio::test]
async fn serve_names_the_same_mistakes_as_check() {
    let (_dir, path) = file(WRONG);
    let checked = Binary::run(&["check", "--config", &path], &[]).await;
    let served = Binary::run(&["serve", "--config", &path], &[]).await;
    assert_eq!((served.code, served.stdout, served.stderr), (USAGE, String::new(), checked.stderr));
}

#[tokio::test]
async fn the_server_behind_may_come_from_the_environment_where_the_file_names_none() {
    let (_dir, path) = file("[tasks]\ntimeout = \"10m\"\n");
    let args = ["check", "--config", &path];
    let upstream = "TASKGATE_UPSTREAM";
    let checked = Binary::run(&args, &[(upstream, "http://127.0.0.1:3000/mcp")]).await;
    assert_eq!((checked.code, checked.stderr), (Some(0), String::new()));
    assert!(checked.stdout.contains("/mcp -> http://127.0.0.1:3000/mcp"), "{}", checked.stdout);
    for (env, said) in [(&[][..], "upstream: missing"), (&[(upstream, "here")], "TASKGATE_UPSTREAM: expected a URL")] {
        let checked = Binary::run(&args, env).await;
        assert_eq!((checked.code, checked.stdout), (USAGE, String::new()));
        assert!(checked.stderr.contains(said), "{}", checked.stderr);
    }
}

#[tokio::test]
async fn the_store_may_come_from_the_environment_as_serve_takes_it() {
    let text = "[store]\nkey = { env = \"KEY\" }\n[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"\n";
    let (_dir, path) = file(text);
    let args = ["check", "--config", &path];
    let key = ("KEY", "0123456789012345678901234567890123456789");
    let checked = Binary::run(&args, &[key, ("TASKGATE_STORE", "tasks.db")]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains("tasks are kept in tasks.db, sealed"), "{}", checked.stdout);
    let checked = Binary::run(&args, &[key]).await;
    assert!(checked.stderr.contains("only used with kind = \"file\""), "{}", checked.stderr);
}

#[tokio::test]
async fn what_may_be_wrong_in_a_valid_file_is_a_warning() {
    let text = "[server]\nlisten = \"0.0.0.0:4000\"\n[audit]\nto = \"file\"\nfile = \"none/audit.jsonl\"\n\
        [[upstream]]\ncommand = [\"./server\"]\n";
    let (_dir, path) = file(text);
    let checked = Binary::run(&["check", "--config", &path], &[]).await;
    assert_eq!(checked.code, Some(0));
    let warnings: Vec<_> = checked.stderr.lines().collect();
    let said = ["knows no users", "audit.file: ", "/mcp: its command "];
    assert_eq!(warnings.len(), said.len(), "{}", checked.stderr);
    for (warning, said) in warnings.iter().zip(said) {
        assert!(warning.starts_with("warning: ") && warning.contains(said), "{warning}");
    }
}

#[tokio::test]
async fn a_report_of_more_than_a_mebibyte_is_whole() {
    let hosts = "\"*\",\n".repeat(8000);
    let (_dir, path) = file(&format!("[server]\nallowed_hosts = [{hosts}]\n"));
    for command in ["check", "serve"] {
        let ended = Binary::run(&[command, "--config", &path], &[]).await;
        assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
        assert!(ended.stderr.len() > 1 << 20);
        // The last one is the server that is missing.
        assert_eq!(ended.stderr.lines().count(), 8001);
    }
}

#[tokio::test]
async fn no_secret_of_a_url_is_repeated() {
    let (_dir, path) = file("[[upstream]]\nurl = \"http://127.0.0.1:9/mcp?key=hush\"\n");
    let checked = Binary::run(&["check", "--config", &path], &[]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.contains(" -> http://127.0.0.1:9/mcp\n"), "{}", checked.stdout);
    let (_dir, path) = file("[[upstream]]\nurl = \"http://ann:hush@127.0.0.1:9/mcp\"\n");
    let (_none, none) = file("");
    let variable = [("TASKGATE_UPSTREAM", "http://ann:hush@127.0.0.1:9/mcp")];
    for (args, env) in [
        (&["check", "--config", &path][..], &[][..]),
        (&["check", "--config", &none], &variable),
        (&["serve"], &variable),
        (&["serve", "--upstream", "http://ann:hush@127.0.0.1:9/mcp"], &[]),
    ] {
        let ended = Binary::run(args, env).await;
        assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
        let said = ended.stderr;
        assert!(said.contains("http://…@127.0.0.1:9/mcp") && said.contains("user name"), "{said}");
        assert!(!said.contains("hush"), "{said}");
    }
}

#[tokio::test]
async fn a_file_that_a_variable_names_in_vain_is_named_with_the_variable() {
    let (dir, path) = file("[server]\nlisten = \"here\"\n");
    let missing = dir.path().join("missing.toml");
    for (named, said) in [
        (missing.to_str().unwrap(), format!("taskgate: TASKGATE_CONFIG: {}: cannot be read", missing.display())),
        (&path, format!("{path}:2:10: server.listen")),
    ] {
        for command in ["check", "serve"] {
            let ended = Binary::run(&[command], &[("TASKGATE_CONFIG", named)]).await;
            assert!(
                ended.code == USAGE && ended.stderr.lines().any(|line| line.starts_with(&said)),
                "{}",
                ended.stderr
            );
        }
    }
}
