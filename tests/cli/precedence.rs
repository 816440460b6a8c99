//! Flags win over the environment, the environment over the file.

use std::net::TcpListener;

use serde_json::json;

use crate::{
    USAGE, file,
    kit::{Binary, Client, Upstream, text_in},
};

const ANY: &str = "127.0.0.1:0";

/// Returns an address that no other process can listen on.
fn taken() -> (TcpListener, String) {
    let taken = TcpListener::bind(ANY).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    (taken, address)
}

/// Returns which of the servers the process stands in front of.
async fn stands_before(taskgate: &Binary, upstreams: &[&Upstream]) -> Vec<bool> {
    Client::connect(&taskgate.url().await).await;
    upstreams.iter().map(|upstream| upstream.count("initialize") > 0).collect()
}

#[tokio::test]
async fn the_file_alone_is_enough() {
    let upstream = Upstream::json().await;
    let (_dir, path) = file(&format!("[server]\nlisten = {ANY:?}\n[[upstream]]\nurl = {:?}\n", upstream.url()));
    let taskgate = Binary::start(&["serve", "--config", &path], &[]);
    assert_eq!(stands_before(&taskgate, &[&upstream]).await, [true]);
}

#[tokio::test]
async fn the_environment_alone_is_enough() {
    let upstream = Upstream::json().await;
    let env = [("TASKGATE_UPSTREAM", &*upstream.url()), ("TASKGATE_LISTEN", ANY), ("TASKGATE_ADMIN", ANY)];
    let taskgate = Binary::start(&["serve"], &env);
    assert_eq!(stands_before(&taskgate, &[&upstream]).await, [true]);
    assert!(taskgate.admin().await.starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn the_environment_wins_over_the_file() {
    let (in_file, in_env) = (Upstream::json().await, Upstream::json().await);
    let (_taken, address) = taken();
    let (_dir, path) = file(&format!(
        "[server]\nlisten = {address:?}\nadmin = {address:?}\n[[upstream]]\npath = \"/own\"\nurl = {:?}\n",
        in_file.url()
    ));
    let env = [
        ("TASKGATE_CONFIG", &*path),
        ("TASKGATE_LISTEN", ANY),
        ("TASKGATE_ADMIN", ANY),
        ("TASKGATE_UPSTREAM", &*in_env.url()),
    ];
    let taskgate = Binary::start(&["serve"], &env);
    assert_eq!(stands_before(&taskgate, &[&in_file, &in_env]).await, [false, true]);
    // What the environment leaves out still comes from the file.
    assert!(taskgate.url().await.ends_with("/own"));
}

#[tokio::test]
async fn flags_win_over_the_environment() {
    let (in_env, in_flags) = (Upstream::json().await, Upstream::json().await);
    let (_taken, address) = taken();
    let env = [
        ("TASKGATE_CONFIG", "/no/such/config.toml"),
        ("TASKGATE_LISTEN", &*address),
        ("TASKGATE_ADMIN", &*address),
        ("TASKGATE_UPSTREAM", &*in_env.url()),
    ];
    let (_dir, path) = file("");
    let url = in_flags.url();
    let args = ["serve", "--config", &path, "--listen", ANY, "--admin", ANY, "--upstream", &url];
    let taskgate = Binary::start(&args, &env);
    assert_eq!(stands_before(&taskgate, &[&in_env, &in_flags]).await, [false, true]);
}

#[tokio::test]
async fn a_command_on_the_command_line_wins_over_a_url_in_the_environment() {
    let in_env = Upstream::json().await;
    let args = ["serve", "--listen", ANY, "--", env!("CARGO_BIN_EXE_taskgate"), "demo-server"];
    let taskgate = Binary::start(&args, &[("TASKGATE_UPSTREAM", &*in_env.url())]);
    let client = Client::connect(&taskgate.url().await).await;
    assert_eq!(client.initialized["serverInfo"]["name"], "slow-server");
    assert_eq!(in_env.count("initialize"), 0);
}

#[tokio::test]
async fn the_policy_of_the_file_holds_for_a_target_from_elsewhere() {
    let upstream = Upstream::json().await;
    let (_dir, path) = file("[tasks]\nsupport = \"forbidden\"\n");
    let url = upstream.url();
    let taskgate = Binary::start(&["serve", "--config", &path, "--listen", ANY, "--upstream", &url], &[]);
    let client = Client::connect(&taskgate.url().await).await;
    assert_eq!(client.error("tools/call", json!({ "name": "echo", "task": {} })).await.0, -32601);
    let result = client.ask("tools/call", json!({ "name": "echo", "arguments": {} })).await;
    assert_eq!(text_in(&result), "{}");
}

#[tokio::test]
async fn a_target_from_elsewhere_cannot_replace_several() {
    let text = "[[upstream]]\npath = \"/a\"\nurl = \"http://127.0.0.1:1/\"\n\
        [[upstream]]\npath = \"/b\"\nurl = \"http://127.0.0.1:2/\"\n";
    let (_dir, path) = file(text);
    let env = [("TASKGATE_UPSTREAM", "http://127.0.0.1:3/")];
    let ended = Binary::run(&["serve", "--config", &path, "--listen", ANY], &env).await;
    assert_eq!(ended.code, USAGE);
    assert!(ended.stderr.contains("upstream"), "{}", ended.stderr);
}

#[tokio::test]
async fn lists_may_be_given_more_than_once_or_with_commas() {
    let upstream = Upstream::json().await;
    let url = upstream.url();
    let args = ["serve", "--upstream", &url, "--listen", ANY, "--allowed-host", "a.test", "--allowed-host", "b.test"];
    let by_flags = Binary::start(&args, &[]);
    let env = [("TASKGATE_ALLOWED_HOSTS", "a.test,b.test")];
    let by_env = Binary::start(&["serve", "--upstream", &url, "--listen", ANY], &env);
    for taskgate in [by_flags, by_env] {
        let client = Client::connect(&taskgate.url().await).await;
        for (host, status) in [("a.test", 200), ("b.test", 200), ("c.test", 403)] {
            assert_eq!(client.with("host", host).answer("ping", json!({})).await.status, status, "{host}");
        }
    }
}
