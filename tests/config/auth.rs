//! `[auth]`: what the keys of each mode mean.

use std::time::Duration;

use jsonwebtoken::Algorithm;
use taskgate::config::{Auth, Config, KeySource, Overrides, load, parse};

use super::{ONE, root, valid};

fn of(file: &str) -> Auth {
    load(&root().join(file), Overrides::default()).unwrap_or_else(|mistakes| panic!("{mistakes}")).auth
}

#[test]
fn every_key_of_jwt_takes_effect() {
    let Auth::Jwt(jwt) = of("tests/config/valid/auth_jwt.toml") else { panic!("another mode") };
    assert_eq!(jwt.rules.issuer, "https://auth.example.com/tenant");
    assert_eq!(jwt.rules.audience, ["https://mcp.example.com/mcp", "mcp"]);
    assert_eq!(jwt.rules.required_scopes, ["mcp:tools", "mcp:tasks"]);
    assert_eq!(jwt.keys, KeySource::Url("http://127.0.0.1:8080/jwks.json".parse().unwrap()));
    assert_eq!(jwt.algorithms, [Algorithm::PS512, Algorithm::ES384, Algorithm::EdDSA]);
    assert_eq!(jwt.leeway, Duration::from_mins(1));
    assert_eq!(jwt.protected.origin.as_deref(), Some("https://mcp.example.com:8443"));
    assert_eq!(jwt.protected.authorization_servers, ["https://login.example.com"]);
    assert_eq!(jwt.protected.scopes, ["mcp:tools", "mcp:tasks"]);
}

#[test]
fn jwt_defaults_to_asymmetric_algorithms_and_half_a_minute_of_leeway() {
    let Auth::Jwt(jwt) = of("examples/config/jwt.toml") else { panic!("another mode") };
    assert_eq!(jwt.algorithms, [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA]);
    assert_eq!(jwt.leeway, Duration::from_secs(30));
    assert_eq!(jwt.protected.authorization_servers, [jwt.rules.issuer]);
    let text = "[auth]\nmode = \"jwt\"\nissuer = \"https://i\"\naudience = [\"a\"]\njwks = \"Cargo.toml\"\n";
    let Auth::Jwt(jwt) = valid(&format!("{text}{ONE}")).auth else { panic!("another mode") };
    assert_eq!(jwt.keys, KeySource::File("Cargo.toml".into()));
    assert_eq!(jwt.protected.origin, None);
    assert!(jwt.rules.required_scopes.is_empty());
}

#[test]
fn the_secret_of_introspect_is_read_from_its_place_and_answers_are_cached_for_a_minute() {
    let Auth::Introspect(asks) = of("tests/config/valid/auth_introspect.toml") else { panic!("another mode") };
    assert_eq!(asks.client_secret.expose(), std::env::var("PATH").unwrap());
    assert_eq!((&*asks.client_id, asks.endpoint.path()), ("taskgate", "/introspect"));
    assert_eq!((asks.cache, asks.rules.audience.len()), (Duration::from_mins(1), 0));
    assert!(!format!("{asks:?}").contains(asks.client_secret.expose()));
}

#[test]
fn with_bearer_only_named_authorization_servers_are_in_the_metadata() {
    let auth = |more: &str| valid(&format!("[auth]\nmode = \"bearer\"\n{more}{ONE}")).auth;
    assert_eq!(auth("").protected(), None);
    assert_eq!(auth("resource = \"https://a\"\n").protected(), None);
    let told = auth("authorization_servers = [\"https://i\"]\n").protected().unwrap();
    assert_eq!(told.authorization_servers, ["https://i"]);
}

#[test]
fn introspect_needs_an_audience_or_says_that_any_will_do() {
    let audience = |line: &str| {
        let text = format!(
            "[auth]\nmode = \"introspect\"\nissuer = \"https://i\"\nintrospection_endpoint = \"https://i/i\"\n{line}\n\
             client_id = \"c\"\nclient_secret = {{ env = \"PATH\" }}\n{ONE}"
        );
        match parse("config.toml", &text, Overrides::default()) {
            Ok(Config { auth: Auth::Introspect(asks), .. }) => Ok(asks.rules.audience),
            Ok(other) => panic!("{other:?}"),
            Err(mistakes) => Err(mistakes.to_string()),
        }
    };
    assert_eq!(audience("audience = [\"a\"]"), Ok(vec!["a".to_owned()]));
    assert_eq!(audience("audience = \"any\""), Ok(Vec::new()));
    for (line, said) in [
        ("", "or audience = \"any\""),
        ("audience = []", "empty"),
        ("audience = \"all\"", "expected an array such as [\"all\"], or \"any\", found"),
    ] {
        let why = audience(line).unwrap_err();
        assert!(why.contains("auth.audience: ") && why.contains(said), "{why}");
    }
}
