//! The limits as they are configured.

use crate::{
    config,
    flow::Capacity,
    limit::Totals,
    task::{Limits, MaxWaiters, store::MaxKept},
};

/// Returns the limits of the store and those of the engine.
pub(super) fn limits(server: &config::Server, tasks: &config::Tasks) -> (MaxKept, Limits) {
    let kept = MaxKept {
        tasks_per_owner: tasks.max_tasks_per_owner,
        tasks: tasks.max_tasks,
        bytes_per_owner: tasks.max_result_bytes_per_owner,
        bytes: tasks.max_result_bytes,
    };
    let waiters =
        MaxWaiters { task: tasks.max_waiters, owner: tasks.max_waiters_per_owner, all: tasks.max_waiters_total };
    let turns = Totals {
        running_per_owner: tasks.max_running_per_owner,
        running: tasks.max_running_total,
        queued_per_owner: tasks.max_queued_per_owner,
        queued: tasks.max_queued_total,
        queued_bytes_per_owner: tasks.max_queued_bytes_per_owner,
        queued_bytes: tasks.max_queued_bytes,
    };
    (kept, Limits { waiters, turns, capacity: Capacity::new(server.max_outbox, server.max_outbox_total) })
}
