//! Sessions of legacy clients go on, and their tasks with them.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};

use crate::{
    House,
    kit::{Children, Client, Script, Seen, Stream, Upstream, status_of, text_in},
};

#[tokio::test]
async fn a_session_works_on_and_its_server_gets_no_request_id_twice() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    for _ in 0..3 {
        client.ask("tools/list", json!({})).await;
        house.restart().await;
    }
    client.ask("tools/list", json!({})).await;
    assert_eq!(upstream.count("initialize"), 1, "no client began anew");
    let seen = upstream.seen();
    let ids: Vec<_> = seen.iter().filter(|seen| seen.json().get("id").is_some()).map(Seen::id).collect();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len(), "{ids:?}");
    assert!(seen.iter().all(|seen| seen.rpc() == "initialize" || seen.header("mcp-session-id") == "upstream-1"));
    assert!(seen.iter().all(|seen| seen.method != Method::DELETE));
}

#[tokio::test]
async fn the_tasks_of_a_client_without_a_name_are_found_in_its_session_as_they_were() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let (good, bad) = (client.create_id("echo").await, client.create_id("error").await);
    let before = [client.until(&good, "completed").await, client.until(&bad, "failed").await];
    let results = [client.collect(&good).await["result"].clone(), client.collect(&bad).await["error"].clone()];
    house.restart().await;
    assert_eq!([client.get(&good).await, client.get(&bad).await], before);
    assert_eq!([client.collect(&good).await["result"].clone(), client.collect(&bad).await["error"].clone()], results);
    assert_eq!(client.list().await, [good.clone(), bad]);
    let other = Client::connect(&house.url).await;
    assert!(other.list().await.is_empty());
    assert_eq!(other.error("tasks/get", json!({ "taskId": good })).await.0, -32602);
    assert_eq!((upstream.count("echo"), upstream.count("error")), (1, 1));
}

#[tokio::test]
async fn a_session_whose_server_was_a_process_answers_task_methods_and_says_404_to_the_rest() {
    let children = Children::new(Script::default());
    let config = format!("[[upstream]]\ncommand = {}\n", json!(children.command()));
    let mut house = House::configured(&config, &[]).await;
    let client = Client::connect(&house.url).await;
    let id = client.create_id("pid").await;
    client.until(&id, "completed").await;
    house.restart().await;
    assert_eq!(status_of(&client.get(&id).await), "completed");
    assert!(!text_in(&client.collect(&id).await["result"]).is_empty());
    assert_eq!(client.answer("tools/list", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_session_that_its_client_has_ended_stays_ended() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let (gone, stays) = (Client::connect(&house.url).await, Client::connect(&house.url).await);
    assert_eq!(gone.delete().await.status, 200);
    house.restart().await;
    assert_eq!(gone.answer("tools/list", json!({})).await.status, 404);
    assert_eq!(stays.answer("tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_session_that_its_client_has_ended_while_the_disk_took_nothing_ends_and_its_client_hears_of_the_disk() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let (gone, stays) = (Client::connect(&house.url).await, Client::connect(&house.url).await);
    let mark = house.folder.path().join("store.db-mark");
    let away = house.folder.path().join("away");
    std::fs::rename(&mark, &away).unwrap();
    let answer = gone.delete().await;
    assert_eq!((answer.status.as_u16(), answer.header("retry-after")), (503, "1"));
    let why = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(why.contains("has ended") && why.contains("until it is done"), "{why}");
    assert_eq!(gone.answer("tools/list", json!({})).await.status, 404);
    std::fs::rename(&away, &mark).unwrap();
    house.end(rustix::process::Signal::TERM).await;
    house.start_again().await;
    assert_eq!(gone.answer("tools/list", json!({})).await.status, 404);
    assert_eq!(stays.answer("tools/list", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_client_whose_session_the_disk_does_not_remove_is_told_no_path_and_no_advice_which_the_log_has() {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let mark = house.folder.path().join("store.db-mark");
    std::fs::rename(&mark, house.folder.path().join("away")).unwrap();
    let answer = client.delete().await;
    assert_eq!(answer.status, 503);
    let advice = format!("{}\\\" was moved away or removed while it was in use; put it back", mark.display());
    for told in [mark.to_str().unwrap(), "put it back"] {
        assert!(!answer.text().contains(told), "{}", answer.text());
    }
    let warned = house.running.as_ref().unwrap().logged_after("the store is unavailable").await;
    assert!(warned.contains(&advice), "{warned}");
}

#[tokio::test]
async fn a_session_that_the_disk_never_took_ends_at_once_and_leaves_nothing_to_remove() {
    let upstream = Upstream::json().await;
    let house = House::before(&upstream.url(), "[server]\nadmin = \"127.0.0.1:0\"\n").await;
    let mark = house.folder.path().join("store.db-mark");
    std::fs::rename(&mark, house.folder.path().join("away")).unwrap();
    for _ in 0..5 {
        assert_eq!(Client::connect(&house.url).await.delete().await.status, 200);
    }
    let admin = house.running.as_ref().unwrap().admin().await;
    let metrics = Client::new(&format!("{admin}/metrics")).send(Method::GET, "").await;
    assert!(metrics.text().contains("\ntaskgate_disk_backlog 0\n"), "{}", metrics.text());
}

#[tokio::test]
async fn a_session_that_its_server_has_forgotten_meanwhile_is_lost_as_any() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    upstream.forget_sessions();
    house.restart().await;
    assert_eq!(client.answer("tools/list", json!({})).await.status, 404);
}

#[tokio::test]
async fn the_stream_of_a_server_is_opened_again_and_reaches_a_client_that_resumes_its_own_on_a_fresh_one() {
    let upstream = Upstream::sse().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    let (server, mut stream) = (upstream.get_stream().await, client.get_stream().await);
    server.notify("notifications/message", json!({ "level": "info", "data": "one" })).await;
    let last = next_with_id(&mut stream).await;
    house.restart().await;
    let server = upstream.get_stream().await;
    let mut stream = client.with("last-event-id", &last).get_stream().await;
    server.notify("notifications/message", json!({ "level": "info", "data": "two" })).await;
    assert_eq!(stream.message().await["params"]["data"], "two");
    let answer = last.replacen("-0-", "-1-", 1);
    let answer = client.with("last-event-id", &answer).send(Method::GET, "").await;
    assert_eq!(answer.status, 400, "the answer to a request does not come any more");
}

/// Returns the id of the first event with a message.
async fn next_with_id(stream: &mut Stream) -> String {
    stream.next().await.unwrap().id.unwrap()
}

#[tokio::test]
async fn a_cursor_is_good_in_the_next_process() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "").await;
    let client = Client::connect(&house.url).await;
    for _ in 0..60 {
        client.create_id("echo").await;
    }
    let first = client.ask("tasks/list", json!({})).await;
    house.restart().await;
    let second = client.ask("tasks/list", json!({ "cursor": first["nextCursor"] })).await;
    let ids = |page: &Value| -> Vec<Value> {
        page["tasks"].as_array().unwrap().iter().map(|task| task["taskId"].clone()).collect()
    };
    let all: HashSet<_> = ids(&first).into_iter().chain(ids(&second)).map(|id| id.to_string()).collect();
    assert_eq!(all.len(), 60);
}

#[tokio::test]
async fn limits_on_sessions_count_those_that_were_restored() {
    let upstream = Upstream::json().await;
    let auth = "[server]\nmax_sessions_per_owner = 2\n[auth]\nmode = \"header\"\nheader = \"x-user\"\n\
                trusted_peers = [\"127.0.0.1\"]\n";
    let mut house = House::before(&upstream.url(), auth).await;
    let ann = Client::new(&house.url).with("x-user", "ann");
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(ann.clone().initialize("2025-11-25", json!({})).await);
    }
    house.restart().await;
    sessions.push(ann.clone().initialize("2025-11-25", json!({})).await);
    let mut alive = 0;
    for session in &sessions {
        alive += usize::from(session.answer("tools/list", json!({})).await.status == 200);
    }
    assert_eq!(alive, 2, "one had to give way");
    let bob = sessions[2].with("x-user", "bob");
    assert_eq!(bob.answer("tools/list", json!({})).await.status, 404, "it is ann's");
}

#[tokio::test]
async fn a_session_that_no_client_comes_back_to_ends_when_it_is_idle() {
    let upstream = Upstream::json().await;
    let mut house = House::before(&upstream.url(), "[server]\nsession_idle = \"2s\"\n").await;
    Client::connect(&house.url).await;
    house.restart().await;
    let ended = upstream.wait_for(|seen| seen.method == Method::DELETE).await;
    assert_eq!(ended.header("mcp-session-id"), "upstream-1");
}
