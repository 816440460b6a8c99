//! Children that write what they should not, or do not read: their call, their session and all others go on.

use serde_json::json;

use crate::kit::{Binary, Children, Client, Gate, Script, soon, text_of};

#[tokio::test]
async fn a_flood_on_stderr_does_not_hold_up_an_answer() {
    // A line without end, and many lines: each more than a pipe holds.
    let tools = r#"*'"name":"flood"'*)
        head -c 1000000 /dev/zero | tr '\0' x >&2
        yes 'still here' | head -n 50000 >&2
        text "$id" dry ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "flood").await, "dry");
}

#[tokio::test]
async fn a_flood_on_stderr_from_the_first_moment_does_not_hold_up_the_start() {
    let children = Children::new(Script { setup: "yes wait | head -n 100000 >&2", ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
}

#[tokio::test]
async fn lines_that_are_no_messages_are_skipped() {
    let setup = "echo 'Welcome to the server!'";
    let tools = r#"*'"name":"babble"'*)
        printf 'Debugger attached.\n\n   \n{"half":\n[]\n7\nnull\n"text"\n{}\n'
        printf '\377\376 no UTF-8\n\000\n'
        printf '{"level":"info","id":%s,"msg":"a line of a log"}\n' "$id"
        printf '{"id":%s,"method":"GET","path":"/"}\n' "$id"
        printf '{"jsonrpc":"2.0","id":99999,"result":{"of":"nobody"}}\n'
        text "$id" 'to the point' ;;"#;
    let children = Children::new(Script { setup, tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "babble").await, "to the point");
    let id = client.create_id("babble").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn lines_may_end_as_on_windows_and_arrive_in_pieces() {
    let tools = r#"*'"name":"slowly"'*)
        printf '{"jsonrpc":"2.0","id":%s,' "$id"
        sleep 0.1
        printf '"result":{"content":[{"type":"text","text":"at last"}]}}\r\n' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "slowly").await, "at last");
}

#[tokio::test]
async fn lines_may_begin_with_a_byte_order_mark() {
    let setup = r#"reply() { printf '\357\273\277{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }"#;
    let children = Children::new(Script { setup, ..Script::default() });
    let gate = children.gate("").await;
    let client = soon(Client::connect(&gate.url)).await;
    assert_eq!(soon(text_of(&client, "pid")).await, children.only().await.pid);
}

#[tokio::test]
async fn a_long_answer_arrives_whole() {
    let tools = r#"*'"name":"long"'*) text "$id" "$(head -c 3000000 /dev/zero | tr '\0' x)" ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    assert_eq!(text_of(&client, "long").await.len(), 3_000_000);
    let id = client.create_id("long").await;
    client.until(&id, "completed").await;
}

#[tokio::test]
async fn sessions_whose_child_does_not_answer_initialize_count_towards_max_sessions() {
    let children = Children::new(Script { setup: "exec sleep 60", ..Script::default() });
    let gate = children.gate("[server]\nmax_sessions = 1").await;
    let first = Client::new(&gate.url);
    let asking = tokio::spawn(async move { first.ask_to_initialize("2025-11-25", json!({})).await });
    let child = children.only().await;
    let (status, code, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert_eq!((status, code), (200, -32603));
    assert!(message.contains("server.max_sessions = 1"), "{message}");
    assert_eq!(children.started().len(), 1);
    asking.abort();
    child.gone().await;
}

#[tokio::test]
async fn many_megabytes_on_stderr_hold_up_neither_the_task_nor_another_session() {
    let tools =
        r#"*'"name":"flood"'*) yes "$(head -c 1000 /dev/zero | tr '\0' x)" | head -c 20000000 >&2; text "$id" dry ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let (flooding, other) = (Client::connect(&gate.url).await, Client::connect(&gate.url).await);
    let id = flooding.create_id("flood").await;
    assert!(!soon(text_of(&other, "pid")).await.is_empty());
    flooding.until(&id, "completed").await;
    assert_eq!(flooding.collect(&id).await["result"]["content"][0]["text"], "dry");
}

#[tokio::test]
async fn a_line_that_is_too_long_ends_the_task_that_it_answers_and_the_next_line_is_read() {
    let tools = r#"*'"name":"too long"'*)
        printf '{"jsonrpc":"2.0","id":%s,"result":{"text":"' "$id"
        head -c 67200000 /dev/zero | tr '\0' x
        echo '"}}' ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    let client = Client::connect(&gate.url).await;
    let held = client.create_id("hold").await;
    let id = client.create_id("too long").await;
    let failed = client.until(&id, "failed").await;
    assert!(failed["statusMessage"].as_str().unwrap().contains("max_result = 16777216 bytes"), "{failed}");
    assert_eq!(text_of(&client, "release").await, "done");
    client.until(&held, "completed").await;
}

#[tokio::test]
async fn the_log_has_the_length_of_the_first_line_that_is_no_message_and_the_number_of_the_others() {
    let children =
        Children::new(Script { setup: "echo 'the password is hunter2'; echo more; echo more", ..Script::default() });
    let options = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--"];
    let args: Vec<&str> = options.into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let client = Client::connect(&taskgate.url().await).await;
    assert_eq!(text_of(&client, "pid").await, children.only().await.pid);
    let metrics = Client::new(&format!("{}/metrics", taskgate.admin().await)).send(http::Method::GET, "").await;
    assert!(metrics.text().contains("taskgate_child_junk_lines_total 3\n"), "{}", metrics.text());
    taskgate.signal(rustix::process::Signal::TERM);
    let log = taskgate.end().await.stderr;
    assert_eq!(log.matches("not a message").count(), 1, "{log}");
    assert!(log.contains("bytes=23") && !log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn the_log_has_long_lines_of_stderr_whole() {
    let children = Children::new(Script { setup: "echo \"begin $(printf '%05000d' 7) end\" >&2", ..Script::default() });
    let args: Vec<&str> = ["serve", "--listen", "127.0.0.1:0", "--"].into_iter().chain(children.command()).collect();
    let taskgate = Binary::start(&args, &[]);
    let _client = Client::connect(&taskgate.url().await).await;
    let line = taskgate.logged_after("begin ").await;
    assert!(line.len() > 5000 && line.contains("7 end"), "{line}");
}

#[tokio::test]
async fn the_error_of_a_child_that_dies_quotes_the_line_of_stderr_that_tells_why() {
    let words =
        "printf 'Error: no such account\\n    at login (index.js:1:1)\\n\\nNode.js v20.20.2\\n+-----\\n' >&2; exit 1";
    let gate = Gate::with_command("sh", &["-c", words], "").await;
    let (_, _, message) = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await.refusal();
    assert!(message.ends_with("exit status: 1; its last words: Error: no such account"), "{message}");
}
