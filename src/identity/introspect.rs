//! Tokens that their issuer is asked about (RFC 7662).

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use form_urlencoded::Serializer;
use futures_util::{FutureExt, future::Shared};
use http::HeaderValue;
use moka::{policy::EvictionPolicy, sync::Cache};
use parking_lot::Mutex;
use serde::Deserialize;

use super::{
    Denied, Identified, Pass, Principal,
    claims::Claims,
    token::{Digest, Token},
};
use crate::{
    config::{self, TokenRules},
    net::Fetcher,
    observe::{Observer, events},
    wire::excerpt,
};

/// How long a refusal holds at most: the issuer may have learnt of the token just after it was asked.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// How long a stream may go on with a token that has no end.
const ENDLESS: Duration = Duration::from_hours(1);
/// Answers that are remembered, of either kind.
const MAX_ANSWERS: u64 = 10_000;
/// Tokens that are asked about at once.
const MAX_ASKED: usize = 256;
/// When it is worth another try.
const RETRY: Duration = Duration::from_secs(5);

type Answer = Result<Principal, Denied>;
type Asked = Shared<Pin<Box<dyn Future<Output = Answer> + Send>>>;

/// Asks about tokens.
#[derive(Clone)]
pub(super) struct Introspect(Arc<Inner>);

struct Inner {
    rules: TokenRules,
    endpoint: Fetcher,
    /// The client's name and secret.
    authorization: HeaderValue,
    active: Cache<Digest, Principal>,
    refused: Cache<Digest, Denied>,
    /// Whoever asks for the same token waits for the same answer.
    asked: Mutex<HashMap<Digest, Asked>>,
    observer: Arc<Observer>,
}

#[derive(Deserialize)]
struct Introspection {
    active: bool,
}

impl fmt::Debug for Introspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introspect").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl Introspect {
    pub(super) fn new(config: config::Introspect, observer: Arc<Observer>) -> Result<Self, String> {
        let config::Introspect { rules, endpoint, client_id, client_secret, cache, .. } = config;
        // RFC 6749, section 2.3.1: both are encoded like a form before they are like a password.
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let credentials = format!("{}:{}", encode(&client_id), encode(client_secret.expose()));
        let authorization = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(credentials)));
        let mut authorization = authorization.map_err(|error| error.to_string())?;
        authorization.set_sensitive(true);
        let answers = Cache::builder().max_capacity(MAX_ANSWERS).time_to_live(cache);
        let refusals = Cache::builder().max_capacity(MAX_ANSWERS).time_to_live(cache.min(REFUSED_FOR));
        Ok(Self(Arc::new(Inner {
            rules,
            endpoint: Fetcher::new(endpoint)?,
            authorization,
            active: answers.eviction_policy(EvictionPolicy::lru()).build(),
            refused: refusals.eviction_policy(EvictionPolicy::lru()).build(),
            asked: Mutex::default(),
            observer,
        })))
    }

    /// The principal of a token: at once if the answer is remembered.
    pub(super) fn identify(&self, token: Token<'_>) -> Result<Identified, Denied> {
        let digest = token.digest();
        if let Some(principal) = self.0.active.get(&digest) {
            return principal.if_live().map(|principal| Identified::Known(Some(principal)));
        }
        if let Some(denied) = self.0.refused.get(&digest) {
            return Err(denied);
        }
        Ok(Identified::Later(Box::pin(self.ask(digest, token.text()?)?)))
    }

    fn ask(&self, digest: Digest, token: &str) -> Result<Asked, Denied> {
        let mut asked = self.0.asked.lock();
        if let Some(answer) = asked.get(&digest) {
            return Ok(answer.clone());
        }
        if asked.len() >= MAX_ASKED {
            let why = "limit reached: 256 tokens are being checked already; try again later";
            return Err(Denied::Unavailable { why, after: Duration::from_secs(1) });
        }
        let (inner, token) = (Arc::clone(&self.0), token.to_owned());
        // In a task of its own: who asked first may leave before the others.
        let answer = tokio::spawn(async move {
            let answer = inner.answer(&token).await;
            match &answer {
                Ok(principal) => inner.active.insert(digest, principal.clone()),
                Err(Denied::Unavailable { .. }) => {}
                Err(denied) => inner.refused.insert(digest, denied.clone()),
            }
            // After it is remembered, so that nobody asks again in between.
            inner.asked.lock().remove(&digest);
            answer
        });
        let answer = answer.map(|answer| answer.unwrap_or(Err(UNAVAILABLE))).boxed().shared();
        asked.insert(digest, answer.clone());
        Ok(answer)
    }
}

const UNAVAILABLE: Denied =
    Denied::Unavailable { why: "the issuer cannot be asked about the token; try again later", after: RETRY };

impl Inner {
    async fn answer(&self, token: &str) -> Answer {
        let form = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let read = self.endpoint.post(form, self.authorization.clone()).await.and_then(|document| {
            let Introspection { active } = serde_json::from_slice(&document).map_err(|error| error.to_string())?;
            let claims = active.then(|| serde_json::from_slice::<Claims>(&document)).transpose();
            claims.map_err(|error| error.to_string())
        });
        match read {
            Ok(Some(claims)) => {
                let mut principal = claims.principal(&self.rules, Duration::ZERO)?;
                if let Pass::Lasting = principal.pass {
                    principal.pass = Pass::Until(SystemTime::now() + ENDLESS);
                }
                Ok(principal)
            }
            // Expired, revoked, invented: the issuer does not say.
            Ok(None) => Err(Denied::BadToken("the token is not active")),
            Err(error) => {
                self.observer.emit(events::IssuerFailed { error: &excerpt(&error) });
                Err(UNAVAILABLE)
            }
        }
    }
}
