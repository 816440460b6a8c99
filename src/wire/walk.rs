//! The members of an object in text that has been read as JSON before, so that only brackets and quotes are looked at.

use std::borrow::Cow;

use super::{
    depth::{Stepped, step_over_string},
    last_metas,
};

/// Returns the members of a raw object, each key as `read` reads it with its raw value, in their order; `None` if it is
/// no object, or has a key that cannot be read.
pub(super) fn members<'a>(
    raw: &'a str,
    read: impl Fn(&'a str) -> Option<Cow<'a, str>>,
) -> Option<Vec<(Cow<'a, str>, &'a str)>> {
    let mut walk = Walk { text: raw, at: 0 };
    let mut members = Vec::with_capacity(4);
    walk.step_over(b'{')?;
    if walk.peek()? != b'}' {
        loop {
            let key = walk.key(&read)?;
            walk.step_over(b':')?;
            let value = walk.value_of(&key)?;
            members.push((key, value));
            if walk.peek()? == b'}' {
                break;
            }
            walk.step_over(b',')?;
        }
    }
    walk.step_over(b'}')?;
    walk.peek().is_none().then_some(members)
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Walk<'a> {
    /// Goes to the next byte that is no white space, and returns it.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.as_bytes().get(self.at..)?;
        let gap = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        self.at += gap;
        Some(rest[gap])
    }

    fn step_over(&mut self, expected: u8) -> Option<()> {
        (self.peek()? == expected).then(|| self.at += 1)
    }

    /// Steps over a key, and reads it.
    fn key(&mut self, read: impl Fn(&'a str) -> Option<Cow<'a, str>>) -> Option<Cow<'a, str>> {
        self.step_over(b'"')?;
        let start = self.at;
        let Stepped { after, is_escaped } = step_over_string(self.text.as_bytes().get(start..)?)?;
        self.at = self.text.len() - after.len();
        if is_escaped {
            return read(self.text.get(start - 1..self.at)?);
        }
        // Without escapes it is what stands between the quotes.
        self.text.get(start..self.at - 1).map(Cow::from)
    }

    /// Steps over the value of a member, and returns it raw: at once over a `_meta` that one of the last requests had too.
    fn value_of(&mut self, key: &str) -> Option<&'a str> {
        if key == "_meta" && self.peek()? == b'{' {
            let rest = self.text.get(self.at..)?;
            if let Some(length) = last_metas::length(rest.as_bytes()) {
                self.at += length;
                return rest.get(..length);
            }
        }
        self.value()
    }

    /// Steps over a value, and returns it raw.
    fn value(&mut self) -> Option<&'a str> {
        let first = self.peek()?;
        let start = self.at;
        let rest = &self.text.as_bytes()[start..];
        let after = match first {
            b'"' => step_over_string(&rest[1..])?.after,
            b'{' | b'[' => after_brackets(rest)?,
            // A number or a literal has no end of its own.
            _ => &rest[rest.iter().position(|byte| ends_scalar(*byte)).unwrap_or(rest.len())..],
        };
        self.at = self.text.len() - after.len();
        self.text.get(start..self.at)
    }
}

/// Returns what follows an object or an array.
fn after_brackets(mut rest: &[u8]) -> Option<&[u8]> {
    let mut depth = 0_usize;
    loop {
        let (&byte, tail) = rest.split_first()?;
        rest = tail;
        match byte {
            b'"' => rest = step_over_string(tail)?.after,
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => return Some(tail),
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
}

fn ends_scalar(byte: u8) -> bool {
    byte.is_ascii_whitespace() || matches!(byte, b',' | b'}' | b']')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, value::RawValue};

    use super::*;
    use crate::wire::object::unquote;

    /// Any value, as text with white space in it.
    fn json() -> impl Strategy<Value = String> {
        let scalar = prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            Just("-1.5e+7".to_owned()),
            Just("null".to_owned()),
            Just("true".to_owned()),
            any::<String>().prop_map(|text| Value::from(text).to_string()),
            Just(r#""\"}\\,\u00e9""#.to_owned()),
        ];
        let key = prop_oneof![any::<String>(), "[a-c]", Just("}\\\"".to_owned())];
        scalar.prop_recursive(4, 40, 5, move |inner| {
            let member = (key.clone(), inner.clone(), "[ \n\t\r]{0,2}")
                .prop_map(|(key, value, gap)| format!("{gap}{}{gap}:{gap}{value}{gap}", Value::from(key)));
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(|items| format!("[ {}]", items.join(" ,"))),
                prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_walk_finds_the_members_that_a_parser_finds(raw in json()) {
            let found = members(&raw, unquote);
            match serde_json::from_str::<Value>(&raw).expect("JSON") {
                Value::Object(parsed) => {
                    let found = found.expect("an object");
                    let mut meant = Map::new();
                    for (key, value) in &found {
                        prop_assert_eq!(serde_json::from_str::<&RawValue>(value).expect("a value").get(), *value);
                        meant.insert(key.to_string(), serde_json::from_str(value).expect("a value"));
                    }
                    prop_assert_eq!(meant, parsed);
                }
                _ => prop_assert!(found.is_none()),
            }
        }

        #[test]
        fn a_walk_steps_over_a_meta_of_the_last_requests_as_over_any(raw in json(), meta in json()) {
            let meta = format!("{{\"a\":{meta}}}");
            let raw = format!("{{\"a\":{raw}, \"_meta\" :\t{meta} ,\"b\":{raw}}}");
            let found = members(&raw, unquote);
            last_metas::remember(&meta);
            prop_assert_eq!(members(&raw, unquote), found);
        }

        #[test]
        fn a_walk_over_anything_ends(raw in "[{}\\[\\]\":,\\\\ a1é]{0,40}") {
            let _ = members(&raw, unquote);
        }

        #[test]
        fn an_object_that_is_cut_off_or_goes_on_is_none(raw in json(), end in any::<prop::sample::Index>()) {
            if raw.starts_with('{') {
                let end = end.index(raw.len());
                prop_assert!(!raw.is_char_boundary(end) || members(&raw[..end], unquote).is_none());
                let longer = format!("{raw}1");
                prop_assert!(members(&longer, unquote).is_none());
            }
        }
    }
}
