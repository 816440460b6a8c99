//! Values that are far larger, deeper or odder than any real one.

use http::Method;
use serde_json::{Value, json};

use crate::House;

const MILLION: usize = 1_000_000;

/// Returns the raw text of a member of an object, up to the comma or the end.
fn answer_to(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

#[tokio::test]
async fn an_id_of_any_form_comes_back_unchanged_and_one_of_a_million_characters_is_400() {
    let house = House::new("").await;
    let long = format!("\"{}\"", "x".repeat(1022));
    let number = "9".repeat(1024);
    let escapes = format!("\"{}\"", r"\u0000\ud800\n\/".repeat(60));
    for id in [&*long, &number, "-0", "-99999999999999999999999999", "18446744073709551616", &escapes, r#""""#] {
        let answer = house.witness.post(answer_to(id, "ping", "{}")).await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.text(),
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#),
            "{}",
            &id[..id.len().min(40)]
        );
        let task = answer_to(id, "tools/call", r#"{"name":"echo","task":{}}"#);
        assert!(house.witness.post(task).await.text().contains(&format!(r#""id":{id},"#)));
    }
    for id in [format!("\"{}\"", "x".repeat(1023)), "9".repeat(MILLION)] {
        for method in ["ping", "tasks/result", "initialize"] {
            let refusal = house.witness.post(answer_to(&id, method, "{}")).await.refusal();
            assert_eq!(refusal, (400, -32600, "Invalid request: the id is longer than 1024 bytes".to_owned()));
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn invalid_ids_are_400() {
    let house = House::new("").await;
    for id in ["1e400", "1.0", "0.1", "-1e-9", "1E5", &format!("0.{}", "1".repeat(MILLION)), "[]", "false"] {
        let (status, code, _) = house.witness.post(answer_to(id, "ping", "{}")).await.refusal();
        assert_eq!((status, code), (400, -32600), "{}", &id[..id.len().min(40)]);
    }
    for id in ["0x10", "+1", "NaN", "Infinity", "01", "1_000", "\u{661}"] {
        let (status, code, _) = house.witness.post(answer_to(id, "ping", "{}")).await.refusal();
        assert_eq!((status, code), (400, -32700), "{id}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_million_characters_name_no_task_cursor_or_session() {
    let house = House::new("").await;
    let long = "x".repeat(MILLION);
    for (method, params) in [
        ("tasks/get", json!({ "taskId": long })),
        ("tasks/result", json!({ "taskId": long })),
        ("tasks/cancel", json!({ "taskId": long })),
        ("tasks/list", json!({ "cursor": long })),
    ] {
        let answer = house.witness.answer(method, params).await;
        let (status, code, _) = answer.refusal();
        assert_eq!((status, code), (200, -32602), "{method}");
        assert!(answer.body.len() < 1000, "what is wrong is not repeated: {method}: {}", answer.body.len());
    }
    for header in ["mcp-session-id", "last-event-id", "authorization", "accept", "x"] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert_eq!(house.witness.with(header, &long).open(method, "").await.status(), 431, "{header}");
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_method_of_a_million_characters_passes_and_so_long_a_progress_token_is_refused() {
    let house = House::new("").await;
    let long = "x".repeat(MILLION);
    house.upstream.hold(&long);
    let asked = tokio::spawn({
        let (client, long) = (house.witness.clone(), long.clone());
        async move { client.ask(&long, json!({ "_meta": { "progressToken": "x".repeat(1022) } })).await }
    });
    let held = house.upstream.held(&long).await;
    assert!(held.seen.json()["params"]["_meta"]["progressToken"].is_number());
    held.result("{}");
    assert_eq!(asked.await.unwrap(), json!({}));
    let meta = json!({ "progressToken": long });
    let why = "Invalid params: the progress token is longer than 1024 bytes";
    assert_eq!(house.witness.error("ping", json!({ "_meta": meta })).await, (-32602, why.to_owned()));
    // It acknowledges no task either.
    let task = json!({ "name": "echo", "task": {}, "_meta": meta });
    assert_eq!(house.witness.error("tools/call", task).await, (-32602, why.to_owned()));
    assert_eq!(house.witness.list().await, Vec::<String>::new());
    house.still_works().await;
}

#[tokio::test]
async fn a_tool_name_of_a_million_characters_is_treated_like_any_other() {
    let house = House::new("").await;
    let long = "x".repeat(MILLION);
    let id = house.witness.create_id(&long).await;
    house.upstream.held(&long).await.result("{}");
    house.witness.until(&id, "completed").await;
    house.still_works().await;
}

#[tokio::test]
async fn invalid_unicode_is_refused_where_taskgate_reads_it_and_passes_elsewhere() {
    let house = House::new("").await;
    let lone = r"\ud800";
    for (method, params) in [
        ("tools/call", format!(r#"{{"name":"{lone}","task":{{}}}}"#)),
        ("tasks/get", format!(r#"{{"taskId":"{lone}"}}"#)),
        ("tasks/list", format!(r#"{{"cursor":"{lone}"}}"#)),
    ] {
        let (status, code, _) = house.witness.post(answer_to("1", method, &params)).await.refusal();
        assert_eq!((status, code), (200, -32602), "{method}");
    }
    let (status, code, _) = house.witness.post(answer_to("1", lone, "{}")).await.refusal();
    assert_eq!((status, code), (400, -32600));
    let passes = answer_to("1", "ping", &format!(r#"{{"a":"{lone}","{lone}":1}}"#));
    assert_eq!(house.witness.post(passes).await.status, 200);
    let mut broken = answer_to("1", "ping", r#"{"a":"?"}"#).into_bytes();
    let at = broken.iter().position(|byte| *byte == b'?').unwrap();
    for byte in [0x80, 0xc0, 0xed, 0xff] {
        broken[at] = byte;
        let (status, code, _) = house.witness.post(broken.clone()).await.refusal();
        assert_eq!((status, code), (400, -32700), "{byte:x}");
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_hundred_thousand_members_are_read_and_a_duplicate_among_them_is_refused() {
    let house = House::new("").await;
    let members: Vec<_> = (0..100_000).map(|n| format!(r#""m{n}":{n}"#)).collect();
    let wide = format!(r#"{{"name":"echo","arguments":{{}},{}}}"#, members.join(","));
    assert_eq!(house.witness.post(answer_to("1", "tools/call", &wide)).await.status, 200);
    let task = wide.replacen(r#""m0":0"#, r#""task":{}"#, 1);
    assert_eq!(house.witness.post(answer_to("1", "tools/call", &task)).await.status, 200);
    let twice = wide.replacen(r#""m0":0"#, r#""name":"other""#, 1);
    let answer = house.witness.post(answer_to("1", "tools/call", &twice)).await;
    assert_eq!(answer.json()["error"]["code"], -32602, "{:?}", Value::from(answer.text()));
    house.still_works().await;
}

#[tokio::test]
async fn an_error_does_not_repeat_a_million_characters_of_a_client() {
    let long = "x".repeat(MILLION);
    for support in ["required", "forbidden"] {
        let house = House::new(&format!("tasks.support = \"{support}\"")).await;
        let task = (support == "forbidden").then(|| json!({}));
        let ttl = (support == "required").then(|| json!({ "name": "echo", "task": { "ttl": long } }));
        let name = json!({ "name": long, "task": task });
        for mut params in [Some(name), ttl].into_iter().flatten() {
            params.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            let answer = house.witness.answer("tools/call", params).await;
            assert!(answer.refusal().2.contains(&"x".repeat(400)), "{answer:?}");
            assert!(answer.body.len() < 1000, "{support}: {}", answer.body.len());
        }
        house.still_works().await;
    }
}
