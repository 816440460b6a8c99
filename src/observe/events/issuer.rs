//! What happens with the issuer of tokens.

use crate::observe::{Event, Metrics};

/// The issuer of tokens could not be asked for its keys, or about a token.
#[derive(Debug)]
pub struct IssuerFailed<'a> {
    /// Why.
    pub error: &'a str,
}

impl Event for IssuerFailed<'_> {
    fn tell(&self, metrics: &Metrics) {
        metrics.issuer_failures.inc();
        tracing::warn!(error = self.error, "the issuer of tokens did not answer");
    }
}

/// The issuer's keys are other ones, or are known for the first time.
#[derive(Debug)]
pub struct KeysChanged {
    /// How many of them can be used.
    pub usable: usize,
}

impl Event for KeysChanged {
    fn tell(&self, _metrics: &Metrics) {
        if self.usable == 0 {
            tracing::warn!("the issuer's key set has no key that can be used, and every token is refused");
        } else {
            tracing::info!(usable = self.usable, "the issuer's keys were read");
        }
    }
}
