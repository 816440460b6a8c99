//! Modern servers that are processes: requests share one channel.

use serde_json::json;

use crate::{
    client::{LOG_LEVEL, Modern, TASKS},
    kit::{Children, Client, Script, Upstream, Wrapped},
};

/// A server that speaks revision 2026-07-28 only.
const MODERN: Script = Script {
    setup: "",
    tools: r#"*'"method":"initialize"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"2026-07-28 only"}}\n' "$id" ;;
    *'"method":"server/discover"'*)
        reply "$id" '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}' ;;
    *'"method":"subscriptions/listen"'*)
        subscription=$id
        printf '{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s},"notifications":{"toolsListChanged":true}}}\n' "$id" ;;
    *'"name":"change"'*)
        printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}\n' "$subscription"
        reply "$id" '{"resultType":"complete","content":[]}' ;;
    *'"name":"tear_down"'*)
        printf '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' "$subscription"
        reply "$id" '{"resultType":"complete","content":[]}' ;;
    *'"name":"log"'*)
        echo '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"here"}}'
        reply "$id" '{"resultType":"complete","content":[]}' ;;
    *'"name":"logs_later"'*) reply "$id" '{"resultType":"complete","content":[]}' ;;
    *'"name":"request"'*)
        for asked in roots/list ping; do printf '{"jsonrpc":"2.0","id":"asked","method":"%s"}\n' "$asked"; done
        echo '{"jsonrpc":"2.0","id":"asked","method":7}'
        reply "$id" '{"resultType":"complete","content":[]}' ;;
    *'"inputResponses"'*) reply "$id" '{"resultType":"complete","content":[],"x":1}' ;;
    *'"name":"ask"'*)
        reply "$id" '{"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{}}}}}' ;;
    *'"name":"pid"'*) reply "$id" "{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":\"$$\"}]}" ;;
    *'"method":"tools/list"'*) reply "$id" '{"resultType":"complete","tools":[{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"R"}}}}],"ttlMs":7,"cacheScope":"public"}' ;;"#,
    after: "",
};

#[tokio::test]
async fn requests_of_one_owner_share_a_process_that_gets_no_initialize() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    let (client, other) = (Modern::plain(&gate.url), Modern::with_tasks(&gate.url));
    assert_eq!(client.result("tools/list", json!({})).await["ttlMs"], 7);
    assert_eq!(client.call("pid").await["content"], other.call("pid").await["content"]);
    let child = children.only().await;
    assert!(child.lines().iter().all(|line| !line.contains("initialize")));
    let call = child.message(r#""name":"pid""#).await;
    assert_eq!(call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
}

#[tokio::test]
async fn the_process_of_an_owners_first_request_serves_every_later_one() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    for declared in [json!({ "elicitation": {} }), json!({}), json!({ "sampling": {}, "elicitation": {} })] {
        Modern::able(&gate.url, declared).call("pid").await;
    }
    children.only().await;
}

#[tokio::test]
async fn of_processes_that_start_at_once_for_an_owner_one_stays() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    let able = |declared| Modern::able(&gate.url, declared);
    let (asked, sampled) = (able(json!({ "elicitation": {} })), able(json!({ "sampling": {} })));
    let (first, second) = tokio::join!(asked.call("pid"), sampled.call("pid"));
    assert_eq!(first["content"], second["content"]);
    let stays = Modern::plain(&gate.url).call("pid").await["content"][0]["text"].clone();
    for process in children.started() {
        if stays != json!(process.pid) {
            process.gone().await;
        }
    }
}

#[tokio::test]
async fn callers_that_wait_for_the_first_process_all_get_it() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    let clients = [(); 4].map(|()| Modern::able(&gate.url, json!({ "elicitation": {} })));
    let answers = futures_util::future::join_all(clients.iter().map(|client| client.call("pid"))).await;
    let child = children.only().await;
    for answer in answers {
        assert_eq!(answer["content"][0]["text"], json!(child.pid));
    }
}

#[tokio::test]
async fn a_client_that_leaves_cancels_its_call() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    let client = Modern::plain(&gate.url);
    let calling = tokio::spawn(async move { client.call("hold").await });
    let child = children.only().await;
    let call = child.message(r#""name":"hold""#).await;
    calling.abort();
    let cancelled = child.message("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], call["id"]);
}

#[tokio::test]
async fn questions_of_a_task_are_answered_on_a_process_of_its_owner_and_on_a_shared_one() {
    for toml in ["", "[[upstream]]\nshared = true\n"] {
        let children = Children::new(MODERN);
        let gate = children.gate(&format!("[tasks]\ntask_after = \"0s\"\n{toml}")).await;
        let client = Modern::able(&gate.url, json!({ "elicitation": {}, "extensions": { TASKS: {} } }));
        let task = client.call("ask").await;
        let id = task["taskId"].as_str().unwrap();
        let asking = client.until(id, "input_required").await;
        let key = asking["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        client
            .result("tasks/update", json!({ "taskId": id, "inputResponses": { key: { "action": "decline" } } }))
            .await;
        assert_eq!(client.until(id, "completed").await["result"]["x"], 1);
        let retry = children.only().await.message("inputResponses").await;
        assert_eq!(retry["params"]["inputResponses"], json!({ "q": { "action": "decline" } }));
        assert_eq!(retry["params"]["requestState"], "s");
    }
}

#[tokio::test]
async fn a_subscription_hears_what_names_it() {
    for toml in ["", "[[upstream]]\nshared = true\n"] {
        let children = Children::new(MODERN);
        let gate = children.gate(toml).await;
        let client = Modern::plain(&gate.url);
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let mut stream = client.stream("subscriptions/listen", params);
        let acknowledged = stream.message().await;
        assert_eq!(acknowledged["params"]["notifications"], json!({ "toolsListChanged": true }));
        client.call("change").await;
        let changed = stream.message().await;
        assert_eq!(changed["method"], "notifications/tools/list_changed");
        assert_eq!(changed["params"]["_meta"], acknowledged["params"]["_meta"]);
    }
}

#[tokio::test]
async fn a_subscription_that_the_server_tears_down_ends_and_hides_no_log_message_of_a_call_before() {
    for toml in ["", "[[upstream]]\nshared = true\n"] {
        let children = Children::new(MODERN);
        let gate = children.gate(toml).await;
        let client = Modern::plain(&gate.url);
        let mut stream =
            client.stream("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
        let acknowledged = stream.message().await;
        let level = json!({ "io.modelcontextprotocol/logLevel": "info" });
        let mut call = client.stream("tools/call", json!({ "name": "log", "arguments": {}, "_meta": level }));
        assert_eq!(call.message().await["params"]["data"], "here");
        client.call("tear_down").await;
        let torn_down = stream.message().await;
        assert_eq!(torn_down["method"], "notifications/cancelled", "{torn_down}");
        assert_eq!(torn_down["params"]["_meta"], acknowledged["params"]["_meta"]);
        let end = stream.message().await;
        assert_eq!(end["id"], torn_down["params"]["requestId"]);
        assert_eq!(end["result"]["resultType"], "complete");
        assert_eq!(end["result"]["_meta"], acknowledged["params"]["_meta"]);
    }
}

#[tokio::test]
async fn a_legacy_client_is_told_that_the_server_has_no_sessions() {
    for toml in ["", "[[upstream]]\nshared = true\n"] {
        let children = Children::new(MODERN);
        let gate = children.gate(toml).await;
        let answer = Client::new(&gate.url).ask_to_initialize("2025-11-25", json!({})).await;
        assert_eq!(answer.json()["error"]["code"], -32022, "{answer:?}");
        Modern::plain(&gate.url).call("pid").await;
    }
}

#[tokio::test]
async fn a_client_of_both_generations_goes_on_on_its_channel_where_initialize_is_refused() {
    let children = Children::new(MODERN);
    let args: Vec<_> = ["--"].into_iter().chain(children.command()).collect();
    let mut client = Wrapped::start(&args);
    assert_eq!(client.initialize_alone().await["error"]["code"], -32022);
    // The processes that were asked for a session have ended.
    for process in children.started() {
        process.gone().await;
    }
    let mut params = Modern::plain("").params(json!({ "name": "pid", "arguments": {} }));
    let answer = client.request("tools/call", params.clone()).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    // By now the server is known to have no older one.
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2025-11-25");
    let answer = client.request("tools/call", params).await;
    assert_eq!(
        (&answer["error"]["code"], &answer["error"]["data"]["supported"]),
        (&json!(-32022), &json!(["2026-07-28"]))
    );
    client.close();
    assert_eq!(client.end().await.0, Some(0));
}

#[tokio::test]
async fn a_server_that_ends_at_a_request_before_initialize_is_started_again_as_a_legacy_one() {
    let tools = r#"*'"method":"server/discover"'*) exit 1 ;;"#;
    let children = Children::new(Script { tools, ..Script::default() });
    let gate = children.gate("").await;
    assert_eq!(Modern::plain(&gate.url).call("pid").await["resultType"], "complete");
    assert_eq!(children.started().len(), 2);
}

#[tokio::test]
async fn a_server_that_says_nothing_or_any_error_to_a_request_before_initialize_gets_initialize() {
    let error = r#"*'"method":"server/discover"'*) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":7,"message":"too early"}}\n' "$id" ;;"#;
    for tools in [r#"*'"method":"server/discover"'*) ;;"#, error] {
        let children = Children::new(Script { tools, ..Script::default() });
        let gate = children.gate("").await;
        assert_eq!(Modern::plain(&gate.url).call("pid").await["resultType"], "complete");
        let child = children.only().await;
        assert_eq!(child.message(r#""method":"initialize""#).await["method"], "initialize");
    }
}

#[tokio::test]
async fn a_client_on_stdio_of_an_http_server_gets_its_requests_mirrored_in_headers() {
    let upstream = Upstream::modern(json!({ "tools": {} })).await;
    let mut client = Wrapped::start(&["--upstream", &upstream.url()]);
    let params = Modern::plain(&upstream.url()).params(json!({ "name": "echo", "arguments": {} }));
    let answer = client.request("tools/call", params).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let call = upstream.wait_for(|seen| seen.rpc() == "tools/call").await;
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), ("tools/call", "echo"));
}

#[tokio::test]
async fn a_process_asks_clients_over_http_for_no_headers_that_it_would_not_get() {
    let children = Children::new(MODERN);
    let gate = children.gate("").await;
    let listed = Modern::plain(&gate.url).result("tools/list", json!({})).await;
    let schema = json!({ "type": "object", "properties": { "r": { "type": "string" } } });
    assert_eq!(listed["tools"], json!([{ "name": "a", "inputSchema": schema }]));
    // A client on stdio sends none in any case.
    let args: Vec<_> = ["--"].into_iter().chain(children.command()).collect();
    let mut client = Wrapped::start(&args);
    let listed = client.request("tools/list", Modern::plain("").params(json!({}))).await;
    assert!(listed.to_string().contains("x-mcp-header"), "{listed}");
}

#[tokio::test]
async fn a_log_message_that_may_be_about_the_call_of_another_owner_reaches_nobody() {
    let children = Children::new(MODERN);
    let named = "[auth]\nmode = \"header\"\nheader = \"x-user\"\ntrusted_peers = [\"127.0.0.1\"]\n";
    let gate = children.gate(&format!("{named}[[upstream]]\nshared = true\n")).await;
    let user = |name: &str| Modern { http: Client::new(&gate.url).with("x-user", name), capabilities: json!({}) };
    let (ann, bob) = (user("ann"), user("bob"));
    let call = json!({ "name": "log", "arguments": {}, "_meta": { LOG_LEVEL: "debug" } });
    let mut alone = ann.stream("tools/call", call.clone());
    assert_eq!(alone.message().await["params"]["data"], "here");
    // What comes behind an answer to ann may come during a call of bob.
    ann.call("logs_later").await;
    for client in [&bob, &ann] {
        let answer = client.send("tools/call", call.clone()).await;
        assert!(answer.text().contains("complete") && !answer.text().contains("here"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_request_of_a_modern_process_gets_no_response() {
    for toml in ["", "[[upstream]]\nshared = true\n"] {
        let children = Children::new(MODERN);
        let gate = children.gate(toml).await;
        let client = Modern::able(&gate.url, json!({ "roots": {} }));
        client.call("request").await;
        client.call("pid").await;
        let child = children.only().await;
        assert!(child.lines().iter().all(|line| !line.contains("\"asked\"")), "{:?}", child.lines());
    }
}
