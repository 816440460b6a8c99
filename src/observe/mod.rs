//! What happens, told once: emitting an event writes the log line and moves the metric, so the two cannot disagree.

pub mod events;
mod metrics;

pub use metrics::Metrics;

/// One thing that happens.
pub trait Event {
    /// Writes the log line and moves the metrics.
    fn tell(&self, metrics: &Metrics);
}

/// Takes in events; one a process.
#[derive(Debug, Default)]
pub struct Observer {
    metrics: Metrics,
}

impl Observer {
    /// Tells everyone concerned that `event` has happened.
    #[expect(clippy::needless_pass_by_value, reason = "an event is made to be told once")]
    pub fn emit(&self, event: impl Event) {
        event.tell(&self.metrics);
    }

    /// The metrics in the `OpenMetrics` text format.
    #[must_use]
    pub fn open_metrics(&self) -> String {
        self.metrics.encode()
    }
}
