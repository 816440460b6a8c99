//! Pages that a server's error -32042 sends the user to.

use serde_json::json;

use crate::{
    client::Modern,
    kit::{Gate, Upstream, soon},
};

/// A server's error with a page to visit first.
const ERROR: &str = r#"{"code":-32042,"message":"connect first","data":{"elicitations":[{"mode":"url","elicitationId":"1","url":"https://example.com/connect","message":"Connect"}]}}"#;

#[tokio::test]
async fn a_user_who_does_not_go_to_the_page_of_a_resource_or_a_prompt_is_not_sent_there_again() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": { "url": {} } }));
    for (method, mut params) in
        [("resources/read", json!({ "uri": "file:///a" })), ("prompts/get", json!({ "name": "p" }))]
    {
        upstream.hold(method);
        let (asking, first) = (client.clone(), params.clone());
        let asked = tokio::spawn(async move { asking.result(method, first).await });
        upstream.held(method).await.error(ERROR);
        assert_eq!(soon(asked).await.unwrap()["resultType"], "input_required");
        params["inputResponses"] = json!({ "page-0": { "action": "decline" } });
        assert_eq!(client.refusal(method, params).await.1, -32603);
        assert_eq!(upstream.count(method), 1);
    }
}

#[tokio::test]
async fn only_requests_in_the_course_of_which_a_client_can_be_asked_send_it_to_pages() {
    let upstream = Upstream::json().await;
    let gate = Gate::before(&upstream).await;
    let client = Modern::able(&gate.url, json!({ "elicitation": { "url": {} } }));
    for method in ["tools/list", "prompts/list", "resources/list", "completion/complete"] {
        upstream.hold(method);
        let asking = client.clone();
        let asked = tokio::spawn(async move { asking.refusal(method, json!({})).await });
        upstream.held(method).await.error(ERROR);
        assert_eq!(soon(asked).await.unwrap(), (200, -32603, "connect first".to_owned()), "{method}");
    }
}
