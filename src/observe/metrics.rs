//! The metrics, in one place with their names and help texts.

use std::{hash::Hash, sync::LazyLock};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry, Unit},
};

use super::label_values::label_values;

/// How a task ended, as metrics and lines say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// `completed`
    Completed,
    /// `failed`
    Failed,
    /// `cancelled`
    Cancelled,
    /// Its ttl ran out before the call had ended.
    Expired,
    /// Its session ended first.
    Orphaned,
}

impl Ended {
    /// Returns the word for it: the protocol's, where it has one.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Orphaned => "orphaned",
        }
    }
}

/// The label of metrics about ended tasks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EndLabels {
    /// How it ended.
    pub status: &'static str,
}

/// The label of metrics about refusals and losses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabels {
    /// Why, as a short constant.
    pub reason: &'static str,
}

/// The lines that the log has lost. A process has one log, however many observers it has.
static LOG_LINES_LOST: LazyLock<Family<ReasonLabels, Counter>> =
    LazyLock::new(|| from_zero(Family::default(), "log_lines_lost", |reason| ReasonLabels { reason }));

/// Counts lines that the log has lost.
pub fn log_lines_lost(reason: &'static str, count: u64) {
    LOG_LINES_LOST.get_or_create(&ReasonLabels { reason }).inc_by(count);
}

/// Every metric of the process.
#[derive(Debug)]
#[allow(missing_docs, reason = "the help texts below say what each one is")]
pub struct Metrics {
    pub connections: Gauge,
    pub connections_cut: Family<ReasonLabels, Counter>,
    pub tls_handshakes_failed: Counter,
    pub sessions: Gauge,
    pub sessions_opened: Counter,
    pub pooled_sessions: Gauge,
    pub sessionless_requests: Gauge,
    pub parked_calls: Gauge,
    pub subscriptions: Gauge,
    pub sessions_evicted: Family<ReasonLabels, Counter>,
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
    pub unreadable_messages: Counter,
    pub hidden_statuses: Counter,
    pub messages_dropped: Counter,
    pub failed_lookups: Counter,
    pub audit_lines_lost: Counter,
    pub children: Gauge,
    pub child_stdin_bytes: Gauge,
    pub child_junk_lines: Counter,
    pub unattributed_notifications: Counter,
    pub disk_writes: Counter,
    pub disk_batch_seconds: Histogram,
    pub disk_failures: Counter,
    pub disk_damages: Counter,
    pub disk_unavailable: Gauge,
    pub disk_backlog: Gauge,
    pub disk_file_bytes: Gauge,
    pub disk_log_bytes: Gauge,
    registry: Registry,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("taskgate");
        let lost = "Lines that the log has lost: too many of a kind came, too many waited for stderr, or it took none";
        registry.register("log_lines_lost", lost, Family::clone(&LOG_LINES_LOST));
        let task_seconds = Histogram::new(buckets(0.1, 10));
        let help = "Time from a task's creation to its end";
        registry.register_with_unit("task_duration", help, Unit::Seconds, task_seconds.clone());
        let disk_batch_seconds = Histogram::new(buckets(0.000_25, 9));
        let help = "Time of a batch of writes to the file of the store, with its one sync";
        registry.register_with_unit("disk_batch_duration", help, Unit::Seconds, disk_batch_seconds.clone());
        let all = &mut registry;
        Self {
            connections: metric(all, "connections", "Open connections of clients"),
            connections_cut: by_reason(
                all,
                "connections_cut",
                "Connections that were closed because no whole request came, or to make room",
            ),
            tls_handshakes_failed: metric(all, "tls_handshakes_failed", "TLS handshakes of clients that failed"),
            sessions: metric(all, "sessions", "Open sessions"),
            pooled_sessions: metric(all, "pooled_sessions", "Open sessions with servers for callers without sessions"),
            sessionless_requests: metric(
                all,
                "sessionless_requests",
                "Requests of clients without sessions that servers work on",
            ),
            parked_calls: metric(all, "parked_calls", "Calls that have asked and wait for a retry"),
            subscriptions: metric(all, "subscriptions", "Open subscriptions of clients without sessions"),
            sessions_opened: metric(all, "sessions_opened", "Sessions that were opened"),
            sessions_evicted: by_reason(
                all,
                "sessions_evicted",
                "Unused sessions that ended to make room for new ones",
            ),
            tasks_live: metric(all, "tasks_live", "Tasks that run or wait for their turn"),
            tasks_queued: metric(all, "tasks_queued", "Tasks that wait for their turn"),
            tasks_created: metric(all, "tasks_created", "Tasks that were acknowledged"),
            tasks_refused: by_reason(all, "tasks_refused", "Calls as tasks that were refused"),
            tasks_ended: by_end(all, "tasks_ended", "Tasks that ended, by how"),
            task_seconds,
            tasks_kept: metric(all, "tasks_kept", "Tasks in the store, ended ones included"),
            result_bytes: metric(all, "result_bytes", "Bytes of kept results"),
            requests_refused: by_reason(all, "requests_refused", "HTTP requests that were refused"),
            exchange_failures: metric(
                all,
                "exchange_failures",
                "Messages, and answers to questions of tasks, that an upstream did not answer or take",
            ),
            issuer_failures: metric(all, "issuer_failures", "Requests to the issuer of tokens without a usable answer"),
            questions: metric(all, "questions", "Requests of upstreams to clients during tasks"),
            questions_refused: by_reason(all, "questions_refused", "Requests of upstreams that clients were not asked"),
            question_bytes: metric(all, "question_bytes", "Bytes that open questions of tasks take"),
            unknown_answers: metric(all, "unknown_answers", "Answers to no open question, and refused requestStates"),
            unknown_responses: metric(all, "unknown_responses", "Late or unknown responses of an upstream, dropped"),
            unknown_progress: metric(
                all,
                "unknown_progress",
                "Progress of an upstream under an unknown token, dropped",
            ),
            unreadable_messages: metric(
                all,
                "unreadable_messages",
                "Notifications of an upstream that taskgate has to read and cannot, dropped",
            ),
            hidden_statuses: metric(
                all,
                "hidden_statuses",
                "Status notifications of an upstream's own, hidden tasks, dropped",
            ),
            messages_dropped: metric(all, "messages_dropped", "Messages dropped because their reader was too slow"),
            failed_lookups: metric(all, "failed_lookups", "Look-ups of tasks that were not found"),
            audit_lines_lost: metric(
                all,
                "audit_lines_lost",
                "Lines that the audit log has lost because the disk took none",
            ),
            children: metric(all, "children", "Running child processes of stdio upstreams"),
            child_stdin_bytes: metric(all, "child_stdin_bytes", "Bytes that wait for child processes to read them"),
            child_junk_lines: metric(
                all,
                "child_junk_lines",
                "Lines on the stdout of child processes that were not messages, dropped",
            ),
            unattributed_notifications: metric(
                all,
                "unattributed_notifications",
                "Notifications of shared child processes that may be any session's, dropped",
            ),
            disk_writes: metric(all, "disk_writes", "Writes to the file of the store, several to a batch"),
            disk_batch_seconds,
            disk_failures: metric(all, "disk_failures", "Batches that the file of the store did not take"),
            disk_damages: metric(all, "disk_damages", "Reads and writes that met damage in the file of the store"),
            disk_unavailable: metric(all, "disk_unavailable", "1 while the file of the store takes nothing"),
            disk_backlog: metric(all, "disk_backlog", "Writes that wait for the file of the store"),
            disk_file_bytes: metric(all, "disk_file_bytes", "Bytes of the file of the store"),
            disk_log_bytes: metric(all, "disk_log_bytes", "Bytes of the log beside the file of the store"),
            registry,
        }
    }
}

/// Returns the upper bounds of so many buckets, each four times the one before, in seconds. Those of the library are
/// powers, which need libm.
fn buckets(first: f64, count: usize) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), |bound| Some(bound * 4.0)).take(count)
}

fn metric<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn by_reason(registry: &mut Registry, name: &str, help: &str) -> Family<ReasonLabels, Counter> {
    from_zero(metric(registry, name, help), name, |reason| ReasonLabels { reason })
}

fn by_end(registry: &mut Registry, name: &str, help: &str) -> Family<EndLabels, Counter> {
    from_zero(metric(registry, name, help), name, |status| EndLabels { status })
}

/// Makes a counter for each value that the label of a metric has.
fn from_zero<L: Clone + Eq + Hash>(
    family: Family<L, Counter>,
    name: &str,
    label: fn(&'static str) -> L,
) -> Family<L, Counter> {
    for value in label_values(name) {
        drop(family.get_or_create(&label(value)));
    }
    family
}

impl Metrics {
    /// Returns the `OpenMetrics` text.
    pub(super) fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
