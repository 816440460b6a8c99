//! An issuer of tokens: keys, a key set, an introspection endpoint.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

use aws_lc_rs::{
    hmac,
    rand::SystemRandom,
    rsa::{KeyPair as Rsa, PublicKeyComponents},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    },
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::kit::serve;

pub(crate) const AUDIENCE: &str = "https://mcp.example.com/mcp";

pub(crate) fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the Unix time in so many seconds from now.
pub(crate) fn in_seconds(seconds: f64) -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64() + seconds
}

/// A key that signs tokens.
pub(crate) struct Signer {
    pub(crate) kid: &'static str,
    kind: Kind,
}

enum Kind {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Rsa(Rsa),
}

impl Signer {
    /// Returns a new P-256 key.
    pub(crate) fn ec(kid: &'static str) -> Self {
        let (random, scheme) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let key = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        Self { kid, kind: Kind::Ec(EcdsaKeyPair::from_pkcs8(scheme, key.as_ref()).unwrap()) }
    }

    /// Returns a new Ed25519 key.
    pub(crate) fn ed(kid: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { kid, kind: Kind::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap()) }
    }

    /// Returns the RSA key of the tests, which is stored because making one takes too long.
    pub(crate) fn rsa(kid: &'static str) -> Self {
        Self { kid, kind: Kind::Rsa(Rsa::from_pkcs8(include_bytes!("rsa.pk8")).unwrap()) }
    }

    /// Returns its usual algorithm.
    pub(crate) fn alg(&self) -> &'static str {
        match self.kind {
            Kind::Ec(_) => "ES256",
            Kind::Ed(_) => "EdDSA",
            Kind::Rsa(_) => "RS256",
        }
    }

    /// Returns modulus and exponent of an RSA key.
    pub(crate) fn public(&self) -> PublicKeyComponents<Vec<u8>> {
        let Kind::Rsa(key) = &self.kind else { panic!("no RSA key") };
        key.public_key().into()
    }

    /// Returns the public key, as in a key set.
    pub(crate) fn jwk(&self) -> Value {
        let mut jwk = match &self.kind {
            Kind::Ec(key) => {
                let point = key.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "x": b64(&point[1..33]), "y": b64(&point[33..]) })
            }
            Kind::Ed(key) => json!({ "kty": "OKP", "crv": "Ed25519", "x": b64(key.public_key()) }),
            Kind::Rsa(_) => json!({ "kty": "RSA", "n": b64(self.public().n), "e": b64(self.public().e) }),
        };
        jwk["kid"] = self.kid.into();
        jwk["use"] = "sig".into();
        jwk["alg"] = self.alg().into();
        jwk
    }

    fn sign(&self, alg: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.kind {
            Kind::Ec(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Kind::Ed(key) => key.sign(message).as_ref().to_vec(),
            Kind::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                let padding: &dyn aws_lc_rs::signature::RsaEncoding =
                    if alg == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
                key.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// Returns a token with this header and these claims.
    pub(crate) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
        let signature = self.sign(header["alg"].as_str().unwrap_or_default(), signed.as_bytes());
        format!("{signed}.{}", b64(signature))
    }

    /// Returns a token with these claims.
    pub(crate) fn token(&self, claims: &Value) -> String {
        self.token_with(&json!({ "alg": self.alg(), "kid": self.kid, "typ": "at+jwt" }), claims)
    }
}

/// Returns a token that is "signed" with a shared secret.
pub(crate) fn hs256(kid: &str, secret: &[u8], claims: &Value) -> String {
    let header = json!({ "alg": "HS256", "kid": kid });
    let signed = format!("{}.{}", b64(header.to_string()), b64(claims.to_string()));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
    format!("{signed}.{}", b64(signature))
}

/// An issuer that runs until the test's runtime ends.
pub(crate) struct Issuer {
    /// Its own name.
    pub(crate) url: String,
    shared: Arc<Shared>,
}

struct Shared {
    keys: Mutex<String>,
    redirect: Mutex<Option<String>>,
    /// The answers about opaque tokens.
    tokens: Mutex<HashMap<String, Value>>,
    /// Breaks every connection.
    off: AtomicBool,
    /// Requests, as method, path, `Authorization` and body.
    seen: Mutex<Vec<(String, String, String)>>,
    /// A permit for each answer.
    permits: Semaphore,
}

impl Issuer {
    /// Starts an issuer with these keys.
    pub(crate) async fn start(keys: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Shared {
            keys: Mutex::default(),
            redirect: Mutex::default(),
            tokens: Mutex::default(),
            off: AtomicBool::new(false),
            seen: Mutex::default(),
            permits: Semaphore::new(Semaphore::MAX_PERMITS),
        };
        let issuer = Self { url, shared: Arc::new(shared) };
        issuer.publish(keys);
        let shared = Arc::clone(&issuer.shared);
        tokio::spawn(serve(listener, CancellationToken::new(), move |request| {
            let shared = Arc::clone(&shared);
            async move { shared.answer(request).await }
        }));
        issuer
    }

    /// Replaces the key set.
    pub(crate) fn publish(&self, keys: &[&Signer]) {
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        self.publish_text(&json!({ "keys": keys }).to_string());
    }

    /// Replaces the document of the key set.
    pub(crate) fn publish_text(&self, text: &str) {
        text.clone_into(&mut self.shared.keys.lock());
    }

    /// Answers with a redirect to the key set of another issuer.
    pub(crate) fn redirect(&self, to: &Self) {
        *self.shared.redirect.lock() = Some(format!("{}/jwks.json", to.url));
    }

    /// Gives this answer about an opaque token from now on.
    pub(crate) fn say(&self, token: &str, answer: Value) {
        self.shared.tokens.lock().insert(token.to_owned(), answer);
    }

    /// Sets whether it breaks every connection.
    pub(crate) fn off(&self, off: bool) {
        self.shared.off.store(off, Ordering::SeqCst);
    }

    /// Holds every answer back until it is let go.
    pub(crate) fn hold(&self) {
        self.shared.permits.forget_permits(Semaphore::MAX_PERMITS);
    }

    /// Releases the answers that are held back.
    pub(crate) fn let_go(&self) {
        self.shared.permits.add_permits(1000);
    }

    /// Returns how many requests came for a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.shared.seen.lock().iter().filter(|(seen, ..)| seen == path).count()
    }

    /// Returns the `Authorization` and the body of the last request.
    pub(crate) fn last(&self) -> (String, String) {
        let seen = self.shared.seen.lock();
        let (_, authorization, body) = seen.last().unwrap();
        (authorization.clone(), body.clone())
    }

    /// Returns valid claims of a subject.
    pub(crate) fn claims(&self, sub: &str) -> Value {
        let (now, end) = (in_seconds(0.0), in_seconds(600.0));
        json!({ "iss": self.url, "sub": sub, "aud": AUDIENCE, "iat": now, "exp": end, "jti": uuid::Uuid::new_v4() })
    }

    /// Returns an `[auth]` section that trusts it.
    pub(crate) fn jwt(&self) -> String {
        let url = &self.url;
        format!(
            "[auth]\nmode = \"jwt\"\nissuer = \"{url}\"\naudience = [\"{AUDIENCE}\", \"other\"]\n\
             jwks = \"{url}/jwks.json\"\nleeway = \"1ms\"\n"
        )
    }

    /// Returns an `[auth]` section that asks it.
    pub(crate) fn introspect(&self, secret: &str) -> String {
        let url = &self.url;
        format!(
            "[auth]\nmode = \"introspect\"\nissuer = \"{url}\"\nintrospection_endpoint = \"{url}/introspect\"\n\
             audience = [\"{AUDIENCE}\"]\nclient_id = \"task:gate\"\nclient_secret = {{ file = \"{secret}\" }}\n"
        )
    }
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body = String::from_utf8(body.to_vec()).unwrap();
        let authorization = head.headers.get("authorization").map_or("", |value| value.to_str().unwrap());
        let path = head.uri.path();
        self.seen.lock().push((path.to_owned(), authorization.to_owned(), body.clone()));
        self.permits.acquire().await.unwrap().forget();
        if self.off.load(Ordering::SeqCst) {
            return Err(std::io::Error::other("switched off"));
        }
        if let Some(location) = self.redirect.lock().as_deref() {
            let redirect = Response::builder().status(302).header("location", location);
            return Ok(redirect.body(Full::default()).unwrap());
        }
        if path == "/jwks.json" {
            return Ok(Response::new(self.keys.lock().clone().into()));
        }
        let token = form_urlencoded::parse(body.as_bytes()).find(|(name, _)| name == "token").unwrap().1;
        let said = self.tokens.lock().get(&*token).cloned().unwrap_or(json!({ "active": false }));
        Ok(Response::new(said.to_string().into()))
    }
}
