//! At `max_children`, the longest idle session gives way.

use serde_json::json;

use crate::kit::{Binary, Children, Client, Gate, Script, eventually, status_of, text_of};

async fn gate_of(children: &Children, max: usize) -> Gate {
    children.gate(&format!("[[upstream]]\nmax_children = {max}")).await
}

/// Returns whether its session has ended.
async fn has_gone(client: &Client) -> bool {
    client.answer("ping", json!({})).await.status == 404
}

#[tokio::test]
async fn the_longest_idle_session_gives_way_and_gets_404() {
    let children = Children::new(Script::default());
    let gate = gate_of(&children, 3).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(Client::connect(&gate.url).await);
    }
    // Now the second one is the longest idle.
    text_of(&clients[0], "pid").await;
    let newcomer = Client::connect(&gate.url).await;
    assert!(has_gone(&clients[1]).await);
    for client in [&clients[0], &clients[2], &newcomer] {
        assert!(!text_of(client, "pid").await.is_empty());
    }
    assert_eq!(children.started().iter().filter(|child| child.is_alive()).count(), 3);
}

#[tokio::test]
async fn a_stream_a_request_in_flight_and_a_task_each_keep_their_session() {
    let children = Children::new(Script::default());
    let gate = gate_of(&children, 4).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(&gate.url).await);
    }
    let _stream = clients[0].get_stream().await;
    let caller = clients[1].clone();
    let calling = tokio::spawn(async move { text_of(&caller, "hold").await });
    let done = clients[2].create_id("pid").await;
    clients[2].until(&done, "completed").await;
    let running = clients[3].create_id("hold").await;
    let holding =
        || children.started().iter().filter(|child| child.lines().iter().any(|line| line.contains("hold"))).count();
    eventually(async || (holding() == 2).then_some(())).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert!(answer.refusal().2.contains("max_children = 4"), "{answer:?}");
    assert_eq!(status_of(&clients[2].get(&done).await), "completed");
    assert_eq!(status_of(&clients[3].get(&running).await), "working");
    text_of(&clients[1], "release").await;
    assert_eq!(calling.await.unwrap(), "released");
}

#[tokio::test]
async fn a_call_whose_client_has_left_keeps_its_session_too() {
    let children = Children::new(Script::default());
    let gate = gate_of(&children, 1).await;
    let client = Client::connect(&gate.url).await;
    let caller = client.clone();
    let calling = tokio::spawn(async move { caller.ask("tools/call", json!({ "name": "hold" })).await });
    let child = children.only().await;
    child.line("hold").await;
    calling.abort();
    let _ = calling.await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert!(answer.refusal().2.contains("max_children = 1"), "{answer:?}");
    assert!(child.is_alive());
}

#[tokio::test]
async fn clients_that_vanish_lock_no_other_out_and_each_new_session_ends_one() {
    let children = Children::new(Script::default());
    let gate = children.gate("[server]\nadmin = \"127.0.0.1:0\"\n[[upstream]]\nmax_children = 5").await;
    for _ in 0..5 {
        Client::connect(&gate.url).await;
    }
    let newcomers = (0..5).map(|_| Client::connect(&gate.url));
    let newcomers = futures_util::future::join_all(newcomers).await;
    for client in &newcomers {
        assert!(!text_of(client, "pid").await.is_empty());
    }
    let metrics = Client::new(&format!("{}/metrics", gate.admin.as_ref().unwrap())).send(http::Method::GET, "").await;
    let evicted = "taskgate_sessions_evicted_total{reason=\"max_children\"} 5\n";
    assert!(metrics.text().contains(evicted), "{}", metrics.text());
    assert!(metrics.text().contains("taskgate_sessions 5\n"), "{}", metrics.text());
}

#[tokio::test]
async fn the_log_names_the_limit_that_a_session_gave_way_for() {
    let children = Children::new(Script::default());
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[[upstream]]\nmax_children = 1\ncommand = [\"sh\"]").unwrap();
    let options = ["serve", "--config", config.path().to_str().unwrap(), "--listen", "127.0.0.1:0", "--"];
    let args: Vec<&str> = options.into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let url = taskgate.url().await;
    let _left = Client::connect(&url).await;
    let _newcomer = Client::connect(&url).await;
    let line = taskgate.logged_after("was evicted for a new one").await;
    assert!(line.contains("max_children") && line.contains("silent="), "{line}");
}
