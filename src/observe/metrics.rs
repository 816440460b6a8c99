//! The metrics, in one place with their names and help texts.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

/// How a task ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// `completed`
    Completed,
    /// `failed`
    Failed,
    /// `cancelled`
    Cancelled,
    /// Its ttl was over before the call had ended.
    Expired,
    /// Its session ended first.
    Orphaned,
}

impl Ended {
    /// The protocol's word where it has one.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Orphaned => "orphaned",
        }
    }
}

/// The label of ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    /// How it ended.
    pub status: &'static str,
}

/// The label of refusals.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// Why, as a short constant.
    pub reason: &'static str,
}

/// Every metric of the process.
#[derive(Debug)]
#[allow(missing_docs, reason = "the help texts below say what each one is")]
pub struct Metrics {
    registry: Registry,
    pub connections: Gauge,
    pub connections_cut: Family<ReasonLabels, Counter>,
    pub sessions: Gauge,
    pub sessions_opened: Counter,
    pub tasks_live: Gauge,
    pub tasks_queued: Gauge,
    pub tasks_created: Counter,
    pub tasks_refused: Family<ReasonLabels, Counter>,
    pub tasks_ended: Family<EndLabels, Counter>,
    pub task_seconds: Histogram,
    pub tasks_kept: Gauge,
    pub result_bytes: Gauge,
    pub requests_refused: Family<ReasonLabels, Counter>,
    pub exchange_failures: Counter,
    pub issuer_failures: Counter,
    pub questions: Counter,
    pub questions_refused: Family<ReasonLabels, Counter>,
    pub question_bytes: Gauge,
    pub unknown_answers: Counter,
    pub unknown_responses: Counter,
    pub unknown_progress: Counter,
    pub messages_dropped: Counter,
    pub failed_lookups: Counter,
    pub audit_lines_lost: Counter,
    pub children: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("taskgate");
        let mut gauge = |name: &str, help: &str| {
            let gauge = Gauge::default();
            registry.register(name, help, gauge.clone());
            gauge
        };
        let connections = gauge("connections", "Connections of clients that are open");
        let sessions = gauge("sessions", "Sessions that are open");
        let tasks_live = gauge("tasks_live", "Tasks that run or wait for their turn");
        let tasks_queued = gauge("tasks_queued", "Tasks that wait for their turn");
        let tasks_kept = gauge("tasks_kept", "Tasks in the store, ended ones included");
        let result_bytes = gauge("result_bytes", "Bytes of the results that are kept");
        let question_bytes = gauge("question_bytes", "Bytes that open questions of tasks take");
        let children = gauge("children", "Child processes of stdio upstreams that run");
        let mut counter = |name: &str, help: &str| {
            let counter = Counter::default();
            registry.register(name, help, counter.clone());
            counter
        };
        let sessions_opened = counter("sessions_opened", "Sessions that were opened");
        let tasks_created = counter("tasks_created", "Tasks that were acknowledged");
        let exchange_failures = counter("exchange_failures", "Plain requests to which an upstream gave no response");
        let issuer_failures =
            counter("issuer_failures", "Requests to the issuer of tokens that it did not answer as it should");
        let questions = counter("questions", "Requests of upstreams to clients in the course of tasks");
        let unknown_answers = counter("unknown_answers", "Answers to no open question of a task, dropped");
        let unknown_responses = counter("unknown_responses", "Late or unknown responses of an upstream, dropped");
        let unknown_progress = counter("unknown_progress", "Progress of an upstream under an unknown token, dropped");
        let messages_dropped = counter("messages_dropped", "Messages dropped because their reader was too slow");
        let failed_lookups = counter("failed_lookups", "Ids of tasks that were asked for and not found");
        let audit_lines_lost =
            counter("audit_lines_lost", "Lines for the audit log that were lost, as the disk took none");
        let connections_cut = Family::default();
        registry.register(
            "connections_cut",
            "Connections closed on which no whole request came",
            connections_cut.clone(),
        );
        let tasks_refused = Family::default();
        registry.register("tasks_refused", "Task-augmented calls that were refused", tasks_refused.clone());
        let questions_refused = Family::default();
        let help = "Requests of upstreams in the course of tasks that a limit has refused in the client's place";
        registry.register("questions_refused", help, questions_refused.clone());
        let tasks_ended = Family::default();
        registry.register("tasks_ended", "Tasks that ended, by how", tasks_ended.clone());
        let requests_refused = Family::default();
        registry.register("requests_refused", "HTTP requests that were refused", requests_refused.clone());
        let task_seconds = Histogram::new(exponential_buckets(0.1, 4.0, 10));
        let help = "Time from a task's creation to its end";
        registry.register_with_unit("task_duration", help, Unit::Seconds, task_seconds.clone());
        Self {
            registry,
            connections,
            connections_cut,
            sessions,
            sessions_opened,
            tasks_live,
            tasks_queued,
            tasks_created,
            tasks_refused,
            tasks_ended,
            task_seconds,
            tasks_kept,
            result_bytes,
            requests_refused,
            exchange_failures,
            issuer_failures,
            questions,
            questions_refused,
            question_bytes,
            unknown_answers,
            unknown_responses,
            unknown_progress,
            messages_dropped,
            failed_lookups,
            audit_lines_lost,
            children,
        }
    }
}

impl Metrics {
    /// The `OpenMetrics` text.
    pub(super) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
