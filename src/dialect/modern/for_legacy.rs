//! A modern request as a legacy server understands it.

use std::ops::Range;

use crate::wire::{
    Edits, Message,
    object::{MemberSpan, Members, object},
};

/// The members of `params` that a legacy server has no use for: the answers of a retry, and a wish for a task, of which
/// such a server would make a task of its own.
const UNSENT: [&str; 3] = ["inputResponses", "requestState", "task"];

/// What is changed of a request for a legacy server, all of it in its `params`.
#[derive(Debug, Default)]
pub(super) enum ForLegacy {
    /// Nothing.
    #[default]
    Same,
    /// Their `_meta` goes. They have none of the [`UNSENT`] members.
    WithoutMeta(MemberSpan),
    /// A text comes in the place of another.
    Changed(Range<usize>, String),
}

impl ForLegacy {
    /// Returns what turns a request into a legacy one: `params` are its members, and `meta` is the raw `_meta` that such
    /// a server gets, if it gets one.
    pub(super) fn of(request: &Message, params: &Members<'_>, meta: Option<&str>) -> Self {
        let source = request.bytes();
        if params.iter().any(|(key, _)| UNSENT.contains(&key)) {
            let kept = params.iter().filter(|(key, _)| !UNSENT.contains(key)).filter_map(|(key, value)| match key {
                "_meta" => meta.map(|meta| (key, meta)),
                _ => Some((key, value)),
            });
            return Self::Changed(params.span(source), object(kept));
        }
        match (params.span_of("_meta", source), meta) {
            (Some(theirs), Some(meta)) => Self::Changed(theirs.value, meta.to_owned()),
            (Some(theirs), None) => Self::WithoutMeta(theirs),
            (None, _) => Self::Same,
        }
    }

    /// Returns the request with what is changed of it.
    pub(super) fn apply(&self, request: &Message) -> Message {
        let mut edits = Edits::of(request.bytes());
        match self {
            Self::Same => return request.clone(),
            Self::WithoutMeta(meta) => edits.replace(meta.cut.clone(), ""),
            Self::Changed(span, new) => edits.replace(span.clone(), &**new),
        }
        request.with_edited_params(edits)
    }

    /// Returns how many bytes of text it keeps.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Same | Self::WithoutMeta(_) => 0,
            Self::Changed(_, new) => new.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Returns the members of a raw object in their order, each with what it means.
    fn members_of(raw: &str) -> Vec<(String, Value)> {
        let members = Members::parse(raw).expect("an object");
        let read = |(key, raw): (&str, &str)| (key.to_owned(), serde_json::from_str(raw).expect("JSON"));
        members.iter().map(read).collect()
    }

    proptest! {
        #[test]
        fn a_legacy_server_gets_all_members_but_those_of_this_revision_in_their_order(
            others in prop::sample::subsequence(
                vec!["name", "arguments", r"\u0061", "task", r"request\u0053tate", "inputResponses"],
                0..=6,
            ).prop_shuffle(),
            at in any::<prop::sample::Index>(),
            (key, meta) in (prop::sample::select(vec!["_meta", r"\u005fmeta"]), prop::option::of(Just(r#"{"a":1}"#))),
            gap in "[ \n]{0,2}",
        ) {
            let value = r#"{"_meta":{},"task":"},"}"#;
            let mut members: Vec<_> = others.iter().map(|key| format!("{gap}\"{key}\"{gap}:{gap}{value}{gap}")).collect();
            members.insert(at.index(members.len() + 1), format!(r#"{gap}"{key}"{gap}:{{"a":1,"b":2}}{gap}"#));
            let params = format!("{{{}}}", members.join(","));
            let text = format!(r#"{{"params":{gap}{params}{gap},"id":1,"method":"tools/call","jsonrpc":"2.0"}}"#);
            let request = Message::parse(text.into()).expect("a request");
            let read = Members::parse(request.params().expect("params")).expect("an object");
            let legacy = ForLegacy::of(&request, &read, meta);
            prop_assert_eq!(legacy.bytes() == 0, matches!(legacy, ForLegacy::WithoutMeta(_)));
            let mut expected = members_of(request.params().expect("params"));
            expected.retain(|(key, _)| !UNSENT.contains(&&**key) && (key != "_meta" || meta.is_some()));
            for (_, value) in expected.iter_mut().filter(|(key, _)| key == "_meta") {
                *value = serde_json::from_str(meta.expect("kept")).expect("JSON");
            }
            let applied = legacy.apply(&request);
            prop_assert_eq!(members_of(applied.params().expect("params")), expected);
            let again = Message::parse(applied.bytes().clone()).expect("a request");
            prop_assert_eq!((again.id(), again.params()), (applied.id(), applied.params()));
        }
    }
}
