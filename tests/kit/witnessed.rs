//! A gate that is maltreated while another client uses it.

use super::{Client, Gate, Upstream};

/// A gate, its upstream, and the witness: a client in a session that must not notice anything.
pub(crate) struct Witnessed {
    pub(crate) upstream: Upstream,
    pub(crate) gate: Gate,
    pub(crate) witness: Client,
}

impl Witnessed {
    /// Starts a gate configured by `toml`.
    pub(crate) async fn new(toml: &str) -> Self {
        let upstream = Upstream::json().await;
        let gate = Gate::with(&upstream, toml).await;
        let witness = Client::connect(&gate.url).await;
        Self { upstream, gate, witness }
    }
}
