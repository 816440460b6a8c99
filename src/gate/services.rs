//! What answers clients, whatever they come by.

use std::sync::Arc;

use super::{Dispatcher, Lifecycle};
use crate::{dialect::modern::Modern, observe::Observer};

/// What the fronts share.
#[derive(Clone, Debug)]
pub struct Services {
    /// Opens, finds and ends sessions.
    pub lifecycle: Arc<Lifecycle>,
    /// Takes the messages of a session.
    pub dispatcher: Arc<Dispatcher>,
    /// Answers requests without a session.
    pub modern: Arc<Modern>,
    /// Where to report.
    pub observer: Arc<Observer>,
}
