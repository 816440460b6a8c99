//! Which tokens are valid (RFC 7519, RFC 8725).

use serde_json::{Value, json};

use crate::{
    attempt,
    issuer::{AUDIENCE, Issuer, Signer, b64, hs256, in_seconds},
    kit::{Gate, Upstream},
    session,
};

struct House {
    upstream: Upstream,
    gate: Gate,
    issuer: Issuer,
    rsa: Signer,
    ec: Signer,
    ed: Signer,
}

/// Starts an issuer with a key of each kind, and taskgate that trusts it.
async fn house(more: &str) -> House {
    let (rsa, ec, ed) = (Signer::rsa("rsa"), Signer::ec("ec"), Signer::ed("ed"));
    let issuer = Issuer::start(&[&rsa, &ec, &ed]).await;
    let upstream = Upstream::json().await;
    let gate = Gate::with(&upstream, &format!("{}{more}", issuer.jwt())).await;
    House { upstream, gate, issuer, rsa, ec, ed }
}

impl House {
    fn claims(&self, changes: &Value) -> Value {
        let mut claims = self.issuer.claims("ann");
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }

    /// Checks that each token is refused with these words, and that nothing goes upstream.
    async fn refused(&self, words: &str, tokens: &[(&str, String)]) {
        for (name, token) in tokens {
            let answer = attempt(&self.gate, token).await;
            let (status, code, message) = answer.refusal();
            assert_eq!((status, code), (401, -32600), "{name}");
            assert_eq!(message, format!("Unauthorized: {words}"), "{name}");
            let challenge = answer.header("www-authenticate");
            let expected = format!("Bearer error=\"invalid_token\", error_description=\"{words}\", ");
            assert!(challenge.starts_with(&expected), "{name}: {challenge}");
        }
        assert!(self.upstream.seen().is_empty());
    }
}

#[tokio::test]
async fn a_token_of_the_issuer_is_valid_with_every_kind_of_key() {
    let house = house("").await;
    for key in [&house.rsa, &house.ec, &house.ed] {
        session(&house.gate, &key.token(&house.issuer.claims("ann"))).await;
    }
    let claims = house.claims(&json!({ "aud": ["x", AUDIENCE], "nbf": in_seconds(-1.0) }));
    session(&house.gate, &house.ec.token(&claims)).await;
    for header in [json!({ "alg": "ES256", "kid": "ec" }), json!({ "alg": "ES256", "kid": "ec", "typ": "JWT" })] {
        session(&house.gate, &house.ec.token_with(&header, &claims)).await;
    }
}

#[tokio::test]
async fn a_token_without_a_key_id_is_valid_only_if_exactly_one_key_fits() {
    let house = house("").await;
    let token = house.ec.token_with(&json!({ "alg": "ES256" }), &house.issuer.claims("ann"));
    session(&house.gate, &token).await;
    let (first, second) = (Signer::ec("first"), Signer::ec("second"));
    let issuer = Issuer::start(&[&first, &second]).await;
    let gate = Gate::with(&house.upstream, &issuer.jwt()).await;
    session(&gate, &first.token(&issuer.claims("ann"))).await;
    let token = first.token_with(&json!({ "alg": "ES256" }), &issuer.claims("ann"));
    assert_eq!(attempt(&gate, &token).await.status, 401);
}

#[tokio::test]
async fn a_token_that_the_issuer_has_not_signed_is_refused_without_a_reason() {
    let house = house("").await;
    let claims = house.issuer.claims("ann");
    let good = house.ec.token(&claims);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (header, body) = signed.split_once('.').unwrap();
    let mut other = claims.clone();
    other["sub"] = "bob".into();
    let stranger = Signer::ec("ec");
    let altered = format!("{}{}", if signature.starts_with('A') { "B" } else { "A" }, &signature[1..]);
    let tokens = [
        ("other claims", format!("{header}.{}.{signature}", b64(other.to_string()))),
        ("other signature", format!("{signed}.{altered}")),
        ("no signature", format!("{signed}.")),
        ("shorter signature", format!("{signed}.{}", &signature[4..])),
        ("signature of another part", format!("{body}.{header}.{signature}")),
        ("a stranger's key under the issuer's id", stranger.token(&claims)),
        (
            "a stranger's key in the header",
            stranger.token_with(&json!({ "alg": "ES256", "kid": "s", "jwk": stranger.jwk() }), &claims),
        ),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{good}.{signature}")),
        ("five parts", format!("{signed}.{signed}.{signature}")),
        ("no JSON", format!("{}.{body}.{signature}", b64("no"))),
        ("an opaque one", "opaque".to_owned()),
    ];
    house.refused("the token is not valid", &tokens).await;
    session(&house.gate, &good).await;
}

#[tokio::test]
async fn the_algorithm_that_a_token_names_is_never_trusted() {
    let house = house("").await;
    let claims = house.issuer.claims("ann");
    let unsigned =
        |alg: &str| format!("{}.{}.", b64(json!({ "alg": alg, "kid": "rsa" }).to_string()), b64(claims.to_string()));
    let rsa = house.rsa.public();
    let with = |key: &Signer, alg: &str, kid: &str| key.token_with(&json!({ "alg": alg, "kid": kid }), &claims);
    let tokens = [
        ("none", unsigned("none")),
        ("None", unsigned("None")),
        ("empty", unsigned("")),
        ("HS256 with the modulus", hs256("rsa", &rsa.n, &claims)),
        ("HS256 with the key as it is published", hs256("rsa", house.rsa.jwk().to_string().as_bytes(), &claims)),
        ("HS256 with nothing", hs256("rsa", b"", &claims)),
        ("not pinned, though well signed", with(&house.rsa, "PS256", "rsa")),
        ("another name of a pinned one", with(&house.rsa, "rs256", "rsa")),
        ("another kind of key than the id has", with(&house.ec, "ES256", "rsa")),
        ("another algorithm than the key has", with(&house.rsa, "ES256", "rsa")),
        ("another kind of key than the header says", with(&house.ed, "EdDSA", "ec")),
    ];
    house.refused("the token is not valid", &tokens).await;
}

#[tokio::test]
async fn a_key_is_used_for_its_own_algorithm_only() {
    let house = house("algorithms = [\"RS256\", \"PS256\"]\n").await;
    let claims = house.issuer.claims("ann");
    let token = house.rsa.token_with(&json!({ "alg": "PS256", "kid": "rsa" }), &claims);
    house.refused("the token is not valid", &[("PS256 with a key for RS256", token.clone())]).await;
    let mut key = house.rsa.jwk();
    key.as_object_mut().unwrap().remove("alg");
    let issuer = Issuer::start(&[]).await;
    issuer.publish_text(&json!({ "keys": [key] }).to_string());
    let gate = Gate::with(&house.upstream, &format!("{}algorithms = [\"PS256\"]\n", issuer.jwt())).await;
    let token = house.rsa.token_with(&json!({ "alg": "PS256", "kid": "rsa" }), &issuer.claims("ann"));
    session(&gate, &token).await;
    assert_eq!(attempt(&gate, &house.rsa.token(&issuer.claims("ann"))).await.status, 401, "RS256 is not pinned");
}

#[tokio::test]
async fn a_missing_or_wrong_claim_is_refused_and_named() {
    let house = house("").await;
    let token = |changes: Value| house.ec.token(&house.claims(&changes));
    for (words, tokens) in [
        ("the token is for another audience", vec![json!({ "aud": "https://elsewhere" }), json!({ "aud": null })]),
        ("the token is from another issuer", vec![json!({ "iss": format!("{}/", house.issuer.url) })]),
        ("the token names no issuer", vec![json!({ "iss": null })]),
        ("the token has expired", vec![json!({ "exp": in_seconds(-1.0) })]),
        ("the token is not valid yet", vec![json!({ "nbf": in_seconds(60.0) })]),
        ("the token has no end", vec![json!({ "exp": null })]),
        ("the token names no subject", vec![json!({ "sub": null }), json!({ "sub": "" })]),
        ("the token is not valid", vec![json!({ "exp": "never" }), json!({ "sub": 1 }), json!({ "aud": 1 })]),
    ] {
        for changes in tokens {
            house.refused(words, &[(words, token(changes))]).await;
        }
    }
}

#[tokio::test]
async fn a_token_of_another_kind_is_no_access_token() {
    let house = house("").await;
    let claims = house.issuer.claims("ann");
    for header in [
        json!({ "alg": "ES256", "kid": "ec", "typ": "logout+jwt" }),
        json!({ "alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": false }),
    ] {
        let token = house.ec.token_with(&header, &claims);
        house.refused("the token is not valid", &[("of another kind", token)]).await;
    }
}

#[tokio::test]
async fn a_token_without_a_required_scope_gets_403_and_the_scopes() {
    let house = house("required_scopes = [\"mcp:tools\", \"mcp:tasks\"]\n").await;
    for scopes in [json!({}), json!({ "scope": "mcp:tools" }), json!({ "scp": ["mcp:tasks"] })] {
        let answer = attempt(&house.gate, &house.ec.token(&house.claims(&scopes))).await;
        assert_eq!(answer.refusal().0, 403);
        let challenge = answer.header("www-authenticate");
        assert!(challenge.starts_with("Bearer error=\"insufficient_scope\", "), "{challenge}");
        assert!(challenge.contains(", scope=\"mcp:tools mcp:tasks\", resource_metadata=\""), "{challenge}");
    }
    for scopes in [json!({ "scope": "x mcp:tasks mcp:tools" }), json!({ "scp": ["mcp:tasks", "mcp:tools"] })] {
        session(&house.gate, &house.ec.token(&house.claims(&scopes))).await;
    }
}

#[tokio::test]
async fn a_request_must_have_exactly_one_token_in_its_authorization_header() {
    let house = house("").await;
    let token = house.ec.token(&house.issuer.claims("ann"));
    let client = session(&house.gate, &token).await;
    let mut twice = client.clone();
    twice.headers.append("authorization", format!("Bearer {token}").parse().unwrap());
    let long = format!("Bearer {}", "a".repeat(20_000));
    for (client, status, challenge) in [
        (client.without("authorization"), 401, "Bearer resource_metadata="),
        (client.with("authorization", "Basic YTpi"), 401, "Bearer resource_metadata="),
        (client.with("authorization", &token), 401, "Bearer resource_metadata="),
        (client.with("authorization", "Bearer a b"), 401, "Bearer error=\"invalid_token\""),
        (client.with("authorization", &long), 401, "Bearer error=\"invalid_token\""),
        (twice, 400, "Bearer error=\"invalid_request\""),
    ] {
        for method in [http::Method::POST, http::Method::GET, http::Method::DELETE] {
            let answer = client.send(method, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).await;
            assert_eq!(answer.refusal().0, status);
            assert!(answer.header("www-authenticate").starts_with(challenge), "{answer:?}");
        }
    }
    let lower = client.with("authorization", &format!("bearer  {token}"));
    assert_eq!(lower.ask("ping", json!({})).await, json!({}));
}
