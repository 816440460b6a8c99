//! What clients get that do not declare the tasks extension: other lists and instructions, and heartbeats.

use super::ClientRequest;
use crate::{
    config::RequiredTools,
    dialect::tools::{Heartbeat, ListedFor, with_instructions, with_job_tools},
    upstream::{Call, Lease, ListRequest, Pooled},
    wire::{Method, Parts, object::Members},
};

/// Returns the count of changes to the server's tools at the time when a list of them is asked for.
pub(super) fn asked_at(request: &ClientRequest, lease: &Lease) -> u64 {
    if request.method == Method::ToolsList { lease.guard.get().tools().changes() } else { 0 }
}

/// Returns a document as its client gets it. A page of tools is edited where clients without tasks are helped;
/// `asked_at` is what [`asked_at`] returned before the page was asked for. Anything else stays as it is.
pub(super) fn with_tools(document: Parts, request: &ClientRequest, lease: &Lease, asked_at: u64) -> Parts {
    let policy = &request.caller.upstream.policy;
    if request.method != Method::ToolsList || !policy.helps_hosts() {
        return document;
    }
    let params = request.message.params().and_then(|params| Members::parse(params).ok());
    let first = params.is_none_or(|params| params.get("cursor").is_none());
    let generation = lease.pooled.generation;
    let listed_for = match (request.gets_jobs(generation), request.hosts_get_jobs(generation)) {
        (true, _) => ListedFor::Host(RequiredTools::Refused),
        (false, true) => ListedFor::Able,
        (false, false) => ListedFor::Any,
    };
    with_job_tools(document, ListRequest { first, asked_at }, policy, lease.guard.get(), listed_for)
}

/// Returns the raw instructions of a server, with what a client without tasks has to know of jobs.
pub(super) fn instructions(request: &ClientRequest, pooled: &Pooled) -> Option<String> {
    let Pooled { facts, generation, .. } = pooled;
    let has_tools = Members::parse(&facts.capabilities).is_ok_and(|capabilities| capabilities.get("tools").is_some());
    let theirs = facts.instructions.as_deref();
    if request.gets_jobs(*generation) && has_tools {
        Some(with_instructions(theirs))
    } else {
        theirs.map(str::to_owned)
    }
}

/// Returns the heartbeat of a call whose client gave a progress token.
pub(super) fn heartbeat_of(request: &ClientRequest, call: &Call) -> Option<Heartbeat> {
    let policy = &request.caller.upstream.policy;
    if request.method != Method::ToolsCall || !policy.has_heartbeats() {
        return None;
    }
    let every = policy.tool(request.subject.as_deref()?).heartbeat?;
    Some(Heartbeat::new(every, call.progress_token.as_deref()?))
}
