//! When a server over HTTP+SSE has forgotten the session of a call that asks, but keeps its stream open: no call waits.

use serde_json::{Value, json};

use crate::{
    client::Modern,
    kit::{Gate, Seen, SseOptions, SseUpstream, eventually, soon},
};

fn question() -> Value {
    let params = json!({ "message": "Who?", "requestedSchema": { "type": "object", "properties": {} } });
    json!({ "jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": params })
}

#[tokio::test]
async fn an_answer_that_a_server_over_http_and_sse_refuses_as_it_has_forgotten_the_session_ends_the_call_that_asked() {
    let refused = async |refusal| {
        let server = SseUpstream::new().await;
        let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n", server.url())).await;
        let client = Modern::able(&gate.url, json!({ "elicitation": {} }));
        let calling = tokio::spawn({
            let client = client.clone();
            async move { client.call("slow").await }
        });
        server.message("slow").await;
        server.stream(1).event(&question().to_string()).await;
        let asked = soon(calling).await.unwrap();
        let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
        server.become_one_that(SseOptions { accepted: refusal, ..<_>::default() });
        let answers = json!({ key: { "action": "decline" } });
        let retry = json!({ "name": "slow", "arguments": {}, "requestState": asked["requestState"], "inputResponses": answers });
        let error = soon(client.refusal("tools/call", retry)).await;
        assert_eq!((error.0, error.1), (200, -32603), "{refusal:?}: {error:?}");
        assert_eq!(server.count("slow"), 1, "it ran once");
    };
    tokio::join!(refused((404, "Could not find session")), refused((400, "No transport found for sessionId")));
}

#[tokio::test]
async fn a_question_whose_refusal_a_server_does_not_take_as_it_has_forgotten_the_session_ends_every_call_that_may_have_asked()
 {
    let server = SseUpstream::new().await;
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n", server.url())).await;
    let client = Modern::plain(&gate.url);
    let call = |tool| client.refusal("tools/call", json!({ "name": tool, "arguments": {} }));
    let asks = async {
        for tool in ["slow-1", "slow-2"] {
            assert_eq!(server.message(tool).await.uri.query(), Some("session=1"));
        }
        server.become_one_that(SseOptions { accepted: (400, "No transport found for sessionId"), ..<_>::default() });
        server.stream(1).event(&question().to_string()).await;
    };
    let (first, second, ()) = soon(async { tokio::join!(call("slow-1"), call("slow-2"), asks) }).await;
    for error in [first, second] {
        assert_eq!((error.0, error.1), (200, -32603), "{error:?}");
    }
}

#[tokio::test]
async fn a_refused_answer_to_a_ping_ends_no_call() {
    let server = SseUpstream::new().await;
    let gate = Gate::configured(&format!("[[upstream]]\nurl = {:?}\n", server.url())).await;
    let client = Modern::plain(&gate.url);
    let pings = async {
        let (first, second) = (server.message("slow-1").await, server.message("slow-2").await);
        server.become_one_that(SseOptions { accepted: (400, "No transport found for sessionId"), ..<_>::default() });
        for id in ["p1", "p2"] {
            server.stream(1).event(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" }).to_string()).await;
            let answered = |seen: &Seen| seen.rpc().is_empty() && seen.json()["id"] == id;
            eventually(async || server.seen().iter().any(answered).then_some(())).await;
        }
        for call in [first, second] {
            let answer = json!({ "jsonrpc": "2.0", "id": call.json()["id"], "result": { "content": [] } });
            server.stream(1).event(&answer.to_string()).await;
        }
    };
    soon(Box::pin(async { tokio::join!(client.call("slow-1"), client.call("slow-2"), pings) })).await;
}
