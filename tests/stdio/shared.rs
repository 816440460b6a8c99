//! One child for all sessions: what they share, and what they do not.

use serde_json::{Value, json};

use crate::kit::{Children, Client, Gate, Process, Script, eventually, status_of, text_in, text_of};

const SHARED: &str = "[[upstream]]\nshared = true";

/// Answers and asks when it is told to, by the number of the call.
const SERVER: Script = Script {
    setup: "",
    tools: r#"*'"name":"keep '*) name=${line#*'"name":"keep '}; name=${name%%\"*}; eval "kept_$name=\$id" ;;
    *'"name":"give '*)
        name=${line#*'"name":"give '}; name=${name%%\"*}; eval "kept=\$kept_$name"
        text "$kept" "for $name"; text "$id" given ;;
    *'"name":"advance '*)
        name=${line#*'"name":"advance '}; name=${name%%\"*}; eval "kept=\$kept_$name"
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' "$kept"
        text "$id" advanced ;;
    *'"name":"ask"'*)
        asked=$id
        echo '{"jsonrpc":"2.0","id":"q-1","method":"elicitation/create","params":{"message":"Really?"}}' ;;
    *'"name":"withdraw"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q-1"}}'
        text "$id" withdrawn ;;
    *'"id":"q-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;
    *'"name":"ping back"'*) asked=$id; echo '{"jsonrpc":"2.0","id":"p-1","method":"ping"}' ;;
    *'"id":"p-1"'*) text "$asked" "$(printf '%s' "$line" | tr -d '"\\')" ;;
    *'"name":"change"'*) echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'; text "$id" changed ;;
    *'"name":"log"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"hear"}}'
        text "$id" logged ;;"#,
    after: "note 'end of stdin'",
};

async fn shared(script: Script) -> (Children, Gate) {
    let children = Children::new(script);
    let gate = children.gate(SHARED).await;
    (children, gate)
}

async fn with_elicitation(gate: &Gate) -> Client {
    Client::connect_as(&gate.url, "2025-11-25", json!({ "elicitation": {} })).await
}

/// A call in flight, once the child has it.
async fn call(client: &Client, child: &Process, tool: &str) -> tokio::task::JoinHandle<Value> {
    let (client, name) = (client.clone(), tool.to_owned());
    let calling = tokio::spawn(async move { client.ask("tools/call", json!({ "name": name })).await });
    child.line(&format!("{tool:?}")).await;
    calling
}

#[tokio::test]
async fn all_sessions_have_one_child_which_is_initialized_once_and_by_taskgate() {
    let (children, gate) = shared(Script::default()).await;
    assert!(children.started().is_empty(), "it is started for a session, not before");
    let (ann, bob) = tokio::join!(Client::connect(&gate.url), Client::connect_as(&gate.url, "2025-03-26", json!({})));
    let child = children.only().await;
    assert_eq!((text_of(&ann, "pid").await, text_of(&bob, "pid").await), (child.pid.clone(), child.pid.clone()));
    let initialize = child.message(r#""initialize""#).await;
    let info = json!({ "name": "taskgate", "version": env!("CARGO_PKG_VERSION") });
    assert_eq!(
        (&initialize["params"]["clientInfo"], &initialize["params"]["protocolVersion"]),
        (&info, &json!("2025-11-25"))
    );
    let capabilities = &initialize["params"]["capabilities"];
    assert_eq!(capabilities["elicitation"], json!({ "form": {}, "url": {} }));
    assert!(capabilities["roots"].is_object() && capabilities["sampling"].is_object());
    let greetings: Vec<_> = child.lines().into_iter().filter(|line| line.contains("initialize")).collect();
    assert_eq!(greetings.len(), 2, "initialize and initialized, once each: {greetings:?}");
}

#[tokio::test]
async fn each_session_agrees_on_its_own_revision_and_sees_the_childs_answer() {
    let (_children, gate) = shared(Script::default()).await;
    let ann = Client::connect(&gate.url).await;
    let bob = Client::connect_as(&gate.url, "2024-11-05", json!({})).await;
    for (client, version) in [(&ann, "2025-11-25"), (&bob, "2024-11-05")] {
        assert_eq!(client.initialized["protocolVersion"], version);
        assert_eq!(client.initialized["serverInfo"], json!({ "name": "sh", "version": "1" }));
    }
    assert!(ann.initialized["capabilities"]["tasks"].is_object());
    assert_eq!(bob.initialized["capabilities"].get("tasks"), None);
}

#[tokio::test]
async fn a_child_that_only_speaks_an_older_revision_and_says_so_with_an_error_is_asked_again() {
    let tools = r#"*'"method":"initialize"'*2025-11-25*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no","data":{"supported":["2024-11-05"]}}}\n' "$id" ;;"#;
    let (children, gate) = shared(Script { tools, ..Script::default() }).await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
}

#[tokio::test]
async fn calls_of_two_sessions_with_the_same_ids_get_their_own_answers() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    // Both clients number their requests from 1.
    let of_ann = call(&ann, &child, "keep ann").await;
    let of_bob = call(&bob, &child, "keep bob").await;
    assert_eq!(text_of(&ann, "give bob").await, "given");
    assert_eq!(text_in(&of_bob.await.unwrap()), "for bob");
    assert_eq!(text_of(&bob, "give ann").await, "given");
    assert_eq!(text_in(&of_ann.await.unwrap()), "for ann");
}

#[tokio::test]
async fn progress_reaches_the_call_that_it_is_about_under_the_clients_own_token() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let with_token = |name: &str| json!({ "name": name, "_meta": { "progressToken": "mine" } });
    let (caller, params) = (ann.clone(), with_token("keep ann"));
    let of_ann = tokio::spawn(async move { caller.answer("tools/call", params).await });
    child.line("keep ann").await;
    let mut of_bob = bob.stream("tools/call", with_token("keep bob"));
    child.line("keep bob").await;
    text_of(&ann, "advance bob").await;
    text_of(&bob, "give bob").await;
    text_of(&bob, "give ann").await;
    assert_eq!(of_bob.message().await["params"], json!({ "progressToken": "mine", "progress": 1 }));
    assert_eq!(text_in(&of_bob.message().await["result"]), "for bob");
    let of_ann = of_ann.await.unwrap();
    assert!(!of_ann.is_stream(), "nothing but the answer: {of_ann:?}");
    assert_eq!(text_in(&of_ann.json()["result"]), "for ann");
}

#[tokio::test]
async fn progress_of_a_task_shows_in_its_own_status_only() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let with_token = |name: &str| json!({ "name": name, "task": {}, "_meta": { "progressToken": 1 } });
    let task = async |client: &Client, tool: &str| {
        let created = client.ask("tools/call", with_token(tool)).await;
        child.line(&format!("{tool:?}")).await;
        created["task"]["taskId"].as_str().unwrap().to_owned()
    };
    let (of_ann, of_bob) = (task(&ann, "keep ann").await, task(&bob, "keep bob").await);
    text_of(&ann, "advance bob").await;
    bob.until_task(&of_bob, |task| task["statusMessage"].as_str().is_some_and(|text| text.starts_with('1'))).await;
    assert!(!ann.get(&of_ann).await["statusMessage"].as_str().unwrap_or_default().starts_with('1'));
}

#[tokio::test]
async fn cancelling_names_the_call_as_the_child_knows_it_and_no_other() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let (of_ann, of_bob) = (ann.create_id("keep ann").await, bob.create_id("keep bob").await);
    child.line("keep ann").await;
    let call = child.message("keep bob").await;
    bob.cancel(&of_bob).await;
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
    assert_eq!(status_of(&ann.get(&of_ann).await), "working");
    // A request id of another session means nothing.
    assert_eq!(bob.notify("notifications/cancelled", json!({ "requestId": 1 })).await, 202);
    text_of(&ann, "give ann").await;
    ann.until(&of_ann, "completed").await;
    assert_eq!(child.lines().iter().filter(|line| line.contains("notifications/cancelled")).count(), 1);
}

#[tokio::test]
async fn a_session_that_ends_cancels_its_calls_and_leaves_the_child_to_the_others() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    ann.create_id("keep ann").await;
    let call_of_ann = child.message("keep ann").await;
    let of_bob = call(&bob, &child, "keep bob").await;
    ann.delete().await;
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call_of_ann["id"]);
    text_of(&bob, "give bob").await;
    assert_eq!(text_in(&of_bob.await.unwrap()), "for bob");
    // The child that answers a call of a session that has gone changes nothing.
    assert_eq!(text_of(&bob, "give ann").await, "given");
    assert_eq!(child.lines().iter().filter(|line| line.contains("notifications/cancelled")).count(), 1);
}

#[tokio::test]
async fn a_question_goes_to_the_session_whose_call_is_the_only_one_and_only_its_first_answer_goes_back() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let mut heard_by_bob = bob.get_stream().await;
    let mut call = ann.stream("tools/call", json!({ "name": "ask" }));
    let question = call.message().await;
    assert_eq!(question["params"]["message"], "Really?");
    // Another session's answer is taken, and goes nowhere.
    assert_eq!(bob.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "cancel" })).await, 202);
    assert!(text_in(&call.message().await["result"]).contains("action:accept"));
    let answers = child.lines().into_iter().filter(|line| line.contains("action")).count();
    assert_eq!(answers, 1);
    text_of(&ann, "change").await;
    assert_eq!(heard_by_bob.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn with_several_calls_in_flight_the_session_with_the_newest_call_is_asked() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let of_ann = call(&ann, &child, "keep ann").await;
    let mut asking = bob.stream("tools/call", json!({ "name": "ask" }));
    let question = asking.message().await;
    assert_eq!(ann.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(bob.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    assert!(text_in(&asking.message().await["result"]).contains("action:accept"));
    text_of(&bob, "give ann").await;
    of_ann.await.unwrap();
}

#[tokio::test]
async fn a_session_whose_client_cannot_be_asked_answers_with_an_error_at_once() {
    let (_children, gate) = shared(SERVER).await;
    let (unable, able) = (Client::connect(&gate.url).await, with_elicitation(&gate).await);
    let _listening = able.get_stream().await;
    let answer = text_of(&unable, "ask").await;
    assert!(answer.contains("error:") && answer.contains("Client does not support elicitation"), "{answer}");
}

#[tokio::test]
async fn a_question_whose_session_ends_is_answered_with_an_error() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut asking = ann.stream("tools/call", json!({ "name": "ask" }));
    asking.message().await;
    ann.delete().await;
    let answer = child.message("the session that was asked has ended").await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("q-1"), &json!(-32603)));
    assert_eq!(text_of(&bob, "pid").await, child.pid);
}

#[tokio::test]
async fn a_question_that_is_withdrawn_is_withdrawn_from_the_session_that_got_it() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut asking = ann.stream("tools/call", json!({ "name": "ask" }));
    let question = asking.message().await;
    assert_eq!(text_of(&bob, "withdraw").await, "withdrawn");
    let withdrawn = asking.message().await;
    assert_eq!(
        (&withdrawn["method"], &withdrawn["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!("q-1"))
    );
    // An answer comes too late.
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    text_of(&bob, "pid").await;
    assert!(!child.lines().iter().any(|line| line.contains("accept")));
}

#[tokio::test]
async fn a_ping_of_the_child_is_answered_by_taskgate() {
    let (_children, gate) = shared(SERVER).await;
    let client = Client::connect(&gate.url).await;
    assert!(text_of(&client, "ping back").await.contains("result:{}"));
}

#[tokio::test]
async fn what_concerns_everybody_reaches_every_session() {
    let (_children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let (mut of_ann, mut of_bob) = (ann.get_stream().await, bob.get_stream().await);
    text_of(&ann, "change").await;
    assert_eq!(of_ann.message().await["method"], "notifications/tools/list_changed");
    assert_eq!(of_bob.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_log_message_reaches_the_session_of_the_only_call_and_with_several_all_sessions() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let mut of_bob = bob.get_stream().await;
    let mut logging = ann.stream("tools/call", json!({ "name": "log" }));
    assert_eq!(logging.message().await["method"], "notifications/message");
    assert_eq!(text_in(&logging.message().await["result"]), "logged");
    // Nothing of it has come to the other session: this is the first that does.
    text_of(&ann, "change").await;
    assert_eq!(of_bob.message().await["method"], "notifications/tools/list_changed");
    let kept = call(&ann, &child, "keep ann").await;
    text_of(&ann, "log").await;
    assert_eq!(of_bob.message().await["method"], "notifications/message");
    text_of(&ann, "give ann").await;
    kept.await.unwrap();
}

#[tokio::test]
async fn a_child_that_dies_fails_the_calls_of_all_sessions_and_the_next_session_starts_another() {
    let (children, gate) = shared(Script::default()).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let task = ann.create_id("hold").await;
    child.line(r#""hold""#).await;
    let (_, message) = bob.error("tools/call", json!({ "name": "die" })).await;
    assert!(message.ends_with("exit status: 3; its last words: the disk is on fire"), "{message}");
    let failed = ann.until(&task, "failed").await;
    assert_eq!(failed["statusMessage"], message);
    child.gone().await;
    for client in [&ann, &bob] {
        let lost = async || Some(client.answer("ping", json!({})).await.status).filter(|status| *status == 404);
        eventually(lost).await;
    }
    let anew = Client::connect(&gate.url).await;
    assert_ne!(text_of(&anew, "pid").await, child.pid);
    assert_eq!(children.started().len(), 2);
    // What was acknowledged can still be asked for.
    assert_eq!(status_of(&ann.get(&task).await), "failed");
}

#[tokio::test]
async fn a_child_that_ends_before_it_is_initialized_is_every_waiting_sessions_error() {
    let (children, gate) =
        shared(Script { setup: "echo 'no licence' >&2; sleep 0.2; exit 4", ..Script::default() }).await;
    let (ann, bob) = (Client::new(&gate.url), Client::new(&gate.url));
    let (ann, bob) =
        tokio::join!(ann.ask_to_initialize("2025-11-25", json!({})), bob.ask_to_initialize("2025-11-25", json!({})));
    for answer in [ann, bob] {
        let (status, code, message) = answer.refusal();
        assert_eq!((status, code), (200, -32603));
        assert!(message.ends_with("exit status: 4; its last words: no licence"), "{message}");
    }
    assert_eq!(children.started().len(), 1);
}

#[tokio::test]
async fn a_child_that_refuses_to_initialize_gives_its_own_error_and_ends() {
    let refusing = r#"*'"method":"initialize"'*)
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"closed"}}\n' "$id" ;;"#;
    let (children, gate) = shared(Script { tools: refusing, ..Script::default() }).await;
    let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
    assert_eq!(answer.refusal(), (200, -32000, "closed".to_owned()));
    assert_eq!(answer.json()["id"], 0);
    children.only().await.gone().await;
}

#[tokio::test]
async fn the_child_outlives_a_pause_between_sessions_and_ends_with_taskgate() {
    let (children, gate) = shared(SERVER).await;
    let client = Client::connect(&gate.url).await;
    let child = children.only().await;
    client.delete().await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, child.pid);
    client.delete().await;
    gate.stop().await;
    assert!(!child.is_alive());
    child.line("end of stdin").await;
}

#[tokio::test]
async fn a_client_that_leaves_while_the_child_starts_does_not_keep_others_from_it() {
    let (children, gate) =
        shared(Script { setup: "while [ ! -e \"$dir/go\" ]; do sleep 0.01; done", ..Script::default() }).await;
    let first = Client::new(&gate.url);
    let asking = tokio::spawn(async move { first.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    let url = gate.url.clone();
    let second = tokio::spawn(async move { Client::connect(&url).await });
    asking.abort();
    children.touch("go");
    assert_eq!(text_of(&second.await.unwrap(), "pid").await, child.pid);
}

#[tokio::test]
async fn a_task_that_asks_gets_its_own_sessions_answer() {
    let (children, gate) = shared(SERVER).await;
    let (ann, bob) = (with_elicitation(&gate).await, with_elicitation(&gate).await);
    let child = children.only().await;
    let (mut of_ann, _of_bob) = (ann.get_stream().await, bob.get_stream().await);
    let task = ann.create_id("ask").await;
    let question = loop {
        // The changes of the task's status are told there too.
        let message = of_ann.message().await;
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert_eq!(bob.respond(&question["id"], json!({ "action": "decline" })).await, 202);
    assert_eq!(ann.respond(&question["id"], json!({ "action": "accept" })).await, 202);
    ann.until(&task, "completed").await;
    assert!(text_in(&ann.collect(&task).await["result"]).contains("action:accept"));
    assert_eq!(child.lines().iter().filter(|line| line.contains("action")).count(), 1);
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_call_that_it_answers_and_no_other() {
    let tools = r#"*'"name":"too long"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"' "$id"
        head -c 67200000 /dev/zero | tr '\0' x
        echo '"}}' ;;"#;
    let (children, gate) = shared(Script { tools, ..Script::default() }).await;
    let (ann, bob) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let child = children.only().await;
    let of_bob = call(&bob, &child, "hold").await;
    let (_, message) = ann.error("tools/call", json!({ "name": "too long" })).await;
    assert!(message.contains("larger than the limit of 67108864 bytes"), "{message}");
    assert_eq!(text_of(&ann, "release").await, "done");
    assert_eq!(text_in(&of_bob.await.unwrap()), "released");
}
