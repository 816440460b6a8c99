//! What a JSON value means, as a digest: white space, the order of members and the escapes of texts mean nothing, and each
//! digit of a number may mean something.

use aws_lc_rs::digest::{Context, SHA256};

/// Adds what a value means to a digest, in one walk. The value was parsed before, so it is JSON and does not nest too deep.
pub(super) fn add(context: &mut Context, raw: &str) {
    Walk { raw, at: 0 }.value(context);
}

/// Adds bytes, so that it is known where they end.
pub(super) fn part(context: &mut Context, bytes: &[u8]) {
    context.update(&(bytes.len() as u64).to_be_bytes());
    context.update(bytes);
}

struct Walk<'a> {
    raw: &'a str,
    at: usize,
}

impl Walk<'_> {
    fn value(&mut self, context: &mut Context) {
        match self.next() {
            Some(b'{') => self.members(context),
            Some(b'[') => {
                context.update(b"[");
                self.at += 1;
                while !self.closes() {
                    self.value(context);
                }
                context.update(b"]");
            }
            Some(b'"') => self.text(context),
            Some(_) => {
                let rest = &self.raw[self.at..];
                let end = rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                context.update(b"#");
                part(context, &rest.as_bytes()[..end]);
                self.at += end;
            }
            None => {}
        }
    }

    /// Members are sorted by what they mean. One that is there twice counts twice.
    fn members(&mut self, context: &mut Context) {
        let mut members = Vec::new();
        self.at += 1;
        while !self.closes() {
            let mut member = Context::new(&SHA256);
            self.text(&mut member);
            self.at += usize::from(self.next() == Some(b':'));
            self.value(&mut member);
            members.push(member.finish());
        }
        members.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
        context.update(b"{");
        for member in members {
            context.update(b",");
            context.update(member.as_ref());
        }
        context.update(b"}");
    }

    fn text(&mut self, context: &mut Context) {
        self.next();
        let rest = &self.raw[self.at..];
        let mut is_escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let (text, after) = rest.split_at(end.map_or(rest.len(), |end| end + 2));
        // A surrogate alone is JSON and no text.
        let (kind, meant) = match serde_json::from_str::<String>(text) {
            Ok(meant) => (b"\"", meant),
            Err(_) => (b"?", text.to_owned()),
        };
        context.update(kind);
        part(context, meant.as_bytes());
        self.at = self.raw.len() - after.len();
    }

    /// Goes over white space and commas, and returns the byte that follows.
    fn next(&mut self) -> Option<u8> {
        let rest = &self.raw[self.at..];
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', ',']).len();
        self.raw.as_bytes().get(self.at).copied()
    }

    /// Returns whether an array or object ends here, and goes over its bracket. What is cut off ends too.
    fn closes(&mut self) -> bool {
        let closes = matches!(self.next(), Some(b']' | b'}') | None);
        self.at += usize::from(closes && self.at < self.raw.len());
        closes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn digest(raw: &str) -> Vec<u8> {
        let mut context = Context::new(&SHA256);
        add(&mut context, raw);
        context.finish().as_ref().to_vec()
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-c\"\\\\\\n\u{e9},\\[\\]{}: ]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c\"]{0,2}", inner, 0..4).prop_map(|members| json!(members)),
            ]
        })
    }

    /// Writes a value with members in the other order, white space and escapes.
    fn otherwise(value: &Value) -> String {
        match value {
            Value::Array(items) => format!("[ {} ]", items.iter().map(otherwise).collect::<Vec<_>>().join(" ,\n")),
            Value::Object(members) => {
                let member = |(key, value): (&String, &Value)| format!("{}\t: {}", escaped(key), otherwise(value));
                format!("{{ {} }}", members.iter().rev().map(member).collect::<Vec<_>>().join(" , "))
            }
            Value::String(text) => escaped(text),
            other => other.to_string(),
        }
    }

    fn escaped(text: &str) -> String {
        let units: Vec<_> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        format!("\"{}\"", units.concat())
    }

    proptest! {
        #[test]
        fn values_have_the_same_digest_exactly_if_they_mean_the_same(one in value(), other in value()) {
            prop_assert_eq!(digest(&one.to_string()), digest(&otherwise(&one)));
            prop_assert_eq!(digest(&one.to_string()) == digest(&other.to_string()), one == other);
        }

        #[test]
        fn what_is_cut_off_ends_too(value in value(), cut in 0usize..64) {
            let raw = value.to_string();
            let end = raw.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(raw.len());
            digest(&raw[..end]);
        }
    }

    #[test]
    fn each_digit_each_doubled_member_and_each_bracket_counts() {
        for (one, other) in [
            ("123456789012345678901234567890", "123456789012345678901234567891"),
            ("18446744073709551616", "18446744073709551617"),
            ("0.1", "0.10000000000000001"),
            (r#"{"a":1,"a":2}"#, r#"{"a":9,"a":2}"#),
            (r#"{"a":1,"a":1}"#, r#"{"a":1}"#),
            ("[1,[2]]", "[[1],2]"),
            ("[]", "{}"),
            ("[[],[]]", "[[[]]]"),
            ("\"1\"", "1"),
            ("\"null\"", "null"),
            (r#""\ud800""#, r#""\\ud800""#),
        ] {
            assert_ne!(digest(one), digest(other), "{one} {other}");
        }
    }
}
