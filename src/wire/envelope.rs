//! The members of a JSON-RPC message, found where they stand.

use std::{borrow::Cow, ops::Range};

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{depth::MAX_DEPTH, last_metas};

/// The members of an envelope, raw but for the version.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    #[serde(borrow)]
    pub jsonrpc: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    pub id: Option<&'a str>,
    #[serde(default, borrow, deserialize_with = "present")]
    pub method: Option<&'a str>,
    #[serde(default, borrow, deserialize_with = "present")]
    pub params: Option<&'a str>,
    #[serde(default, borrow, deserialize_with = "present")]
    pub result: Option<&'a str>,
    #[serde(default, borrow, deserialize_with = "present")]
    pub error: Option<&'a str>,
}

/// Distinguishes a member that is `null` from one that is missing.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a str>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(|raw| Some(raw.get()))
}

impl<'a> Envelope<'a> {
    /// Reads an envelope.
    ///
    /// # Errors
    /// Where the text is not one JSON object, or has a member of an envelope twice.
    pub(super) fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        // serde_json takes longer, and cannot step over a `_meta` that has come before. It reads what is unusual, and says
        // what is malformed.
        Self::scan(text).map_or_else(|| serde_json::from_str(text), Ok)
    }

    /// Reads an envelope as most are: its keys have no escapes, its version is 2.0, and nothing nests deeper than
    /// [`MAX_DEPTH`], but for a `_meta` that has come before.
    fn scan(text: &'a str) -> Option<Self> {
        let mut envelope = Self::default();
        let mut scan = Scan { text: text.as_bytes(), at: 0 };
        scan.members(MAX_DEPTH, |key, value| {
            let value = text.get(value)?;
            let place = match text.get(key.start + 1..key.end - 1)? {
                "jsonrpc" if value == "\"2.0\"" => {
                    return envelope.jsonrpc.replace("2.0".into()).is_none().then_some(());
                }
                "jsonrpc" => return None,
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                // It may be one of these.
                escaped if escaped.contains('\\') => return None,
                _ => return Some(()),
            };
            place.replace(value).is_none().then_some(())
        })?;
        scan.next().is_none().then_some(envelope)
    }
}

/// How deep the values in an object of the message may nest: there stands the `_meta` of `params`.
const BESIDE_META: usize = MAX_DEPTH - 2;

/// Steps over text for as long as it is JSON. Each step is `None` where it is none, or nests too deep.
struct Scan<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    /// Goes to the next byte that is no white space, and returns it; `None` at the end.
    fn next(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b' ' | b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn step_over(&mut self, expected: u8) -> Option<()> {
        (self.next()? == expected).then(|| self.at += 1)
    }

    /// Steps over a value, which may nest `depth` deep.
    fn value(&mut self, depth: usize) -> Option<Range<usize>> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'"' => self.string()?,
            b'{' => self.members(depth, |_, _| Some(()))?,
            b'[' => self.items(depth)?,
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => self.number()?,
        }
        Some(start..self.at)
    }

    /// Steps over an object. `each` gets where its keys, with their quotes, and its values stand.
    fn members(&mut self, depth: usize, mut each: impl FnMut(Range<usize>, Range<usize>) -> Option<()>) -> Option<()> {
        self.step_over(b'{')?;
        let depth = depth.checked_sub(1)?;
        if self.next()? != b'}' {
            loop {
                self.next()?;
                let start = self.at;
                self.string()?;
                let key = start..self.at;
                self.step_over(b':')?;
                let value = self.value_of(&key, depth)?;
                each(key, value)?;
                if self.next()? == b'}' {
                    break;
                }
                self.step_over(b',')?;
            }
        }
        self.step_over(b'}')
    }

    /// Steps over the value of a member: at once over a `_meta` that one of the last requests had too.
    fn value_of(&mut self, key: &Range<usize>, depth: usize) -> Option<Range<usize>> {
        if depth == BESIDE_META
            && self.next()? == b'{'
            && self.text[key.clone()] == *b"\"_meta\""
            && let Some(length) = last_metas::length(&self.text[self.at..])
        {
            let start = self.at;
            self.at += length;
            return Some(start..self.at);
        }
        self.value(depth)
    }

    fn items(&mut self, depth: usize) -> Option<()> {
        self.step_over(b'[')?;
        let depth = depth.checked_sub(1)?;
        if self.next()? != b']' {
            loop {
                self.value(depth)?;
                if self.next()? == b']' {
                    break;
                }
                self.step_over(b',')?;
            }
        }
        self.step_over(b']')
    }

    /// Steps over a string.
    fn string(&mut self) -> Option<()> {
        self.step_over(b'"')?;
        loop {
            let rest = self.text.get(self.at..)?;
            self.at += plain(rest);
            match *self.text.get(self.at)? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.escape()?,
                // A control character.
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let (digits, rest) = match self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => (0, 2),
            b'u' => (4, 2),
            _ => return None,
        };
        let end = self.at + rest + digits;
        self.text.get(self.at + rest..end)?.iter().all(u8::is_ascii_hexdigit).then(|| self.at = end)
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        self.text.get(self.at..)?.starts_with(literal).then(|| self.at += literal.len())
    }

    fn number(&mut self) -> Option<()> {
        self.take(b"-");
        if !self.take(b"0") {
            self.digits()?;
        }
        if self.take(b".") {
            self.digits()?;
        }
        if self.take(b"eE") {
            self.take(b"+-");
            self.digits()?;
        }
        Some(())
    }

    /// Steps over one byte, if it is one of these.
    fn take(&mut self, any: &[u8]) -> bool {
        let is_there = self.text.get(self.at).is_some_and(|byte| any.contains(byte));
        self.at += usize::from(is_there);
        is_there
    }

    /// Steps over at least one digit.
    fn digits(&mut self) -> Option<()> {
        let rest = self.text.get(self.at..)?;
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        (digits > 0).then_some(())
    }
}

/// Returns how many bytes of the inside of a string come before a quote, a backslash or a control character.
fn plain(text: &[u8]) -> usize {
    let (chunks, rest) = text.as_chunks();
    let mut at = 0;
    for chunk in chunks {
        let found = special(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += chunk.len();
    }
    at + rest.iter().take_while(|byte| !matches!(byte, ..b' ' | b'"' | b'\\')).count()
}

/// Returns the highest bit of the lowest byte that ends what is plain, and of some above it; 0 if none does.
fn special(bytes: u64) -> u64 {
    const EACH: u64 = u64::from_le_bytes([1; 8]);
    const HIGHEST: u64 = EACH << 7;
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(EACH * limit) & !bytes;
    let is = |byte: u8| below(bytes ^ (EACH * u64::from(byte)), 1);
    (below(bytes, b' '.into()) | is(b'"') | is(b'\\')) & HIGHEST
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What can stand next to each other in JSON, or breaks it.
    fn piece() -> impl Strategy<Value = String> {
        let pieces = "true false null nul \\u00e9 \\ud800 \\n \\x \u{1} \u{7f} é \u{2028} 1.5e+7 -0 01 - 1. jsonrpc \"2.0\" \
            \"id\" \"method\": \"params\" \"i\\u0064\" \"_meta\":{\"a\":\"b\"}";
        prop_oneof![
            "[ \n\t\r{}\\[\\]\":,\\\\0-9eE.+-]{1,3}",
            prop::sample::select(pieces.split(' ').collect::<Vec<_>>()).prop_map(str::to_owned),
            any::<String>(),
        ]
    }

    fn message() -> impl Strategy<Value = String> {
        let value = prop::collection::vec(piece(), 0..4).prop_map(|pieces| pieces.concat());
        let json = prop_oneof![
            Just("7"),
            Just("\"a\\tb\""),
            Just("{\"a\":[1,{}]}"),
            Just("{\"_meta\":{\"a\":\"b\"},\"n\":1}"),
            Just("[]"),
            Just("-1.5e-7"),
            Just("null")
        ];
        let value = prop_oneof![9 => json.prop_map(str::to_owned), 1 => value];
        let key =
            prop::sample::select(vec!["id", "method", "params", "result", "error", "other", "jsonrpc", "\\u0069d"]);
        let version = Just(("jsonrpc", "\"2.0\"".to_owned()));
        let member = (prop_oneof![1 => version, 5 => (key, value)], "[ \n]{0,1}")
            .prop_map(|((key, value), gap)| format!("{gap}\"{key}\"{gap}:{gap}{value}{gap}"));
        prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(",")))
    }

    fn agrees(text: &str) -> Result<bool, TestCaseError> {
        last_metas::remember(r#"{"a":"b"}"#);
        let scanned = Envelope::scan(text);
        if let Some(envelope) = &scanned {
            let parsed = serde_json::from_str::<Envelope<'_>>(text);
            prop_assert_eq!(parsed.as_ref().ok(), Some(envelope), "{:?}", text);
        }
        Ok(scanned.is_some())
    }

    proptest! {
        #[test]
        fn what_is_scanned_is_what_a_parser_reads(text in message()) {
            agrees(&text)?;
        }

        #[test]
        fn nothing_is_scanned_that_a_parser_refuses(
            text in message(),
            cut in any::<prop::sample::Index>(),
            length in 0..4_usize,
            piece in piece(),
        ) {
            let broken: Vec<char> = text.chars().collect();
            let at = cut.index(broken.len());
            let rest = broken[(at + length).min(broken.len())..].iter();
            agrees(&broken[..at].iter().copied().chain(piece.chars()).chain(rest.copied()).collect::<String>())?;
        }

        #[test]
        fn a_string_ends_where_its_first_byte_that_is_not_plain_stands(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let first = bytes.iter().position(|byte| matches!(byte, ..b' ' | b'"' | b'\\'));
            prop_assert_eq!(plain(&bytes), first.unwrap_or(bytes.len()));
        }
    }

    #[test]
    fn usual_messages_are_scanned_and_others_are_parsed() {
        let nested = |depth: usize, [open, close]: [&str; 2]| {
            format!(r#"{{"id":{}1{}}}"#, open.repeat(depth), close.repeat(depth))
        };
        let [arrays, objects] = [["[", "]"], ["{\"a\":", "}"]];
        for usual in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"n":[1,-2.5e3,true]}}}"#,
            "\n{ \"result\" : { \"content\" : [ ] , \"a\" : \"\\u00e9\\n\" } , \"other\" : null , \"other\" : false } ",
            "{}",
            &nested(MAX_DEPTH - 1, arrays),
            &nested(MAX_DEPTH - 1, objects),
        ] {
            assert!(agrees(usual).is_ok_and(|scanned| scanned), "{usual}");
        }
        let [arrays, objects] = [arrays, objects].map(|brackets| nested(MAX_DEPTH, brackets));
        for unusual in [r#"{"i\u0064":1}"#, r#"{"jsonrpc":"2\u002e0"}"#, &arrays, &objects] {
            assert!(agrees(unusual).is_ok_and(|scanned| !scanned), "{unusual}");
            assert!(Envelope::read(unusual).is_ok(), "{unusual}");
        }
    }

    #[test]
    fn what_is_no_json_and_what_is_there_twice_is_neither_scanned_nor_parsed() {
        let values = [
            "+1 01 - 1. .5 1e 1e+ 0x1 [1,] [,1] [1} {\"a\":1,} {\"a\":} {1:2} {\"a\":1] \"\\u123\" \"\\uZZZZ\" \"\\x\" nul True",
            "\"\u{1}\" \"a [1 {",
        ];
        let spaced = ["[1 2]", "{\"a\":1 \"b\":2}", "{\"a\" 1}", "\u{b}1", "\u{c}1", "\u{a0}1", "1 2", ""];
        for value in values.iter().flat_map(|values| values.split(' ')).chain(spaced) {
            let text = format!(r#"{{"params":{{"a":{value}}}}}"#);
            assert!(Envelope::scan(&text).is_none() && Envelope::read(&text).is_err(), "{text}");
        }
        for text in [
            r#"{"jsonrpc":"2.0","jsonrpc":"2.0"}"#,
            r#"{"jsonrpc":2.0}"#,
            r#"{"id":1,"id":1}"#,
            r#"{"id":1,"i\u0064":1}"#,
            "[]",
            "{} {}",
            "",
        ] {
            assert!(Envelope::scan(text).is_none() && Envelope::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_meta_that_has_come_before_is_not_looked_through_again_where_params_have_it() {
        // What is no JSON shows where the scan has looked.
        last_metas::remember(r#"{"stepped" over}"#);
        for (text, is_stepped_over) in [
            (r#"{"params":{"_meta":{"stepped" over}}}"#, true),
            (r#"{"params":{"_meta":{"stepped" into}}}"#, false),
            (r#"{"params":{"a":{"stepped" over}}}"#, false),
            (r#"{"params":{"a":{"_meta":{"stepped" over}}}}"#, false),
            (r#"{"_meta":{"stepped" over}}"#, false),
            // As deep as in `params`.
            (r#"{"result":{"_meta":{"stepped" over}}}"#, true),
        ] {
            assert_eq!(Envelope::scan(text).is_some(), is_stepped_over, "{text}");
        }
    }
}
