//! The answer to `tools/list` with `execution.taskSupport` set from the policy (section "Tool-Level Negotiation").

use std::borrow::Cow;

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

/// A page of a server's tools.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// The names of the tools.
    pub names: Vec<Cow<'a, str>>,
    /// Whether no page comes after it.
    pub is_last: bool,
}

/// Returns the tools in an answer to `tools/list`; `None` for an answer that is no list of tools.
#[must_use]
pub fn tool_names(answer: &Message) -> Option<Listed<'_>> {
    let Some((Outcome::Result, result)) = answer.outcome() else { return None };
    let result = Members::parse(result).ok()?;
    let tools: Vec<&RawValue> = serde_json::from_str(result.get("tools")?).ok()?;
    let names = tools.into_iter().filter_map(|tool| Members::parse(tool.get()).ok()?.text("name"));
    Some(Listed { names: names.collect(), is_last: result.get("nextCursor").is_none() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_names_and_is_the_last_one_without_a_cursor() {
        let listed = |result: &str| {
            let answer = Message::parse(format!(r#"{{"jsonrpc":"2.0","id":1,{result}}}"#).into()).expect("valid");
            tool_names(&answer).map(|listed| (listed.names.join(","), listed.is_last))
        };
        assert_eq!(listed(r#""result":{"tools":[{"name":"a"},{"name":"b\n"},7]}"#), Some(("a,b\n".to_owned(), true)));
        assert_eq!(listed(r#""result":{"tools":[],"nextCursor":"c"}"#), Some((String::new(), false)));
        assert_eq!(listed(r#""result":{"prompts":[]}"#), None);
        assert_eq!(listed(r#""error":{"code":1,"message":"no"}"#), None);
    }

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
