//! An issuer's key set, kept fresh.

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

/// How long keys are used before they are looked at again.
const FRESH_FOR: Duration = Duration::from_mins(10);
/// The time between two fetches for the sake of keys that nobody knows: anyone can invent those.
const FLOOR: Duration = Duration::from_secs(30);
/// The time between a fetch that failed and the next.
const RETRY: Duration = Duration::from_secs(5);

/// The key set of one issuer. Where it cannot be fetched, the last one stays in use.
#[derive(Debug)]
pub(super) struct Jwks {
    source: Source,
    current: RwLock<Current>,
    fetching: Mutex<Fetching>,
    observer: Arc<Observer>,
}

#[derive(Debug)]
enum Source {
    Url(Box<Fetcher>),
    File(PathBuf),
}

#[derive(Debug)]
struct Current {
    keys: Option<Arc<KeySet>>,
    /// When they are due to be looked at again.
    due: Instant,
}

#[derive(Debug)]
struct Fetching {
    /// When they may be fetched for an unknown key.
    allowed: Instant,
    /// The last fetch failed.
    failed: bool,
}

impl Jwks {
    /// Begins to fetch the keys.
    ///
    /// # Errors
    /// A sentence, if TLS cannot be set up for an `https` address.
    pub(super) fn start(source: KeySource, observer: Arc<Observer>) -> Result<Arc<Self>, String> {
        let source = match source {
            KeySource::Url(uri) => Source::Url(Box::new(Fetcher::new(uri)?)),
            KeySource::File(path) => Source::File(path),
        };
        let now = Instant::now();
        let current = RwLock::new(Current { keys: None, due: now });
        let fetching = Mutex::new(Fetching { allowed: now, failed: false });
        let jwks = Arc::new(Self { source, current, fetching, observer });
        match &jwks.source {
            // Nobody waits yet, and the first request finds the keys. If not, it looks again.
            Source::File(path) => {
                jwks.take(read(path));
            }
            Source::Url(_) => jwks.refresh(None),
        }
        Ok(jwks)
    }

    /// The keys, as far as they are known. When they are old they are fetched meanwhile.
    pub(super) fn current(self: &Arc<Self>) -> Option<Arc<KeySet>> {
        let current = self.current.read();
        let (keys, due) = (current.keys.clone(), current.due);
        drop(current);
        if keys.is_some() && Instant::now() >= due {
            self.refresh(keys.clone());
        }
        keys
    }

    /// Fetches the keys in the background, unless somebody has done so meanwhile.
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
            let mut fetching = jwks.fetching.lock().await;
            if jwks.still_has(known.as_ref()) {
                jwks.fetch(&mut fetching).await;
            }
        });
    }

    fn still_has(&self, known: Option<&Arc<KeySet>>) -> bool {
        match (&self.current.read().keys, known) {
            (Some(current), Some(known)) => Arc::ptr_eq(current, known),
            (None, None) => true,
            _ => false,
        }
    }

    /// Fetches the keys because the `known` ones did not help, unless that has just been done.
    ///
    /// # Errors
    /// The keys cannot be fetched; it is worth another try after that time.
    pub(super) async fn newer(self: &Arc<Self>, known: Option<Arc<KeySet>>) -> Result<(), Duration> {
        let jwks = Arc::clone(self);
        // Whoever asks may leave; the others wait for this.
        let newer = tokio::spawn(async move {
            let mut fetching = jwks.fetching.lock().await;
            let now = Instant::now();
            if jwks.still_has(known.as_ref()) && now >= fetching.allowed {
                fetching.allowed = now + FLOOR;
                jwks.fetch(&mut fetching).await;
            }
            if fetching.failed { Err(fetching.allowed.saturating_duration_since(Instant::now())) } else { Ok(()) }
        });
        newer.await.unwrap_or(Err(RETRY))
    }

    async fn fetch(&self, fetching: &mut Fetching) {
        let keys = match &self.source {
            Source::Url(fetcher) => fetcher.get().await.and_then(|document| KeySet::parse(&document)),
            Source::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read(&path));
                read.await.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        fetching.failed = !self.take(keys);
        if fetching.failed {
            fetching.allowed = Instant::now() + RETRY;
        }
    }

    /// Puts the keys that were fetched in the place of the old ones. `false`, and the old ones stay, if none were.
    fn take(&self, keys: Result<KeySet, String>) -> bool {
        let mut current = self.current.write();
        match keys {
            Ok(keys) => {
                current.due = Instant::now() + FRESH_FOR;
                // The tokens that were verified are still good if nothing has changed.
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
    let document = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    KeySet::parse(&document)
}
