//! `sessions = "request"`: each task of a client with a session has a session with the server of its own.

use serde_json::{Value, json};

use crate::kit::{Children, Client, Gate, Script, Upstream, eventually, text_in};

/// Asks in the course of a call, without a word on which one.
const ASKS: Script = Script {
    setup: "",
    tools: r#"
    *'"name":"ask"'*)
        asked=$id
        printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"%s","requestedSchema":{"type":"object","properties":{}}}}\n' $$ ;;
    *'"who":"'*) who=${line#*'"who":"'}; text "$asked" "$$ ${who%%\"*}" ;;
"#,
    after: "",
};

const BY_REQUEST: &str = "[[upstream]]\nsessions = \"request\"\n";

async fn able(gate: &Gate) -> Client {
    Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await
}

#[tokio::test]
async fn questions_of_tasks_that_run_at_once_belong_to_their_own_task_behind_a_command() {
    let children = Children::new(ASKS);
    let gate = children.gate(&format!("{BY_REQUEST}status_notifications = false\n")).await;
    let client = able(&gate).await;
    let mut stream = client.get_stream().await;
    let tasks = [client.create_id("ask").await, client.create_id("ask").await];
    let questions: [Value; 2] = [stream.message().await, stream.message().await];
    assert_ne!(questions[0]["params"]["message"], questions[1]["params"]["message"], "of two processes");
    let related =
        |question: &Value| question["params"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"].clone();
    for id in &tasks {
        client.until(id, "input_required").await;
        let question =
            questions.iter().find(|question| related(question) == **id).unwrap_or_else(|| panic!("{questions:?} {id}"));
        let process = &question["params"]["message"];
        client.respond(&question["id"], json!({ "action": "accept", "content": { "who": process } })).await;
        let text = text_in(&client.collect(id).await["result"]);
        assert_eq!(text, format!("{0} {0}", process.as_str().unwrap()));
    }
    // The children of the tasks end with them, that of the client stays.
    let alive = || children.started().iter().filter(|child| child.is_alive()).count();
    eventually(async || (alive() == 1).then_some(())).await;
    assert_eq!(children.started().len(), 3);
}

#[tokio::test]
async fn each_task_has_a_session_over_http_too_and_plain_calls_stay_in_that_of_their_client() {
    let upstream = Upstream::sse().await;
    let gate = Gate::with(&upstream, BY_REQUEST).await;
    let client = able(&gate).await;
    let ids = [client.create_id("slow").await, client.create_id("slow").await];
    client.ask("tools/call", json!({ "name": "echo" })).await;
    let (first, second) = (upstream.held("slow").await, upstream.held("slow").await);
    let session_of = |seen: &crate::kit::Seen| seen.header("mcp-session-id").to_owned();
    let of_client = upstream
        .seen()
        .iter()
        .find(|seen| seen.rpc() == "tools/call" && seen.json()["params"]["name"] == "echo")
        .map(session_of);
    let [one, two] = [session_of(&first.seen), session_of(&second.seen)];
    assert!(one != two && Some(&one) != of_client.as_ref() && Some(&two) != of_client.as_ref());
    assert_eq!(upstream.count("initialize"), 3);
    let opening = upstream.seen().into_iter().rfind(|seen| seen.rpc() == "initialize").unwrap();
    assert!(opening.json()["params"]["capabilities"]["elicitation"].is_object(), "{opening:?}");
    first.result(r#"{"content":[]}"#);
    let id = eventually(async || {
        let ended = async |id: &String| (client.get(id).await["status"] == "completed").then(|| id.clone());
        ended(&ids[0]).await.or(ended(&ids[1]).await)
    })
    .await;
    upstream.wait_for(|seen| seen.method == http::Method::DELETE && session_of(seen) == one).await;
    // The other one is cancelled where it runs.
    let other = ids.iter().find(|other| **other != id).unwrap();
    client.cancel(other).await;
    let cancelled = upstream.wait_for_message("notifications/cancelled").await;
    assert_eq!(session_of(&cancelled), two);
}

#[tokio::test]
async fn a_task_gets_the_process_that_one_before_it_leaves() {
    let children = Children::new(Script::default());
    let toml = "[[upstream]]\nsessions = \"request\"\nmax_children = 2\n";
    let gate = children.gate(toml).await;
    let client = Client::connect(&gate.url).await;
    let holding = client.create_id("hold").await;
    eventually(async || (children.started().len() == 2).then_some(())).await;
    client.cancel(&holding).await;
    let id = client.create_id("pid").await;
    client.until(&id, "completed").await;
}
