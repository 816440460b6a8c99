//! Sets `execution.taskSupport` in the answer to `tools/list` from the policy (section "Tool-Level Negotiation").

use crate::{
    config::{Policy, Support},
    wire::{Edits, Message, message::Outcome, object::quote, tools::listed},
};

/// Returns the edits that set every tool's task support; none for an answer that is no list of tools. If the server has
/// tasks of its own (`native`), a tool that it lists with them stays as it is, unless the policy forbids or requires
/// tasks.
#[must_use]
pub fn with_task_support<'a>(answer: &'a Message, policy: &Policy, native: bool) -> Edits<'a> {
    let mut edits = Edits::of(answer.bytes());
    let Some((Outcome::Result, result)) = answer.outcome() else { return edits };
    for tool in listed(result).unwrap_or_default() {
        let support = policy.tool(&tool.name).support;
        if native && tool.native && support == Support::Optional {
            continue;
        }
        let support = quote(support.as_str());
        match tool.members.object("execution") {
            Some(execution) => edits.set(&execution, "taskSupport", &support),
            None => edits.set(&tool.members, "execution", &format!(r#"{{"taskSupport":{support}}}"#)),
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
        let edited = with_task_support(&answer, &config.upstreams[0].policy, false).apply().into_bytes();
        let expected = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"execution":{"taskSupport":"optional"},"name":"a", "x": 1.50},"#,
            r#"{"execution":{"taskSupport":"optional","y":2},"name":"b"},{"noname":1},7],"nextCursor":"c"}}"#
        );
        assert_eq!(String::from_utf8_lossy(&edited), expected);
    }
}
