//! The store of tasks as it is configured, and the time that it goes by.

use std::sync::Arc;

use super::StartError;
use crate::{
    config::{self, StoreFile},
    disk::{Disk, OpenOptions, Opened},
    observe::Observer,
    task::{
        Clock,
        store::{FileStore, MaxKept, MemoryStore, Store},
    },
};

/// A store that is open.
pub(super) struct OpenStore {
    pub store: Arc<dyn Store>,
    /// The time of its deadlines.
    pub clock: Clock,
    /// Its file, if it has one.
    pub disk: Option<Disk>,
}

/// Opens the store.
///
/// # Errors
/// [`StartError::Store`]
pub(super) async fn open(
    config: config::Store,
    max: MaxKept,
    observer: &Arc<Observer>,
) -> Result<OpenStore, StartError> {
    match config {
        config::Store::Memory => {
            let clock = Clock::start();
            let store = Arc::new(MemoryStore::new(max, clock, Arc::clone(observer)));
            Ok(OpenStore { store, clock, disk: None })
        }
        config::Store::File(file) => open_file(file, max, observer).await,
    }
}

async fn open_file(file: StoreFile, max: MaxKept, observer: &Arc<Observer>) -> Result<OpenStore, StartError> {
    let StoreFile { path, max_store_bytes, key, old_keys } = file;
    let max_bytes = max_store_bytes as u64;
    let options = OpenOptions {
        path,
        key: key.map(|key| key.expose().to_owned()),
        old_keys: old_keys.iter().map(|key| key.expose().to_owned()).collect(),
        max_bytes,
    };
    // Checking a file takes time.
    let observing = Arc::clone(observer);
    let opening = tokio::task::spawn_blocking(move || Disk::open(&options, &observing));
    let opened = opening.await.map_err(|error| StartError::Store(error.to_string()))?;
    let (disk, Opened { now, is_new }) = opened.map_err(|error| StartError::Store(error.to_string()))?;
    let clock = Clock::starting_at(now);
    let store = FileStore::open(disk.clone(), max, max_bytes, clock, Arc::clone(observer)).await;
    let store = store.map_err(|why| StartError::Store(disk.refusal(&why.0).to_string()))?;
    let path = disk.path().display().to_string();
    tracing::info!(path, is_new, sealed = disk.seals().seals(), "tasks are kept in a file");
    Ok(OpenStore { store: Arc::new(store), clock, disk: Some(disk) })
}
