//! Tasks for clients of revision 2025-11-25: one file for each thing that clients do.

mod cancel;
mod concerns;
mod create;
mod cursor;
mod get;
mod list;
mod question;
mod reply;
mod result;

use std::sync::Arc;

pub use create::{Acknowledgement, RequestedTask};
pub use question::{MaybeAnswer, asked, withdrawn};
pub use reply::{NoResult, Reply};

use cursor::Cursors;
use question::LegacyWriter;

use crate::{
    session::{Session, Source},
    task::{Engine, TaskWriter},
};

/// Returns what writes for the streams of this generation.
#[must_use]
pub fn writer() -> &'static dyn TaskWriter {
    &LegacyWriter
}

/// Answers clients of this generation from the engine.
#[derive(Debug)]
pub struct Legacy {
    engine: Arc<Engine>,
    /// Makes cursors that no client can invent.
    cursors: Cursors,
}

impl Legacy {
    /// Returns a dialect in front of `engine`, whose cursors hold under `key`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, key: &[u8; 32]) -> Self {
        Self { engine, cursors: Cursors::new(key) }
    }

    /// Returns the engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns what a session's GET stream delivers.
    #[must_use]
    pub fn get_stream(&self, session: &Session) -> Box<dyn Source> {
        self.engine.get_stream(session, &LegacyWriter)
    }
}
