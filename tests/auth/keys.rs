//! The issuer's keys: where they come from, how they are renewed, and what happens without them.

use std::{io::Write, time::Duration};

use futures_util::future::join_all;
use serde_json::json;

use crate::{
    attempt,
    issuer::{Issuer, Signer},
    kit::{Gate, Upstream, eventually},
    pass, session, until_status,
};

const JWKS: &str = "/jwks.json";
/// When the keys are looked at again.
const OLD: Duration = Duration::from_secs(601);
/// When they may be fetched again after a fetch that failed.
const RETRY: Duration = Duration::from_secs(6);

async fn gate(issuer: &Issuer) -> Gate {
    Gate::with(&Upstream::json().await, &issuer.jwt()).await
}

#[tokio::test]
async fn a_new_key_is_fetched_for_the_first_token_that_it_signed() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(&[&old]).await;
    let gate = gate(&issuer).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    issuer.publish(&[&old, &new]);
    session(&gate, &new.token(&issuer.claims("ann"))).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    assert_eq!(issuer.count(JWKS), 2);
}

#[tokio::test]
async fn unknown_key_ids_do_not_hammer_the_issuer() {
    let key = Signer::ec("known");
    let issuer = Issuer::start(&[&key]).await;
    let gate = gate(&issuer).await;
    session(&gate, &key.token(&issuer.claims("ann"))).await;
    for kid in 0..20 {
        let token = key.token_with(&json!({ "alg": "ES256", "kid": format!("unknown-{kid}") }), &issuer.claims("ann"));
        assert_eq!(attempt(&gate, &token).await.status, 401);
    }
    assert_eq!(issuer.count(JWKS), 2, "at the start, and once for all the others");
    pass(Duration::from_secs(31)).await;
    let token = key.token_with(&json!({ "alg": "ES256", "kid": "unknown" }), &issuer.claims("ann"));
    assert_eq!(attempt(&gate, &token).await.status, 401);
    assert_eq!(issuer.count(JWKS), 3);
}

#[tokio::test]
async fn concurrent_requests_share_one_fetch() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(&[&old]).await;
    let gate = gate(&issuer).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    issuer.publish(&[&new]);
    issuer.hold();
    let tokens: Vec<_> = (0..10).map(|_| new.token(&issuer.claims("ann"))).collect();
    let all = join_all(tokens.iter().map(|token| attempt(&gate, token)));
    let fetched = async {
        eventually(async || (issuer.count(JWKS) == 2).then_some(())).await;
        issuer.let_go();
    };
    let (answers, ()) = tokio::join!(all, fetched);
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
    assert_eq!(issuer.count(JWKS), 2);
}

#[tokio::test]
async fn keys_stay_in_use_while_the_issuer_is_down_and_a_new_one_has_to_wait() {
    let (old, new) = (Signer::ec("old"), Signer::ec("new"));
    let issuer = Issuer::start(&[&old]).await;
    let gate = gate(&issuer).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    issuer.off(true);
    issuer.publish(&[&new]);
    pass(OLD).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    let answer = until_status(&gate, &new.token(&issuer.claims("ann")), 503).await;
    let seconds: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=6).contains(&seconds), "{seconds}");
    assert_eq!(answer.header("www-authenticate"), "", "a client must not throw its token away");
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    issuer.off(false);
    pass(RETRY).await;
    session(&gate, &new.token(&issuer.claims("ann"))).await;
    assert_eq!(attempt(&gate, &old.token(&issuer.claims("ann"))).await.status, 401);
}

#[tokio::test]
async fn a_removed_key_invalidates_the_tokens_that_it_verified() {
    let (kept, gone) = (Signer::ec("kept"), Signer::ec("gone"));
    let issuer = Issuer::start(&[&kept, &gone]).await;
    let gate = gate(&issuer).await;
    let (good, bad) = (kept.token(&issuer.claims("ann")), gone.token(&issuer.claims("ann")));
    session(&gate, &good).await;
    session(&gate, &bad).await;
    issuer.publish(&[&kept]);
    pass(OLD).await;
    until_status(&gate, &bad, 401).await;
    session(&gate, &good).await;
}

#[tokio::test]
async fn before_the_first_key_arrives_requests_with_tokens_get_503() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    issuer.off(true);
    let gate = gate(&issuer).await;
    let token = key.token(&issuer.claims("ann"));
    let answer = attempt(&gate, &token).await;
    let (status, _, message) = answer.refusal();
    assert_eq!((status, &*message), (503, "Unavailable: the issuer's keys cannot be fetched; try again later"));
    assert_ne!(answer.header("retry-after"), "");
    // A token that no key could save is refused at once.
    assert_eq!(attempt(&gate, "opaque").await.status, 401);
    issuer.off(false);
    pass(RETRY).await;
    session(&gate, &token).await;
}

#[tokio::test]
async fn unusable_keys_in_a_set_do_not_affect_the_others() {
    let (key, encrypts, wrong) = (Signer::ec("key"), Signer::ec("encrypts"), Signer::ec("wrong"));
    let issuer = Issuer::start(&[]).await;
    let with = |key: &Signer, name: &str, value: serde_json::Value| {
        let mut jwk = key.jwk();
        jwk[name] = value;
        jwk
    };
    issuer.publish_text(
        &json!({ "keys": [
            { "kty": "AKP", "kid": "new", "alg": "ML-DSA-44", "pub": "AA" },
            { "kty": "EC", "crv": "secp256k1", "kid": "k1", "x": "AA", "y": "AA" },
            { "kty": "oct", "kid": "secret", "k": "AAAA" },
            { "kty": 1 },
            "no key",
            with(&encrypts, "use", json!("enc")),
            with(&encrypts, "key_ops", json!(["deriveKey"])),
            with(&wrong, "x", json!("AA")),
            key.jwk(),
        ] })
        .to_string(),
    );
    let gate = gate(&issuer).await;
    session(&gate, &key.token(&issuer.claims("ann"))).await;
    for unusable in [encrypts, wrong] {
        assert_eq!(attempt(&gate, &unusable.token(&issuer.claims("ann"))).await.status, 401);
    }
}

#[tokio::test]
async fn an_invalid_or_too_large_key_set_leaves_the_old_one_in_use() {
    let key = Signer::ec("key");
    let issuer = Issuer::start(&[&key]).await;
    let gate = gate(&issuer).await;
    session(&gate, &key.token(&issuer.claims("ann"))).await;
    let large = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(300_000));
    for (fetches, document) in ["<html>", "{}", &large].into_iter().enumerate() {
        issuer.publish_text(document);
        pass(OLD).await;
        session(&gate, &key.token(&issuer.claims("ann"))).await;
        eventually(async || (issuer.count(JWKS) == fetches + 2).then_some(())).await;
        session(&gate, &key.token(&issuer.claims("ann"))).await;
    }
}

#[tokio::test]
async fn only_the_first_hundred_keys_of_a_set_are_read() {
    let (last, beyond) = (Signer::ec("last"), Signer::ec("beyond"));
    let issuer = Issuer::start(&[]).await;
    let mut keys = vec![json!({ "kty": "oct", "k": "AAAA" }); 99];
    keys.extend([last.jwk(), beyond.jwk()]);
    issuer.publish_text(&json!({ "keys": keys }).to_string());
    let gate = gate(&issuer).await;
    session(&gate, &last.token(&issuer.claims("ann"))).await;
    assert_eq!(attempt(&gate, &beyond.token(&issuer.claims("ann"))).await.status, 401);
}

#[tokio::test]
async fn a_redirect_to_other_keys_is_not_followed() {
    let (ours, theirs) = (Signer::ec("ours"), Signer::ec("theirs"));
    let (issuer, other) = (Issuer::start(&[&ours]).await, Issuer::start(&[&theirs]).await);
    let gate = gate(&issuer).await;
    session(&gate, &ours.token(&issuer.claims("ann"))).await;
    issuer.redirect(&other);
    assert_eq!(attempt(&gate, &theirs.token(&issuer.claims("ann"))).await.status, 503);
    assert_eq!((issuer.count(JWKS), other.count(JWKS)), (2, 0));
}

#[tokio::test]
async fn keys_may_come_from_a_file_which_is_read_again_for_an_unknown_key() {
    let (old, new) = (Signer::ec("old"), Signer::ed("new"));
    let issuer = Issuer::start(&[]).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{}", json!({ "keys": [old.jwk()] })).unwrap();
    let url = format!("{}/jwks.json", issuer.url);
    let toml = issuer.jwt().replace(&url, file.path().to_str().unwrap());
    let gate = Gate::with(&Upstream::json().await, &toml).await;
    session(&gate, &old.token(&issuer.claims("ann"))).await;
    std::fs::write(file.path(), json!({ "keys": [new.jwk()] }).to_string()).unwrap();
    session(&gate, &new.token(&issuer.claims("ann"))).await;
    assert_eq!(attempt(&gate, &old.token(&issuer.claims("ann"))).await.status, 401);
    assert_eq!(issuer.count(JWKS), 0);
}
