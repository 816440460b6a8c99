//! Variables that are empty, unknown, or the text of a whole file.

use crate::{
    USAGE, file,
    kit::{Binary, Client, Upstream},
};

const UPSTREAM: &str = "http://127.0.0.1:9/mcp";

#[tokio::test]
async fn the_text_of_a_file_may_come_from_the_environment() {
    let upstream = Upstream::json().await;
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[tasks]\nsupport = \"forbidden\"\n[[upstream]]\npath = \"/own\"\nurl = {:?}\n",
        upstream.url()
    );
    let taskgate = Binary::start(&["serve"], &[("TASKGATE_CONFIG_TOML", &text)]);
    let url = taskgate.url().await;
    assert!(url.ends_with("/own"), "{url}");
    let client = Client::connect(&url).await;
    assert_eq!(client.error("tools/call", serde_json::json!({ "name": "echo", "task": {} })).await.0, -32601);
    let checked = Binary::run(&["check"], &[("TASKGATE_CONFIG_TOML", &text)]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stdout.starts_with("TASKGATE_CONFIG_TOML: no mistakes\n"), "{}", checked.stdout);
}

#[tokio::test]
async fn mistakes_in_a_text_from_the_environment_are_named_with_their_place() {
    for command in ["serve", "check", "stdio"] {
        let ended = Binary::run(&[command], &[("TASKGATE_CONFIG_TOML", "[server]\nlisten = \"here\"\n")]).await;
        assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
        assert!(ended.stderr.contains("TASKGATE_CONFIG_TOML:2:10: server.listen: "), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_file_on_the_command_line_wins_over_a_text_and_a_file_in_the_environment_does_not() {
    let (_dir, path) = file("[[upstream]]\nurl = \"http://127.0.0.1:3000/mcp\"\n");
    let text = ("TASKGATE_CONFIG_TOML", "nonsense");
    assert_eq!(Binary::run(&["check", "--config", &path], &[text]).await.code, Some(0));
    let both = Binary::run(&["check"], &[text, ("TASKGATE_CONFIG", &path)]).await;
    assert_eq!(both.code, USAGE);
    assert!(both.stderr.contains("TASKGATE_CONFIG and TASKGATE_CONFIG_TOML are both set"), "{}", both.stderr);
}

#[tokio::test]
async fn a_variable_that_is_set_but_empty_is_named() {
    for name in [
        "TASKGATE_LISTEN",
        "TASKGATE_ADMIN",
        "TASKGATE_UPSTREAM",
        "TASKGATE_CONFIG",
        "TASKGATE_CONFIG_TOML",
        "TASKGATE_ALLOWED_HOSTS",
        "TASKGATE_ALLOWED_ORIGINS",
        "TASKGATE_STORE",
        "TASKGATE_LOG",
        "TASKGATE_LOG_FORMAT",
    ] {
        let ended = Binary::run(&["serve"], &[(name, "")]).await;
        assert_eq!((ended.code, ended.stdout), (USAGE, String::new()), "{name}");
        let said = format!("the environment variable {name} is set but empty; unset it or give it a value");
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
    }
    // A flag overrides it, so its value does not matter.
    let upstream = Upstream::json().await;
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream.url()];
    let taskgate = Binary::start(&args, &[("TASKGATE_LISTEN", ""), ("TASKGATE_UPSTREAM", "")]);
    Client::connect(&taskgate.url().await).await;
}

#[tokio::test]
async fn a_wrong_word_in_a_variable_is_reported_with_the_variable_and_the_right_words() {
    let ended = Binary::run(&["serve"], &[("TASKGATE_LOG_FORMAT", "xml")]).await;
    assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
    let said = "TASKGATE_LOG_FORMAT: \"xml\": expected one of text, json";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

#[tokio::test]
async fn an_unknown_variable_is_a_warning_that_names_the_nearest_one() {
    let env = [
        ("TASKGATE_LISTN", "127.0.0.1:1"),
        ("TASKGATE_TIMEOUT", "1h"),
        // A taskgate may start another taskgate as its child.
        ("TASKGATE_CHILD", "x"),
        // What Kubernetes sets in every pod for a service of this name.
        ("TASKGATE_SERVICE_HOST", "10.0.0.1"),
        ("TASKGATE_SERVICE_PORT_MCP", "8808"),
        ("TASKGATE_PORT", "tcp://10.0.0.1:8808"),
        ("TASKGATE_PORT_8808_TCP_ADDR", "10.0.0.1"),
    ];
    let taskgate = Binary::start(&["serve", "--upstream", UPSTREAM, "--listen", "127.0.0.1:0"], &env);
    taskgate.url().await;
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    let warnings: Vec<_> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 2, "{log}");
    for (name, said) in [
        ("TASKGATE_LISTN ", "did you mean TASKGATE_LISTEN?"),
        ("TASKGATE_TIMEOUT ", "it knows TASKGATE_ADMIN, TASKGATE_ALLOWED_HOSTS, "),
    ] {
        assert!(warnings.iter().any(|line| line.contains(name) && line.contains(said)), "{log}");
    }
}

#[tokio::test]
async fn taskgates_own_url_and_one_address_for_two_ports_are_named_before_anything_starts() {
    for (args, said) in [
        (
            &["serve", "--listen", "8809", "--upstream", "http://localhost:8809/mcp"][..],
            "--upstream (TASKGATE_UPSTREAM): http://localhost:8809/mcp is where taskgate itself listens",
        ),
        (
            &["serve", "--listen", "8809", "--admin", "8809", "--upstream", UPSTREAM],
            "--admin (TASKGATE_ADMIN): 127.0.0.1:8809 is the address for MCP clients too",
        ),
    ] {
        let ended = Binary::run(args, &[]).await;
        assert_eq!((ended.code, ended.stdout), (USAGE, String::new()));
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn help_has_examples() {
    for subcommand in ["serve", "stdio", "check"] {
        let help = Binary::run(&[subcommand, "--help"], &[]).await.stdout;
        let (_, examples) = help.split_once("Example").unwrap();
        assert!(examples.contains(&format!("taskgate {subcommand} --")), "{help}");
    }
    assert!(Binary::run(&["--help"], &[]).await.stdout.contains("\nExamples:\n  taskgate demo\n"));
}
