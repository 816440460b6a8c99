//! `tools/list` for hosts without tasks: the tools for jobs stand at its end, and a tool that may be answered with a
//! job has no `outputSchema`, which the words about the job would not fit.

use bytes::Bytes;
use serde_json::json;

use super::arguments::{MAX_IDS, MAX_WAIT, WAIT};
use crate::{
    config::{Policy, RequiredTools},
    upstream::{JobTool, JobToolNames, ListPage, ListRequest, UpstreamSession},
    wire::{
        Edits, Message, Parts,
        message::Outcome,
        object::{Members, quote},
        tools::{listed, next_cursor},
    },
};

/// What a host is told of jobs once, in the server's instructions.
const INSTRUCTIONS: &str = "A tool that takes long may be answered with the id of a job in place of its result. The call then \
    goes on: do what that answer says to get the result, and do not make the call again.";

/// Whom a page of tools is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedFor {
    /// A host without tasks, which gets jobs.
    Host(RequiredTools),
    /// A client that declares tasks, where hosts get another list.
    Able,
    /// A client like all others.
    Any,
}

/// Takes in the page of tools that `request` has asked for, and returns it as its client gets it. Anything else stays
/// as it is.
#[must_use]
pub fn with_job_tools(
    page: Parts,
    request: ListRequest,
    policy: &Policy,
    session: &UpstreamSession,
    listed_for: ListedFor,
) -> Parts {
    let bytes = page.into_bytes();
    let Ok(message) = Message::parse(bytes.clone()) else { return bytes.into() };
    let Some((Outcome::Result, result)) = message.outcome() else { return bytes.into() };
    let Ok(tools) = listed(result) else { return bytes.into() };
    let last = next_cursor(result).is_none();
    session.tools().learn(&tools, ListPage { request, last });
    if listed_for == ListedFor::Any {
        return bytes.into();
    }
    let mut edits = Edits::of(message.bytes());
    let members = Members::parse(result).ok();
    if let Some(members) = members.as_ref().filter(|members| members.get("cacheScope").is_some()) {
        // A cache that clients share would give a host the list of a client that declares tasks, or the other way
        // round.
        edits.set(members, "cacheScope", r#""private""#);
    }
    // Without names for the tools for jobs no call becomes one.
    let (ListedFor::Host(required), Some(names)) = (listed_for, session.tools().job_tools_beside(&tools)) else {
        return edits.apply();
    };
    for tool in &tools {
        if policy.tool(&tool.name).may_become_job(required) {
            edits.remove(&tool.members, "outputSchema");
        }
    }
    let array = members.as_ref().and_then(|members| members.get("tools"));
    if let (true, Some(array)) = (last, array) {
        let comma = if array[1..].trim_ascii_start().starts_with(']') { "" } else { "," };
        edits.replace_raw(&array[array.len() - 1..], format!("{comma}{}]", job_tools(names)));
    }
    edits.apply()
}

/// Returns the raw descriptions of the tools for jobs, between commas.
fn job_tools(names: JobToolNames) -> String {
    let [wait, cancel, list] = JobTool::ALL.map(|tool| names.of(tool));
    let id = json!({ "type": "string", "description": "The id of the job." });
    let tools = [
        json!({
            "name": wait,
            "title": "Wait for jobs",
            "description": "Waits for calls that go on as jobs, and returns the result of a job when it has ended. If the \
                time is over first, it says how far the job is; that is normal, so call it again with the same ids. \
                Results can be read again until they expire.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "job_ids": {
                        "type": "array",
                        "items": { "type": "string" },
                        "minItems": 1,
                        "maxItems": MAX_IDS,
                        "description": "The ids of the jobs. With several, it waits until all have ended.",
                    },
                    "seconds": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": MAX_WAIT,
                        "default": WAIT,
                        "description": "How long to wait at most.",
                    },
                },
                "required": ["job_ids"],
            },
            "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
        }),
        json!({
            "name": cancel,
            "title": "Cancel a job",
            "description": "Cancels a call that goes on as a job. It then has no result, and what it has done by then may stay \
                done.",
            "inputSchema": { "type": "object", "properties": { "job_id": id }, "required": ["job_id"] },
            "annotations": {
                "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false,
            },
        }),
        json!({
            "name": list,
            "title": "List jobs",
            "description": "Lists the calls that go on as jobs, and those whose results can still be read.",
            "inputSchema": { "type": "object", "properties": {} },
            "annotations": { "readOnlyHint": true, "idempotentHint": true, "openWorldHint": false },
        }),
    ];
    tools.map(|tool| tool.to_string()).join(",")
}

/// Returns the raw `instructions` of a server with what a host has to know of jobs.
#[must_use]
pub fn with_instructions(instructions: Option<&str>) -> String {
    let theirs = instructions.and_then(crate::wire::object::unquote);
    quote(&theirs.map_or_else(|| INSTRUCTIONS.to_owned(), |theirs| format!("{theirs}\n\n{INSTRUCTIONS}")))
}

/// Returns the answer to `initialize` with them. The answer of a server without tools stays as it is.
#[must_use]
pub fn instructed(answer: Parts) -> Parts {
    let bytes: Bytes = answer.into_bytes();
    let Ok(message) = Message::parse(bytes.clone()) else { return bytes.into() };
    let result = message.outcome().and_then(|(_, result)| Members::parse(result).ok());
    let Some(result) = result.filter(has_tools) else { return bytes.into() };
    let mut edits = Edits::of(message.bytes());
    edits.set(&result, "instructions", &with_instructions(result.get("instructions")));
    edits.apply()
}

fn has_tools(result: &Members<'_>) -> bool {
    result.object("capabilities").is_some_and(|capabilities| capabilities.get("tools").is_some())
}
