//! Opaque tokens that their issuer is asked about (RFC 7662).

use std::io::Write;

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use http::Method;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{
    attempt,
    issuer::{AUDIENCE, Issuer, in_seconds},
    kit::{Client, Gate, Upstream, eventually},
    session, until_status,
};

const ENDPOINT: &str = "/introspect";

/// Writes the client's secret into a file.
pub(crate) fn secret() -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "s3 cret:&").unwrap();
    file
}

/// Returns the answer for a valid token.
pub(crate) fn active(issuer: &Issuer, sub: &str) -> Value {
    json!({ "active": true, "iss": issuer.url, "sub": sub, "aud": AUDIENCE, "exp": in_seconds(600.0) })
}

async fn house(more: &str) -> (Upstream, Gate, Issuer) {
    let issuer = Issuer::start(&[]).await;
    let upstream = Upstream::json().await;
    let secret = secret();
    let toml = format!("{}{more}", issuer.introspect(secret.path().to_str().unwrap()));
    let gate = Gate::with(&upstream, &toml).await;
    (upstream, gate, issuer)
}

#[tokio::test]
async fn taskgate_asks_the_issuer_as_the_configured_client_and_once_for_many_requests() {
    let (_upstream, gate, issuer) = house("").await;
    issuer.say("a+b/c==", active(&issuer, "ann"));
    let client = session(&gate, "a+b/c==").await;
    client.ask("ping", json!({})).await;
    assert_eq!(issuer.count(ENDPOINT), 1);
    // `task%3Agate:s3+cret%3A%26`
    let basic = "Basic dGFzayUzQWdhdGU6czMrY3JldCUzQSUyNg==".to_owned();
    assert_eq!(issuer.last(), (basic, "token=a%2Bb%2Fc%3D%3D&token_type_hint=access_token".to_owned()));
}

#[tokio::test]
async fn an_inactive_token_is_refused_and_the_issuer_is_not_asked_again_at_once() {
    let (upstream, gate, issuer) = house("").await;
    for _ in 0..3 {
        let answer = attempt(&gate, "invented").await;
        assert_eq!(answer.refusal().2, "Unauthorized: the token is not active");
        assert!(answer.header("www-authenticate").contains("error=\"invalid_token\""));
    }
    assert_eq!(issuer.count(ENDPOINT), 1);
    assert!(upstream.seen().is_empty());
}

#[tokio::test]
async fn a_revoked_token_is_valid_only_until_the_cached_answer_expires() {
    let (_upstream, gate, issuer) = house("cache = \"50ms\"\n").await;
    issuer.say("token", active(&issuer, "ann"));
    let client = session(&gate, "token").await;
    let id = client.create_id("slow").await;
    issuer.say("token", json!({ "active": false }));
    until_status(&gate, "token", 401).await;
    assert_eq!(client.answer("tasks/get", json!({ "taskId": id })).await.status, 401);
}

#[tokio::test]
async fn a_cached_answer_expires_no_later_than_its_token() {
    let (_upstream, gate, issuer) = house("cache = \"1h\"\n").await;
    let mut said = active(&issuer, "ann");
    said["exp"] = in_seconds(4.0).into();
    issuer.say("token", said);
    session(&gate, "token").await;
    let answer = until_status(&gate, "token", 401).await;
    assert_eq!(answer.refusal().2, "Unauthorized: the token has expired");
    assert_eq!(issuer.count(ENDPOINT), 1);
}

#[tokio::test]
async fn concurrent_requests_share_one_introspection_even_if_the_first_client_leaves() {
    let (_upstream, gate, issuer) = house("").await;
    issuer.say("token", active(&issuer, "ann"));
    issuer.hold();
    let asked = || eventually(async || (issuer.count(ENDPOINT) == 1).then_some(()));
    {
        let leaves = attempt(&gate, "token");
        tokio::pin!(leaves);
        tokio::select! { _ = &mut leaves => panic!("the issuer has not answered yet"), () = asked() => {} }
    }
    let all = join_all((0..10).map(|_| attempt(&gate, "token")));
    let (answers, ()) = tokio::join!(all, async {
        // Requests that are sent later are answered, so the others have arrived.
        for _ in 0..20 {
            assert_eq!(attempt(&gate, "").await.status, 401);
        }
        issuer.let_go();
    });
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!(issuer.count(ENDPOINT), 1);
}

#[tokio::test]
async fn requests_over_http2_are_bounded_while_their_issuer_is_asked() {
    let (_upstream, gate, issuer) = house("").await;
    issuer.say("token", active(&issuer, "ann"));
    issuer.hold();
    let clients = [(); 16].map(|()| Client::http2(&gate.url).with("authorization", "Bearer token"));
    // 8 MiB have room for less than 1024 of them, each with 8 KiB and its head.
    let mut asking: FuturesUnordered<_> = (0..1200).map(|at| clients[at % 16].send(Method::GET, "")).collect();
    for _ in 1024..=1200 {
        let limited = asking.next().await.unwrap();
        assert_eq!(limited.status, 503);
        assert!(limited.refusal().2.contains("whose tokens are being checked take 8MiB"), "{limited:?}");
    }
    issuer.let_go();
    let answers: Vec<_> = asking.collect().await;
    // They name no session.
    let identified = answers.iter().filter(|answer| answer.status == 400).count();
    assert!(identified >= 900, "{identified}");
    assert_eq!(attempt(&gate, "token").await.status, 200);
}

#[tokio::test]
async fn while_the_issuer_is_down_known_tokens_are_valid_and_others_get_503() {
    let (_upstream, gate, issuer) = house("").await;
    issuer.say("known", active(&issuer, "ann"));
    issuer.say("other", active(&issuer, "ann"));
    let client = session(&gate, "known").await;
    issuer.off(true);
    client.ask("ping", json!({})).await;
    let answer = attempt(&gate, "other").await;
    assert_eq!(answer.refusal().0, 503);
    assert_ne!(answer.header("retry-after"), "");
    issuer.off(false);
    session(&gate, "other").await;
}

#[tokio::test]
async fn the_issuers_answer_about_a_token_is_checked() {
    let (_upstream, gate, issuer) = house("required_scopes = [\"mcp\"]\n").await;
    for (at, (change, status)) in [
        (json!({ "scope": "mcp" }), 200),
        (json!({ "scope": "mcp", "iss": null, "exp": null }), 200),
        (json!({ "scope": "other" }), 403),
        (json!({ "scope": "mcp", "aud": "elsewhere" }), 401),
        (json!({ "scope": "mcp", "aud": null }), 401),
        (json!({ "scope": "mcp", "iss": "https://elsewhere" }), 401),
        (json!({ "scope": "mcp", "sub": null }), 401),
        (json!({ "scope": "mcp", "exp": in_seconds(-1.0) }), 401),
        (json!({ "scope": "mcp", "active": "true" }), 503),
    ]
    .into_iter()
    .enumerate()
    {
        let mut said = active(&issuer, "ann");
        for (name, value) in change.as_object().unwrap() {
            said[name] = value.clone();
        }
        let token = format!("token-{at}");
        issuer.say(&token, said);
        assert_eq!(attempt(&gate, &token).await.status, status, "{change}");
    }
}

#[tokio::test]
async fn introspections_beyond_the_limit_are_not_sent() {
    let (_upstream, gate, issuer) = house("").await;
    issuer.hold();
    let tokens: Vec<_> = (0..257).map(|at| format!("token-{at}")).collect();
    let all = join_all(tokens.iter().map(|token| attempt(&gate, token)));
    let (answers, ()) = tokio::join!(all, async {
        eventually(async || (issuer.count(ENDPOINT) == 256).then_some(())).await;
        issuer.let_go();
    });
    let limited: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    let [limited] = &limited[..] else { panic!("{}", limited.len()) };
    assert!(limited.refusal().2.contains("limit reached: 256 tokens are being checked"), "{limited:?}");
}
