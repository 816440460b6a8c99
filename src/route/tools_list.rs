//! Sets `execution.taskSupport` in the answer to `tools/list` from the policy (section "Tool-Level Negotiation").

use crate::{
    config::{Policy, Support},
    wire::{Edits, object::quote, tools::Listed},
};

/// Sets the task support of each of these tools. If the server has tasks of its own (`native`), a tool that it lists with
/// them stays as it is, unless the policy forbids or requires tasks.
pub fn set_task_support(edits: &mut Edits<'_>, tools: &[Listed<'_>], policy: &Policy, native: bool) {
    for tool in tools {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Message, message::Outcome, tools::listed};

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
        let Some((Outcome::Result, result)) = answer.outcome() else { panic!("no result") };
        let mut edits = Edits::of(answer.bytes());
        set_task_support(&mut edits, &listed(result).expect("tools"), &config.upstreams[0].policy, false);
        let edited = edits.apply().into_bytes();
        let expected = concat!(
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"execution":{"taskSupport":"optional"},"name":"a", "x": 1.50},"#,
            r#"{"execution":{"taskSupport":"optional","y":2},"name":"b"},{"noname":1},7],"nextCursor":"c"}}"#
        );
        assert_eq!(String::from_utf8_lossy(&edited), expected);
    }
}
