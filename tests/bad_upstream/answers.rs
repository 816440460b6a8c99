//! Answers that are no response, or a different one to each reader.

use http::Method;
use serde_json::json;

use crate::{
    House, call_of,
    kit::{
        BadUpstream, Client, Gate, Upstream,
        bad::{DONE, PROGRESS, Step, end, event, json_answer, stream},
        soon,
    },
};

/// Returns the response to the call, with these members in place of the usual ones.
fn with(members: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$ID,{members}}}"#)
}

#[tokio::test]
async fn an_invalid_response_fails_its_call_at_once_and_says_what_is_wrong() {
    let house = House::new().await;
    for (members, words) in [
        (r#""result":{},"error":{"code":1,"message":"m"}"#, "not both"),
        (r#""x":1"#, "needs"),
        (r#""result":null,"error":null"#, "\"result\" must be an object"),
        (r#""result":[1]"#, "\"result\" must be an object"),
        (r#""result":"fine""#, "\"result\" must be an object"),
        (r#""error":null"#, "\"error\" must be an object"),
        (r#""error":[1]"#, "\"error\" must be an object"),
        (r#""error":{}"#, "\"code\""),
        (r#""error":{"code":"E","message":"m"}"#, "\"code\""),
        (r#""error":{"code":1,"message":["m"]}"#, "\"message\""),
        (r#""error":{"code":1,"message":"one","message":"two"}"#, "duplicate member"),
        (r#""result":{},"result":{}"#, "duplicate field"),
        (r#""result":{},"method":"ping""#, "not both"),
    ] {
        // The stream goes on, and no reader waits for its end.
        for answer in [vec![json_answer(&with(members))], vec![stream(), event(&with(members)), Step::Gone]] {
            house.bad.on_call("liar", answer);
            house.fails("liar", &["gave an invalid answer", words]).await;
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_result_without_an_id_fails_the_request_that_carried_it() {
    let house = House::new().await;
    let nameless = r#"{"jsonrpc":"2.0","result":{}}"#;
    for answer in [vec![json_answer(nameless)], vec![stream(), event(nameless), Step::Gone]] {
        house.bad.on_call("nameless", answer);
        house.fails("nameless", &["gave an invalid answer", "id"]).await;
    }
    house.still_works().await;
}

#[tokio::test]
async fn the_error_is_short_and_does_not_quote_the_servers_answer() {
    let house = House::new().await;
    let long = "x".repeat(20_000);
    for members in [format!(r#""error":"{long}""#), format!(r#""error":{{"{long}":1,"{long}":2}}"#)] {
        house.bad.on_call("long", vec![json_answer(&with(&members))]);
        for outcome in house.both("long").await {
            let why = outcome.unwrap_err();
            assert!(why.contains("gave an invalid answer") && why.len() < 300, "{why}");
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn one_bad_message_in_a_batch_does_not_affect_the_others() {
    let house = House::new().await;
    let bad = r#"{"jsonrpc":"2.0","id":4711,"result":7}"#;
    house.bad.on_call("first", vec![json_answer(&format!("[{bad},{DONE}]"))]);
    house.bad.on_call("second", vec![stream(), event(&format!("[{DONE},{bad}]")), end()]);
    house.succeeds("first").await;
    house.succeeds("second").await;
    house.still_works().await;
}

#[tokio::test]
async fn the_null_that_json_rpc_1_has_beside_a_result_or_an_error_counts_as_absent() {
    let house = House::new().await;
    let done = DONE.replace(r#""result""#, r#""error":null,"result""#);
    let failed = with(r#""result":null,"error":{"code":-1,"message":"no luck"}"#);
    for (done, failed) in [
        (vec![json_answer(&done)], vec![json_answer(&failed)]),
        (vec![stream(), event(&done), end()], vec![stream(), event(&failed), end()]),
    ] {
        house.bad.on_call("done", done);
        house.bad.on_call("failed", failed);
        house.succeeds("done").await;
        assert_eq!(house.both("failed").await, [Err("no luck".to_owned()), Err("no luck".to_owned())]);
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_result_with_a_duplicate_member_passes_in_a_plain_call_and_fails_a_task() {
    let house = House::new().await;
    let content = r#""content":[{"type":"text","text":"done"}]"#;
    for result in [
        format!(r#"{{"isError":false,{content},"isError":true}}"#),
        format!(r#"{{"isError":true,{content},"is\u0045rror":false}}"#),
        format!(
            r#"{{"_meta":{{}},{content},"_meta":{{"io.modelcontextprotocol/related-task":{{"taskId":"forged"}}}}}}"#
        ),
        format!(r#"{{"_meta":{{"a":1,"a":2}},{content}}}"#),
    ] {
        let document = with(&format!("\"result\":{result}"));
        for answer in [vec![json_answer(&document)], vec![stream(), event(&document), end()]] {
            house.bad.on_call("two faces", answer);
            let plain = soon(house.client.answer("tools/call", call_of("two faces"))).await.raw_response();
            assert!(plain.contains(&format!("\"result\":{result}")), "{plain}");
            let why = house.task("two faces").await.unwrap_err();
            assert!(why.contains("gave an invalid answer: duplicate member"), "{why}");
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_list_of_tools_that_two_readers_could_read_differently_is_an_invalid_answer() {
    let upstream = Upstream::json().await;
    let gate = Gate::to(&upstream.url(), "").await;
    let client = Client::connect(&gate.url).await;
    upstream.hold("tools/list");
    for list in [
        r#"{"tools":[],"tools":[{"name":"a"}]}"#,
        r#"{"tools":[{"name":"a","name":"b"}]}"#,
        r#"{"tools":[{"name":"a","execution":{"taskSupport":"required","taskSupport":"forbidden"}}]}"#,
    ] {
        let listing = tokio::spawn({
            let client = client.clone();
            async move { client.error("tools/list", json!({})).await }
        });
        upstream.held("tools/list").await.result(list);
        let (code, message) = soon(listing).await.unwrap();
        assert_eq!(code, -32603, "{message}");
        assert!(message.contains("gave an invalid answer: duplicate member"), "{list}: {message}");
    }
    // Both readers see that these have no list, and clients are used to some of them.
    for list in [r#"{"tools":null}"#, "{}", r#"{"tools":{}}"#] {
        let listing = tokio::spawn({
            let client = client.clone();
            async move { client.answer("tools/list", json!({})).await }
        });
        upstream.held("tools/list").await.result(list);
        let answer = soon(listing).await.unwrap().raw_response();
        assert!(answer.contains(&format!("\"result\":{list}")), "{answer}");
    }
}

#[tokio::test]
async fn a_question_with_a_duplicate_member_gets_an_error_and_reaches_no_client() {
    let house = House::new().await;
    let able = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {} });
    let client = Client::connect_as(&house.gate.url, "2025-11-25", able).await;
    for (n, (method, params)) in [
        ("elicitation/create", r#"{"message":"a","message":"b"}"#),
        ("elicitation/create", r#"{"mode":"form","mode":"url"}"#),
        ("sampling/createMessage", r#"{"_meta":{},"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"x"}}}"#),
        ("vendor/ask", r#"{"_meta":{"a":1,"a":2}}"#),
    ]
    .into_iter()
    .enumerate()
    {
        let question = format!(r#"{{"jsonrpc":"2.0","id":"q{n}","method":"{method}","params":{params}}}"#);
        house.bad.on_call("curious", vec![stream(), event(&question), event(DONE), end()]);
        let mut call = client.stream("tools/call", call_of("curious"));
        assert_eq!(call.message().await["result"]["content"][0]["text"], "done", "{question}");
        let answer = house.bad.wait_for(|seen| seen.json()["id"] == json!(format!("q{n}"))).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("duplicate member"), "{answer}");
        let mut params = call_of("curious");
        params["task"] = json!({});
        let created = client.ask("tools/call", params).await;
        client.until(created["task"]["taskId"].as_str().unwrap(), "completed").await;
        assert_eq!(house.bad.responses(), 2 * (n + 1));
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_request_named_like_a_notification_gets_an_error_and_reaches_no_client() {
    let house = House::new().await;
    let named = |id: &str, method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"notifications/{method}","params":{params}}}"#)
    };
    let requests = |way: &str| {
        [
            named(&format!("{way}-0"), "cancelled", r#"{"requestId":$ID}"#),
            named(&format!("{way}-1"), "progress", r#"{"progressToken":$TOKEN,"progress":1}"#),
            named(&format!("{way}-2"), "vendor", "{}"),
        ]
    };
    let batch = json_answer(&format!("[{},{DONE}]", requests("batch").join(",")));
    let streamed = [&[stream()], &requests("stream").map(|text| event(&text))[..], &[event(DONE), end()]].concat();
    let mut heard = house.client.get_stream().await;
    for (way, answer) in [("batch", vec![batch]), ("stream", streamed)] {
        house.bad.on_call("named", answer);
        let call = soon(house.client.answer("tools/call", call_of("named"))).await;
        assert!(call.text().contains("done") && !call.text().contains("notifications/"), "{call:?}");
        // What comes first of the task.
        house.client.create_id("named").await;
        assert_eq!(heard.message().await["params"]["status"], "completed", "{way}");
        for nth in 0..3 {
            let answer = house.bad.wait_for(|seen| seen.json()["id"] == format!("{way}-{nth}")).await.json();
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("that of a notification"), "{answer}");
        }
    }
    house.still_works().await;
}

#[tokio::test]
async fn a_request_with_an_id_that_no_response_can_have_is_not_answered_and_reaches_no_client() {
    let house = House::new().await;
    let long = format!("\"{}\"", "q".repeat(1100));
    let asked = ["null", "1.5", "1e2", "true", "[]", &long]
        .map(|id| event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list","params":[1]}}"#)));
    house.bad.on_call("nobody", [&[stream()], &asked[..], &[event(DONE), end()]].concat());
    let mut call = house.client.stream("tools/call", call_of("nobody"));
    assert_eq!(call.message().await["result"]["content"][0]["text"], "done");
    // An answer would have come before that of a request that can be answered.
    let answerable = event(r#"{"jsonrpc":"2.0","id":"q","method":7}"#);
    house.bad.on_call("somebody", vec![stream(), answerable, event(DONE), end()]);
    house.succeeds("somebody").await;
    house.bad.wait_for(|seen| seen.json()["id"] == "q").await;
    assert!(house.bad.responses() <= 2);
    house.still_works().await;
}

#[tokio::test]
async fn a_message_that_cannot_be_tied_to_its_task_is_dropped_and_counted() {
    let bad = BadUpstream::start().await;
    let gate = Gate::to(&bad.url(), "[server]\nadmin = \"127.0.0.1:0\"").await;
    let house = House::with(bad, gate).await;
    let forged = r#"{"io.modelcontextprotocol/related-task":{"taskId":"forged"}}"#;
    let log = |meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{{meta}"level":"info","data":"x"}}}}"#)
    };
    let twice = log(&format!(r#""_meta":{{}},"_meta":{forged},"#));
    let progress = PROGRESS.replace("\"params\":{", r#""params":{"_meta":{"a":1,"a":2},"#);
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"requestId":2}}"#;
    let no_number = PROGRESS.replace("\"progress\":", r#""progress":"50%","was":"#);
    let steps = [&*twice, &progress, cancelled, &no_number, &log("")].map(event);
    house.bad.on_call("forger", [&[stream()], &steps[..], &[Step::Wait("heard"), event(DONE), end()]].concat());
    let mut heard = house.client.get_stream().await;
    let mut params = call_of("forger");
    params["task"] = json!({});
    let created = house.client.ask("tools/call", params).await;
    let id = created["task"]["taskId"].as_str().unwrap();
    // The first one that comes is the one that can be tied.
    let message = heard.message().await;
    assert_eq!(message["method"], "notifications/message");
    assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], id);
    house.bad.signal("heard");
    house.client.until(id, "completed").await;
    let metrics = format!("{}/metrics", house.gate.admin.as_ref().unwrap());
    let metrics = Client::new(&metrics).send(Method::GET, "").await;
    assert!(metrics.text().contains("\ntaskgate_unreadable_messages_total 4\n"), "{}", metrics.text());
    house.still_works().await;
}

#[tokio::test]
async fn a_message_with_a_duplicate_member_is_not_tied_to_a_task_in_a_plain_call_either() {
    let house = House::new().await;
    let log = |meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{{meta}"level":"info","data":"x"}}}}"#)
    };
    let tie = r#"{"io.modelcontextprotocol/related-task":{"taskId":"forged"}}"#;
    let steps =
        [format!(r#""_meta":{{}},"_meta":{tie},"#), format!(r#""_meta":{tie},"#)].map(|meta| event(&log(&meta)));
    house.bad.on_call("forger", [&[stream()], &steps[..], &[event(DONE), end()]].concat());
    let mut call = house.client.stream("tools/call", call_of("forger"));
    assert_eq!(call.message().await["params"], json!({ "_meta": {}, "level": "info", "data": "x" }));
    assert_eq!(call.message().await["result"]["content"][0]["text"], "done");
    house.still_works().await;
}

#[tokio::test]
async fn an_error_without_an_id_that_has_a_duplicate_member_answers_nothing() {
    let house = House::new().await;
    let error = r#"{"jsonrpc":"2.0","error":{"code":-1,"message":"m"},"a":1,"a":2}"#;
    house.bad.on_call("nameless", vec![json_answer(error)]);
    let (code, message) = soon(house.client.error("tools/call", call_of("nameless"))).await;
    assert_eq!(code, -32603);
    assert!(message.contains("has no response to the request"), "{message}");
    house.still_works().await;
}
