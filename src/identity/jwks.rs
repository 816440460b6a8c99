//! Keeps the key set of an issuer fresh.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{sync::Mutex, time::Instant};

use super::keys::KeySet;
use crate::{
    config::KeySource,
    net::Fetcher,
    observe::{Observer, events},
    wire::excerpt,
};

/// How long keys are used before they are fetched again.
const FRESH_FOR: Duration = Duration::from_mins(10);
/// The least time between two fetches because of unknown keys, which any client can invent.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);
/// The time from a fetch that failed to the next.
const RETRY: Duration = Duration::from_secs(5);

/// The key set of one issuer. While it cannot be fetched, the last one stays in use.
#[derive(Debug)]
pub(super) struct Jwks {
    source: KeyFetcher,
    current: RwLock<CurrentKeys>,
    /// Held during a fetch, so that there is one at a time.
    fetch_state: Mutex<FetchState>,
    observer: Arc<Observer>,
}

/// How the keys are fetched.
#[derive(Debug)]
enum KeyFetcher {
    Url(Box<Fetcher>),
    File(PathBuf),
}

#[derive(Debug)]
struct CurrentKeys {
    /// `None` until the first fetch has succeeded.
    keys: Option<Arc<KeySet>>,
    /// When they are due to be fetched again.
    due: Instant,
}

#[derive(Debug)]
struct FetchState {
    /// When an unknown key may lead to the next fetch.
    allowed: Instant,
    /// Whether the last fetch failed.
    failed: bool,
}

impl Jwks {
    /// Begins to fetch the keys.
    ///
    /// # Errors
    /// A sentence, if TLS cannot be set up for an `https` URL.
    pub(super) fn start(source: KeySource, observer: Arc<Observer>) -> Result<Arc<Self>, String> {
        let source = match source {
            KeySource::Url(uri) => KeyFetcher::Url(Box::new(Fetcher::new(uri)?)),
            KeySource::File(path) => KeyFetcher::File(path),
        };
        let now = Instant::now();
        let current = RwLock::new(CurrentKeys { keys: None, due: now });
        let fetch_state = Mutex::new(FetchState { allowed: now, failed: false });
        let jwks = Arc::new(Self { source, current, fetch_state, observer });
        match &jwks.source {
            // No request waits yet, and the first one finds the keys. If this fails, it reads the file again.
            KeyFetcher::File(path) => {
                jwks.take(read(path));
            }
            KeyFetcher::Url(_) => jwks.refresh(None),
        }
        Ok(jwks)
    }

    /// Returns the keys, if they are known. Has them fetched in the background where they are due.
    pub(super) fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let current = self.current.read();
        let (keys, due) = (current.keys.clone(), current.due);
        drop(current);
        if keys.is_some() && Instant::now() >= due {
            self.refresh(keys.clone());
        }
        keys
    }

    /// Fetches the keys in the background, unless another request has had them fetched meanwhile.
    fn refresh(self: &Arc<Self>, known: Option<Arc<KeySet>>) {
        let now = Instant::now();
        let mut current = self.current.write();
        if now < current.due {
            return;
        }
        current.due = now + RETRY;
        drop(current);
        let jwks = Arc::clone(self);
        tokio::spawn(async move {
            let mut state = jwks.fetch_state.lock().await;
            if jwks.still_has(known.as_ref()) {
                jwks.fetch(&mut state).await;
            }
        });
    }

    /// Returns whether the keys are still the `known` ones.
    fn still_has(&self, known: Option<&Arc<KeySet>>) -> bool {
        match (&self.current.read().keys, known) {
            (Some(current), Some(known)) => Arc::ptr_eq(current, known),
            (None, None) => true,
            _ => false,
        }
    }

    /// Fetches the keys because the `known` ones did not help, unless they have just been fetched.
    ///
    /// # Errors
    /// After how long to try again, if the keys cannot be fetched.
    pub(super) async fn newer(self: &Arc<Self>, known: Option<Arc<KeySet>>) -> Result<(), Duration> {
        let jwks = Arc::clone(self);
        // In a task of its own: the request may leave, and the others wait for this fetch.
        let newer = tokio::spawn(async move {
            let mut state = jwks.fetch_state.lock().await;
            let now = Instant::now();
            if jwks.still_has(known.as_ref()) && now >= state.allowed {
                state.allowed = now + UNKNOWN_KEY_PAUSE;
                jwks.fetch(&mut state).await;
            }
            if state.failed { Err(state.allowed.saturating_duration_since(Instant::now())) } else { Ok(()) }
        });
        newer.await.unwrap_or(Err(RETRY))
    }

    async fn fetch(&self, state: &mut FetchState) {
        let keys = match &self.source {
            KeyFetcher::Url(fetcher) => fetcher.get().await.and_then(|document| KeySet::parse(&document)),
            KeyFetcher::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read(&path));
                read.await.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        state.failed = !self.take(keys);
        if state.failed {
            state.allowed = Instant::now() + RETRY;
        }
    }

    /// Replaces the keys by those that were fetched. If the fetch failed, keeps the old ones and returns `false`.
    fn take(&self, keys: Result<KeySet, String>) -> bool {
        let mut current = self.current.write();
        match keys {
            Ok(keys) => {
                current.due = Instant::now() + FRESH_FOR;
                // With the same keys the tokens that were verified stay good.
                if !current.keys.as_ref().is_some_and(|old| old.same_keys(&keys)) {
                    self.observer.emit(events::KeysChanged { usable: keys.len() });
                    current.keys = Some(Arc::new(keys));
                }
                true
            }
            Err(error) => {
                current.due = Instant::now() + RETRY;
                self.observer.emit(events::IssuerFailed { error: &excerpt(&error) });
                false
            }
        }
    }
}

fn read(path: &Path) -> Result<KeySet, String> {
    let named = |why| format!("auth.jwks: {}: {why}", path.display());
    let document = std::fs::read(path).map_err(|error| named(error.to_string()))?;
    KeySet::parse(&document).map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_keys_is_named_with_its_setting() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let named = format!("auth.jwks: {}: ", file.path().display());
        for (text, why) in [("text", "it is not a JWK set"), ("{}", "missing field `keys`")] {
            std::fs::write(file.path(), text).expect("room");
            let error = read(file.path()).expect_err(text);
            assert!(error.starts_with(&named) && error.contains(why), "{error}");
        }
    }
}
