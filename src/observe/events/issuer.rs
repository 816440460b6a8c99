//! What the issuer of tokens does.

use crate::observe::{Event, Metrics};

/// The issuer of tokens gave no usable answer about its keys, or about a token.
#[derive(Debug)]
pub struct IssuerFailed<'a> {
    /// Why.
    pub error: &'a str,
}

impl Event for IssuerFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.issuer_failures.inc();
        tracing::warn!(error = self.error, "the issuer of tokens gave no usable answer");
    }
}

/// The issuer's keys have changed, or were read for the first time.
#[derive(Debug)]
pub struct KeysChanged {
    /// How many of them can be used.
    pub usable: usize,
}

impl Event for KeysChanged {
    fn tell(&self, _metrics: &Metrics) {
        if self.usable == 0 {
            tracing::warn!("the issuer's key set has no usable key, so every token is refused");
        } else {
            tracing::info!(usable = self.usable, "the issuer's keys were read");
        }
    }
}
