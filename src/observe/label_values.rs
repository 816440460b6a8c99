//! The values that labels have, so that every counter is there, at 0, before its first event: an alert on its growth
//! would miss that one.

/// Why connections are closed.
const CONNECTIONS_CUT: &[&str] = &["head_timeout", "max_connections"];
/// The limits for which sessions end.
const SESSIONS_EVICTED: &[&str] = &["max_children", "max_sessions", "max_sessions_per_owner"];
/// Why calls as tasks are refused.
const TASKS_REFUSED: &[&str] = &[
    "stopping",
    "session",
    "store",
    "max_queued",
    "max_queued_per_owner",
    "max_queued_total",
    "max_queued_bytes_per_owner",
    "max_queued_bytes",
    "max_tasks",
    "max_tasks_per_owner",
    "max_result_bytes",
    "max_result_bytes_per_owner",
    "max_store_bytes",
];
/// How tasks end.
const TASKS_ENDED: &[&str] = &["completed", "failed", "cancelled", "expired", "orphaned"];
/// Why HTTP requests are refused: by limits, for what is wrong with the client, and for what is wrong with the request.
const REQUESTS_REFUSED: &[&str] = &[
    "stopping",
    "store",
    "max_connections",
    "max_body",
    "max_body_total",
    "unidentified_requests",
    "body_timeout",
    "depth",
    "max_sessions",
    "max_sessions_per_owner",
    "max_streams",
    "sessionless_requests",
    "subscriptions",
    "waiters",
    "task_methods",
    "creations",
    "failed_lookups",
    "busy",
    "headers",
    "host",
    "origin",
    "peer",
    "principal",
    "certificate",
    "no_token",
    "several_tokens",
    "token",
    "scope",
    "issuer",
    "path",
    "method",
    "accept",
    "content_type",
    "content_encoding",
    "transfer_encoding",
    "said_twice",
    "version",
    "modern",
    "no_session_id",
    "session",
    "last_event_id",
    "body",
    "malformed",
    "half_modern",
    "header_mismatch",
    "unsupported_version",
    "missing_capability",
    "unknown_method",
];
/// Why requests of servers are not asked.
const QUESTIONS_REFUSED: &[&str] = &[
    "questions_of_task",
    "question_bytes_of_task",
    "question_bytes_of_owner",
    "max_outbox_total",
    "questions_of_call",
    "parked_calls",
    "sessionless_requests",
    "ended",
    "unattributed",
];
/// Why lines are not in the log.
const LOG_LINES_LOST: &[&str] = &["rate", "full", "unwritable"];

/// The metrics with a label, and the values that it has.
const ALL: [(&str, &[&str]); 7] = [
    ("connections_cut", CONNECTIONS_CUT),
    ("sessions_evicted", SESSIONS_EVICTED),
    ("tasks_refused", TASKS_REFUSED),
    ("tasks_ended", TASKS_ENDED),
    ("requests_refused", REQUESTS_REFUSED),
    ("questions_refused", QUESTIONS_REFUSED),
    ("log_lines_lost", LOG_LINES_LOST),
];

/// Returns the values that the label of a metric has.
pub(super) fn label_values(metric: &str) -> &'static [&'static str] {
    ALL.iter().find(|(name, _)| *name == metric).map_or(&[], |(_, values)| values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_that_the_operator_reads_of() {
        let page = include_str!("../../docs/operations.md");
        for (name, values) in ALL {
            let heading = format!("| `taskgate_{name}_total` |");
            let row = page.lines().find_map(|line| line.strip_prefix(&heading)).expect(name);
            let quoted = row.split('`').skip(1).step_by(2);
            let mut documented: Vec<_> = quoted.filter(|word| !matches!(*word, "reason" | "status")).collect();
            let mut known = values.to_vec();
            documented.sort_unstable();
            known.sort_unstable();
            assert_eq!(documented, known, "{name}");
        }
    }
}
