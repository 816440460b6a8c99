//! Asks the issuer about tokens, and remembers what it says (RFC 7662).

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
    token::{BearerToken, Digest},
};
use crate::{
    config::{self, TokenRules},
    net::Fetcher,
    observe::{Observer, events},
    wire::excerpt,
};

/// The longest time for which a refusal holds: the issuer may have learnt of the token just after taskgate asked.
const REFUSED_FOR: Duration = Duration::from_secs(3);
/// How long a stream may go on with a token whose end the issuer does not tell.
const ENDLESS: Duration = Duration::from_hours(1);
/// How many verdicts of either kind are remembered.
const MAX_VERDICTS: u64 = 10_000;
/// How many tokens taskgate asks at once.
const MAX_ASKED: usize = 256;
/// What is said where they are.
const ALL_ASKED: &str = "limit reached: 256 tokens are being checked already; try again later";
const _: () = assert!(MAX_ASKED == 256);
/// After how long to try again where the issuer does not answer.
const RETRY: Duration = Duration::from_secs(5);

type Verdict = Result<Principal, Denied>;
type PendingVerdict = Shared<Pin<Box<dyn Future<Output = Verdict> + Send>>>;

/// Finds principals by asking their issuer about tokens.
#[derive(Clone)]
pub(super) struct Introspector(Arc<IssuerClient>);

/// Asks one issuer, and keeps its verdicts.
struct IssuerClient {
    rules: TokenRules,
    endpoint: Fetcher,
    /// taskgate's name and secret as a client of the issuer.
    authorization: HeaderValue,
    active: Cache<Digest, Principal>,
    refused: Cache<Digest, Denied>,
    /// The verdicts on their way. All requests with the same token wait for the same one.
    pending: Mutex<HashMap<Digest, PendingVerdict>>,
    observer: Arc<Observer>,
}

#[derive(Deserialize)]
struct IntrospectionResponse {
    active: bool,
}

impl fmt::Debug for Introspector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Introspector").field("endpoint", &self.0.endpoint).finish_non_exhaustive()
    }
}

impl Introspector {
    pub(super) fn new(config: config::Introspect, observer: Arc<Observer>) -> Result<Self, String> {
        let config::Introspect { rules, endpoint, client_id, client_secret, cache, .. } = config;
        // RFC 6749, section 2.3.1: each is form-encoded before both are encoded as Basic credentials.
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let credentials = format!("{}:{}", encode(&client_id), encode(client_secret.expose()));
        let authorization = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(credentials)));
        let mut authorization = authorization.map_err(|error| error.to_string())?;
        authorization.set_sensitive(true);
        let accepted = Cache::builder().max_capacity(MAX_VERDICTS).time_to_live(cache);
        let refused = Cache::builder().max_capacity(MAX_VERDICTS).time_to_live(cache.min(REFUSED_FOR));
        Ok(Self(Arc::new(IssuerClient {
            rules,
            endpoint: Fetcher::new(endpoint)?,
            authorization,
            active: accepted.eviction_policy(EvictionPolicy::lru()).build(),
            refused: refused.eviction_policy(EvictionPolicy::lru()).build(),
            pending: Mutex::default(),
            observer,
        })))
    }

    /// Finds the principal of a token, at once if the verdict is remembered.
    pub(super) fn identify(&self, token: BearerToken<'_>) -> Result<Identified, Denied> {
        let digest = token.digest();
        if let Some(principal) = self.0.active.get(&digest) {
            return principal.if_live().map(|principal| Identified::Known(Some(principal)));
        }
        if let Some(denied) = self.0.refused.get(&digest) {
            return Err(denied);
        }
        Ok(Identified::Later(Box::pin(self.ask(digest, token.text()?)?)))
    }

    fn ask(&self, digest: Digest, token: &str) -> Result<PendingVerdict, Denied> {
        let mut pending = self.0.pending.lock();
        if let Some(verdict) = pending.get(&digest) {
            return Ok(verdict.clone());
        }
        if pending.len() >= MAX_ASKED {
            return Err(Denied::Unavailable { why: ALL_ASKED, after: Duration::from_secs(1) });
        }
        let (issuer, token) = (Arc::clone(&self.0), token.to_owned());
        // In a task of its own: the request that came first may leave before the others.
        let verdict = tokio::spawn(async move {
            let verdict = issuer.verdict(&token).await;
            match &verdict {
                Ok(principal) => issuer.active.insert(digest, principal.clone()),
                Err(Denied::Unavailable { .. }) => {}
                Err(denied) => issuer.refused.insert(digest, denied.clone()),
            }
            // Only now that the verdict is remembered, so that no request asks again in between.
            issuer.pending.lock().remove(&digest);
            verdict
        });
        let verdict = verdict.map(|verdict| verdict.unwrap_or(Err(UNAVAILABLE))).boxed().shared();
        pending.insert(digest, verdict.clone());
        Ok(verdict)
    }
}

const UNAVAILABLE: Denied =
    Denied::Unavailable { why: "the issuer does not say whether the token is good; try again later", after: RETRY };

impl IssuerClient {
    /// Asks the issuer about a token.
    async fn verdict(&self, token: &str) -> Verdict {
        let form = Serializer::new(String::new())
            .append_pair("token", token)
            .append_pair("token_type_hint", "access_token")
            .finish();
        let read = self.endpoint.post(form, self.authorization.clone()).await.and_then(|document| {
            let IntrospectionResponse { active } =
                serde_json::from_slice(&document).map_err(|error| error.to_string())?;
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
            // The issuer does not say whether it is expired, revoked or invented.
            Ok(None) => Err(Denied::BadToken("the token is not active")),
            Err(error) => {
                self.observer.emit(events::IssuerFailed { error: &excerpt(&error) });
                Err(UNAVAILABLE)
            }
        }
    }
}
