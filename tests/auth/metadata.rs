//! Where clients find out whose tokens are accepted (RFC 9728; revision 2025-11-25, "Authorization Server Location").

use http::Method;
use serde_json::json;

use crate::{
    attempt,
    issuer::{Issuer, Signer},
    kit::{Answer, Client, Gate, Upstream},
};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

fn base(gate: &Gate) -> String {
    format!("http://{}", gate.authority())
}

async fn get(gate: &Gate, path: &str) -> Answer {
    Client::new(&format!("{}{WELL_KNOWN}{path}", base(gate))).send(Method::GET, "").await
}

async fn gate(more: &str) -> (Gate, Issuer) {
    let issuer = Issuer::start(&[&Signer::ec("key")]).await;
    (Gate::with(&Upstream::json().await, &format!("{}{more}", issuer.jwt())).await, issuer)
}

#[tokio::test]
async fn the_metadata_names_the_resource_the_issuer_and_the_scopes_and_needs_no_token() {
    let (gate, issuer) = gate("required_scopes = [\"mcp:tools\"]\n").await;
    let expected = json!({
        "resource": gate.url,
        "authorization_servers": [issuer.url],
        "scopes_supported": ["mcp:tools"],
        "bearer_methods_supported": ["header"],
    });
    for path in ["/mcp", ""] {
        let answer = get(&gate, path).await;
        assert_eq!((answer.status.as_u16(), answer.header("content-type")), (200, "application/json"));
        assert_eq!(answer.json(), expected);
    }
}

#[tokio::test]
async fn a_head_of_the_metadata_has_the_headers_of_a_get_and_no_body_over_either_version_of_http() {
    let (gate, _issuer) = gate("").await;
    let url = format!("{}{WELL_KNOWN}/mcp", base(&gate));
    for client in [Client::new(&url), Client::http2(&url)] {
        let (mut got, mut head) = (client.send(Method::GET, "").await, client.send(Method::HEAD, "").await);
        assert_eq!((head.status.as_u16(), head.text()), (200, ""));
        assert_eq!(head.header("content-length"), got.body.len().to_string());
        for answer in [&mut got, &mut head] {
            answer.headers.remove("date");
        }
        assert_eq!(head.headers, got.headers);
    }
}

#[tokio::test]
async fn the_challenge_leads_to_the_metadata() {
    let (gate, issuer) = gate("").await;
    for token in ["", "a.b.c"] {
        let answer = attempt(&gate, token).await;
        let challenge = answer.header("www-authenticate").to_owned();
        let (_, url) = challenge.split_once("resource_metadata=\"").unwrap();
        let answer = Client::new(url.trim_end_matches('"')).send(Method::GET, "").await;
        assert_eq!(answer.json()["authorization_servers"], json!([issuer.url]));
    }
}

#[tokio::test]
async fn the_metadata_has_the_configured_origin_and_authorization_servers() {
    let (gate, _issuer) = gate(
        "resource = \"https://mcp.example.com/\"\n\
         authorization_servers = [\"https://a.example\", \"https://b.example/x\"]\n\
         [[upstream]]\npath = \"/\"\nsse_path = \"/old\"\n",
    )
    .await;
    let root = get(&gate, "").await.json();
    assert_eq!(root["resource"], "https://mcp.example.com");
    assert_eq!(root["authorization_servers"], json!(["https://a.example", "https://b.example/x"]));
    assert_eq!(root.get("scopes_supported"), None);
    assert_eq!(get(&gate, "/old").await.json()["resource"], "https://mcp.example.com/old");
    for (path, expected) in [("", ""), ("/old", "/old"), ("/old/messages", "/old")] {
        let answer = Client::new(&format!("{}{path}", base(&gate))).post("{}").await;
        let expected = format!("Bearer resource_metadata=\"https://mcp.example.com{WELL_KNOWN}{expected}\"");
        assert_eq!(answer.header("www-authenticate"), expected);
    }
}

#[tokio::test]
async fn each_of_several_upstreams_is_a_resource_of_its_own() {
    let (issuer, upstream) = (Issuer::start(&[]).await, Upstream::json().await);
    let block = |path| format!("[[upstream]]\npath = \"{path}\"\nurl = \"{}\"\n", upstream.url());
    let gate = Gate::configured(&format!("{}{}{}", issuer.jwt(), block("/a"), block("/b/c"))).await;
    for path in ["/a", "/b/c"] {
        assert_eq!(get(&gate, path).await.json()["resource"], format!("{}{path}", base(&gate)));
    }
    assert_eq!(get(&gate, "").await.status, 404);
}

#[tokio::test]
async fn any_web_page_may_read_the_metadata_but_only_from_an_allowed_host() {
    let (gate, _issuer) = gate("").await;
    let url = format!("{}{WELL_KNOWN}/mcp", base(&gate));
    let page = Client::new(&url).with("origin", "https://anywhere.example");
    let preflight = page.with("access-control-request-method", "GET");
    let preflight = preflight.with("access-control-request-headers", "mcp-protocol-version");
    for (client, method, status) in [(&page, Method::GET, 200), (&preflight, Method::OPTIONS, 204)] {
        let answer = client.send(method, "").await;
        assert_eq!((answer.status.as_u16(), answer.header("access-control-allow-origin")), (status, "*"));
        assert_eq!(answer.header("access-control-allow-headers"), "*");
    }
    for origin in ["https://anywhere.example", "http://localhost"] {
        let foreign = Client::new(&url).with("host", "evil.example").with("origin", origin);
        assert_eq!(foreign.send(Method::GET, "").await.refusal().0, 403);
    }
    // The endpoint itself stays closed to them.
    let page = Client::new(&gate.url).with("origin", "https://anywhere.example");
    assert_eq!(page.post("{}").await.refusal().0, 403);
    let answer = Client::new(&url).post("{}").await;
    assert_eq!((answer.refusal().0, answer.header("allow")), (405, "GET"));
}

#[tokio::test]
async fn without_a_known_issuer_there_is_no_metadata() {
    let upstream = Upstream::json().await;
    for toml in ["", "[auth]\nmode = \"bearer\"\n"] {
        let gate = Gate::with(&upstream, toml).await;
        assert_eq!(get(&gate, "/mcp").await.status, 404);
    }
    let toml = "[auth]\nmode = \"bearer\"\nauthorization_servers = [\"https://auth.example\"]\n";
    let gate = Gate::with(&upstream, toml).await;
    assert_eq!(get(&gate, "/mcp").await.json()["authorization_servers"], json!(["https://auth.example"]));
    let answer = Client::new(&gate.url).post("{}").await;
    let expected = format!("Bearer resource_metadata=\"{}{WELL_KNOWN}/mcp\"", base(&gate));
    assert_eq!((answer.refusal().0, answer.header("www-authenticate")), (401, &*expected));
}
