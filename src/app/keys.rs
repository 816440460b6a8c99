//! The keys of what clients keep: they live as long as the tasks.

use super::StartError;
use crate::disk::{Disk, Unavailable};

/// The keys of what clients keep.
#[derive(Debug)]
pub(super) struct Keys {
    /// Of the cursors of lists.
    pub(super) cursors: [u8; 32],
    /// Of the names of tokens that only a server can judge.
    pub(super) bearer_names: [u8; 32],
    /// Of `requestState`.
    pub(super) request_states: [u8; 32],
}

impl Keys {
    /// Returns the keys of a file, or new ones for this process.
    ///
    /// # Errors
    /// [`StartError`]
    pub(super) async fn of(disk: Option<&Disk>) -> Result<Self, StartError> {
        Ok(Self {
            cursors: key(disk, "cursors").await?,
            bearer_names: key(disk, "bearer names").await?,
            request_states: key(disk, "requestState").await?,
        })
    }
}

async fn key(disk: Option<&Disk>, name: &'static str) -> Result<[u8; 32], StartError> {
    let Some(disk) = disk else {
        let mut key = [0; 32];
        // From the system: the first random bytes of aws-lc take some 20 ms, and every start would wait for them.
        let filled = getrandom::fill(&mut key);
        return filled
            .map(|()| key)
            .map_err(|why| StartError::Identity(format!("the system gives no random bytes: {why}")));
    };
    disk.key(name).await.map_err(|why| unusable(disk, &why))
}

/// Returns why taskgate does not start without what its store has.
pub(super) fn unusable(disk: &Disk, why: &Unavailable) -> StartError {
    StartError::Store(format!("the store \"{}\" cannot be used: {why}", disk.path().display()))
}
