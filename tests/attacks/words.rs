//! Words of a stranger that would mean something else if they went out unchanged: in headers, events and log lines.

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::{Value, json};

use crate::{
    House, PING,
    kit::{Answers, Binary, Client, Event, Gate, Options, Upstream, events, soon},
    raw::{head, post},
};

/// Characters that break lines in one reader or another.
const BREAKS: [&str; 6] = ["\r\n", "\n", "\r", "\r\n\r\n", "\u{2028}", "\u{85}"];

fn evil(line_break: &str) -> String {
    let lines = ["x", "event: injected", "data: injected", "id: injected", "injected: 1", "", "injected"];
    lines.join(line_break)
}

/// Checks that no line of a text is what [`evil`] wanted.
#[track_caller]
fn is_clean(text: &str) {
    let injected = |line: &str| ["event: inj", "data: inj", "id: inj", "inj"].iter().any(|evil| line.starts_with(evil));
    assert!(!text.split(['\r', '\n']).any(injected), "{text}");
}

#[tokio::test]
async fn ids_and_progress_tokens_do_not_break_the_framing_of_events() {
    let upstream = Upstream::start(Options { answers: Answers::Sse, ..Options::default() }).await;
    let gate = Gate::before(&upstream).await;
    let client = Client::connect(&gate.url).await;
    for line_break in BREAKS {
        let (id, token) = (evil(line_break), format!("token{}", evil(line_break)));
        let params = json!({ "name": "slow", "_meta": { "progressToken": token } });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string();
        // Line ends between the members are white space, and must not be taken for those of the events.
        let call = call.replace(",\"", &format!(",{}\"", if line_break.is_ascii() { line_break } else { " " }));
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.post(call).await }
        });
        let held = upstream.held("slow").await;
        let ours = held.seen.json()["params"]["_meta"]["progressToken"].clone();
        let sse = held.sse();
        sse.notify("notifications/progress", json!({ "progressToken": ours, "progress": 1, "message": evil("\r\n") }))
            .await;
        sse.result("{}").await;
        let answer = soon(asked).await.unwrap();
        is_clean(answer.text());
        let events: Vec<Value> =
            events(answer.text()).iter().filter(|event| !event.data.is_empty()).map(Event::json).collect();
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!((&events[0]["params"]["progressToken"], &events[1]["id"]), (&json!(token), &json!(id)));
    }
}

#[tokio::test]
async fn names_that_a_client_sends_come_back_in_json_only() {
    let house = House::new("").await;
    for line_break in BREAKS {
        let evil = evil(line_break);
        for (method, params, code) in [
            ("tasks/get", json!({ "taskId": evil }), -32602),
            ("tasks/result", json!({ "taskId": evil }), -32602),
            ("tasks/cancel", json!({ "taskId": evil }), -32602),
            ("tasks/list", json!({ "cursor": evil }), -32602),
            ("tools/call", json!({ "name": "fail", "task": evil }), -32602),
        ] {
            let answer = house.witness.answer(method, params).await;
            assert_eq!(
                (answer.status.as_u16(), answer.json()["error"]["code"].as_i64()),
                (200, Some(code)),
                "{method}"
            );
            is_clean(answer.text());
            assert!(!format!("{:?}", answer.headers).contains("injected"), "{answer:?}");
        }
        let created = house.witness.create(&evil, json!({})).await;
        is_clean(&created.to_string());
        house.upstream.held(&evil).await.result("{}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_header_cannot_hold_a_line_end_and_an_encoded_one_names_no_session_or_event() {
    let house = House::new("").await;
    let post = post(&house.witness, PING);
    let own = format!("mcp-session-id: {}", house.witness.session());
    for (name, encoded, plain) in
        [("mcp-session-id", 404, 404), ("last-event-id", 400, 400), ("mcp-protocol-version", 400, 400)]
    {
        for (value, status) in
            [("x%0d%0ainjected: 1", encoded), ("x\\r\\ninjected: 1", plain), ("\u{10d}\u{10a}injected: 1", plain)]
        {
            let get = post.replacen("POST", "GET", 1).replacen(PING, "", 1).replacen("content-length: 40\r\n", "", 1);
            let with = match name {
                "mcp-session-id" => get.replacen(&own, &format!("{name}: {value}"), 1),
                _ => get.replacen(&own, &format!("{own}\r\n{name}: {value}"), 1),
            };
            let answer = house.raw().await.write(with).await.answer().await;
            assert_eq!(answer.status, status, "{name}: {value:?}: {answer:?}");
            assert!(!answer.head.contains("injected"), "{answer:?}");
        }
        let broken = post.replacen("accept:", &format!("{name}: x\r\n injected: 1\r\naccept:"), 1);
        assert_eq!(house.raw().await.write(broken).await.answer().await.status, 400);
    }
    house.still_works().await;
}

#[tokio::test]
async fn headers_of_a_client_go_upstream_unchanged_or_not_at_all() {
    let house = House::new("").await;
    let mut raw = house.raw().await;
    let odd = "x-odd: \u{e9}\tb  \r\nx-odd: %0d%0ainjected: 1\r\n";
    let head = head(&house.witness, &format!("{odd}content-length: {}\r\n", PING.len()));
    assert_eq!(raw.write(format!("{head}{PING}")).await.answer().await.status, 200);
    let seen = house.upstream.wait_for_message("ping").await;
    let values: Vec<_> = seen.headers.get_all("x-odd").iter().map(HeaderValue::as_bytes).collect();
    assert_eq!(values, ["\u{e9}\tb".as_bytes(), b"%0d%0ainjected: 1"]);
    assert!(!seen.headers.contains_key("injected"));
    assert_ne!(seen.header("mcp-session-id"), house.witness.session());
}

#[tokio::test]
async fn only_taskgate_writes_lines_of_the_log() {
    let upstream = Upstream::json().await;
    for format in ["text", "json"] {
        let args = ["--log", "trace", "--log-format", format, "serve", "--listen", "127.0.0.1:0"];
        let url = upstream.url();
        let taskgate = Binary::start(&[&args[..], &["--upstream", &url]].concat(), &[]);
        let url = if format == "text" {
            taskgate.url().await
        } else {
            let line = taskgate.logged_after("listening on ").await;
            line.split('"').next().unwrap().to_owned()
        };
        let client = Client::connect(&url).await;
        let evil = format!("{}\u{1b}[2K\u{7}", evil("\r\n"));
        let id = client.create(&evil, json!({})).await["taskId"].as_str().unwrap().to_owned();
        upstream.held(&evil).await.error(&json!({ "code": -1, "message": evil }).to_string());
        client.until(&id, "failed").await;
        client.error("tasks/get", json!({ "taskId": evil })).await;
        upstream.hold("odd");
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.answer("odd", json!({})).await }
        });
        upstream.held("odd").await.status(500, &[], &evil);
        is_clean(soon(asked).await.unwrap().text());
        client.with("host", "evil.example").post(PING).await;
        client.post(Bytes::from(format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":{}", json!(evil)))).await;
        client.with("last-event-id", "x%0ainjected").send(Method::GET, "").await;
        taskgate.signal(rustix::process::Signal::TERM);
        let log = taskgate.end().await.stderr;
        assert!(log.contains("injected"), "the log should have some of it: {log}");
        is_clean(&log);
        assert!(!log.contains(['\u{1b}', '\u{7}']), "{log}");
        if format == "json" {
            log.lines().for_each(|line| drop(serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("{line}"))));
        }
    }
}
