//! `config.toml` at the top of the project, as it stands.

use std::{env, path::Path};

use serde_json::json;

use crate::kit::{Binary, Client};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config.toml");

/// Returns a `PATH` on which the taskgate of this build comes first.
fn path() -> String {
    let here = Path::new(env!("CARGO_BIN_EXE_taskgate")).parent().unwrap();
    format!("{}:{}", here.display(), env::var("PATH").unwrap())
}

#[tokio::test]
async fn the_complete_file_is_accepted_and_serves_the_server_of_the_demo() {
    let checked = Binary::run(&["check", "--config", FILE], &[]).await;
    assert_eq!((checked.code, checked.stderr), (Some(0), String::new()));
    assert!(checked.stdout.starts_with(&format!("{FILE}: no mistakes\n")), "{}", checked.stdout);
    let taskgate = Binary::start(&["serve", "--config", FILE, "--listen", "127.0.0.1:0"], &[("PATH", &path())]);
    let client = Client::connect(&taskgate.url().await).await;
    let tools = client.ask("tools/list", json!({})).await;
    assert_eq!(tools["tools"][0]["name"], "write_report");
    let id = client.create_id("write_report").await;
    // The first report of its progress; the file says that it may take minutes.
    client.until_task(&id, |task| task["statusMessage"].as_str().is_some_and(|said| said.starts_with("0 of 5"))).await;
    client.cancel(&id).await;
    assert_eq!(client.delete().await.status, 200);
}
