//! A gate that is maltreated while somebody else uses it.

use super::{Client, Gate, Upstream};

/// A gate, its upstream, and a client in a session that must not notice anything of what happens.
pub(crate) struct Witnessed {
    pub(crate) upstream: Upstream,
    pub(crate) gate: Gate,
    pub(crate) witness: Client,
}

impl Witnessed {
    /// A gate configured by `toml`.
    pub(crate) async fn new(toml: &str) -> Self {
        let upstream = Upstream::json().await;
        let gate = Gate::with(&upstream, toml).await;
        let witness = Client::connect(&gate.url).await;
        Self { upstream, gate, witness }
    }
}
