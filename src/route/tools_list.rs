//! The answer to `tools/list` with `execution.taskSupport` set from the policy (section "Tool-Level Negotiation").

use serde_json::value::RawValue;

use crate::{
    config::Policy,
    wire::{
        Edits, Message,
        message::Outcome,
        object::{Members, quote},
    },
};

/// The edits that set every tool's task support; none for an answer that is no list of tools.
#[must_use]
pub fn with_task_support<'a>(answer: &'a Message, policy: &Policy) -> Edits<'a> {
    let mut edits = Edits::of(answer.bytes());
    let Some((Outcome::Result, result)) = answer.outcome() else { return edits };
    let tools = Members::parse(result).ok().and_then(|result| result.get("tools"));
    let tools: Vec<&RawValue> = tools.and_then(|tools| serde_json::from_str(tools).ok()).unwrap_or_default();
    for tool in tools {
        let Ok(tool) = Members::parse(tool.get()) else { continue };
        let Some(name) = tool.text("name") else { continue };
        let support = quote(policy.tool(&name).support.as_str());
        match tool.object("execution") {
            Some(execution) => edits.set(&execution, "taskSupport", &support),
            None => edits.set(&tool, "execution", &format!(r#"{{"taskSupport":{support}}}"#)),
        }
    }
    edits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn task_support_is_overwritten_or_added_and_nothing_else_changes() {
        let text = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a", "x": 1.50},"#,
            r#"{"execution":{"taskSupport":"forbidden","y":2},"name":"b"},{"noname":1},7],"nextCursor":"c"}}"#
        );
        let config = crate::config::Config::for_upstream(crate::config::Target::Command {
            program: "x".into(),
            args: Vec::new(),
        });
        let answer = Message::parse(text.into()).expect("valid");
        let edited = with_task_support(&answer, &config.upstreams[0].policy).apply().into_bytes();
        let expected = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"execution":{"taskSupport":"optional"},"name":"a", "x": 1.50},"#,
            r#"{"execution":{"taskSupport":"optional","y":2},"name":"b"},{"noname":1},7],"nextCursor":"c"}}"#
        );
        assert_eq!(String::from_utf8_lossy(&edited), expected);
    }
}
