//! The members of one JSON object, as raw text and in their order.

use std::{borrow::Cow, collections::HashSet, ops::Range, sync::OnceLock};

use memchr::{memchr, memmem::Finder};
use serde::Deserialize;

use super::{span::span, walk};

/// How much of a key an error shows, in characters: a stranger decides how long the key is.
const SHOWN: usize = 64;

/// A shallow view of an object: its keys and raw values. It reads nothing below them.
#[derive(Debug)]
pub struct Members<'a> {
    raw: &'a str,
    members: Vec<(Cow<'a, str>, &'a str)>,
}

impl<'a> Members<'a> {
    /// Reads the members of `raw`, which has been read as JSON before.
    ///
    /// # Errors
    /// A sentence that says what is wrong, if `raw` is not an object, or has a key that is no text or is there twice.
    pub fn parse(raw: &'a str) -> Result<Self, String> {
        let members = walk::members(raw, unquote).ok_or("it is no object whose keys can be read")?;
        match duplicate(&members) {
            Some(key) => Err(format!("duplicate member {}", quote(&key.chars().take(SHOWN).collect::<String>()))),
            // `Edits::set` expects the bracket at the beginning.
            None => Ok(Self { raw: raw.trim_ascii(), members }),
        }
    }

    /// Returns the object as it was read, without white space around it.
    #[must_use]
    pub fn raw(&self) -> &'a str {
        self.raw
    }

    /// Returns the raw value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.members.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Returns the value of `key`, if it is a string.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Cow<'a, str>> {
        self.get(key).and_then(unquote)
    }

    /// Returns the members of the object at `key`; `None` if `key` is missing or is not an object.
    ///
    /// # Errors
    /// A sentence that says what is wrong, if the object has a key twice.
    pub fn nested(&self, key: &str) -> Result<Option<Members<'a>>, String> {
        let object = self.get(key).filter(|raw| raw.starts_with('{')).map(Members::parse).transpose();
        object.map_err(|why| format!("{why} in {}", quote(key)))
    }

    /// Does the same as [`Members::nested`], but also returns `None` for an object that has a key twice.
    #[must_use]
    pub fn object(&self, key: &str) -> Option<Members<'a>> {
        Members::parse(self.get(key)?).ok()
    }

    /// Returns the members, each key with its raw value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.members.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// Returns where the object stands in `source`, of which it is a part.
    #[must_use]
    pub fn span(&self, source: &[u8]) -> Range<usize> {
        span(source, self.raw)
    }

    /// Returns where `key` stands in `source`, of which the object is a part.
    #[must_use]
    pub fn span_of(&self, key: &str, source: &[u8]) -> Option<MemberSpan> {
        let (place, object) = (self.place(key)?, self.span(source).start);
        let cut = place.cut_to(&place);
        Some(MemberSpan { value: span(source, self.get(key)?), cut: object + cut.start..object + cut.end })
    }

    /// Returns where `key` and its value stand.
    pub(super) fn place(&self, key: &str) -> Option<MemberPlace> {
        let number = self.members.iter().position(|(name, _)| name == key)?;
        let value_end = |number: usize| span(self.raw.as_bytes(), self.members[number].1).end;
        let end = value_end(number);
        let text_at = |at: usize| at + self.raw[at..].len() - self.raw[at..].trim_ascii_start().len();
        let next = (number + 1 < self.members.len()).then(|| text_at(text_at(end) + ",".len()));
        let before = if number == 0 { text_at("{".len()) } else { value_end(number - 1) };
        Some(MemberPlace { number, of: self.members.len(), before, end, next })
    }
}

/// Where a member stands in its object, counted from the opening bracket, in bytes.
#[derive(Debug)]
pub(super) struct MemberPlace {
    /// Which of the members it is, from 0 on.
    pub number: usize,
    /// How many members there are.
    pub of: usize,
    /// The end of the member before, or the beginning of the first one.
    pub before: usize,
    /// Its end.
    pub end: usize,
    /// The beginning of the next one, if there is one.
    pub next: Option<usize>,
}

impl MemberPlace {
    /// Returns what an object loses with the members from this one to `last`: they and their commas.
    pub(super) fn cut_to(&self, last: &Self) -> Range<usize> {
        match (self.number, last.next) {
            (0, Some(next)) => self.before..next,
            (0, None) => 1..last.end,
            _ => self.before..last.end,
        }
    }
}

/// Where a member of an object stands in a text, in bytes.
#[derive(Debug)]
pub struct MemberSpan {
    /// Its value.
    pub value: Range<usize>,
    /// What the object loses with it: the member and its comma. No other member may come or go together with it.
    pub cut: Range<usize>,
}

/// Returns a key that is there twice. It compares few keys with each other and hashes many, because a stranger decides
/// how many there are.
fn duplicate<'a>(members: &'a [(Cow<'_, str>, &str)]) -> Option<&'a str> {
    const FEW: usize = 16;
    let keys = || members.iter().map(|(key, _)| key.as_ref());
    if members.len() <= FEW {
        return keys()
            .enumerate()
            .find(|(at, key)| keys().take(*at).any(|earlier| earlier == *key))
            .map(|(_, key)| key);
    }
    let mut seen = HashSet::with_capacity(members.len());
    keys().find(|key| !seen.insert(*key))
}

/// A text that is looked for in every message. Preparing that costs more than looking through a small message.
#[derive(Debug)]
pub struct Needle {
    text: &'static str,
    finder: OnceLock<Finder<'static>>,
}

impl Needle {
    /// Returns what looks for `text`.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        Self { text, finder: OnceLock::new() }
    }

    /// Returns whether `raw` holds the text.
    #[must_use]
    pub fn is_in(&self, raw: &str) -> bool {
        self.finder.get_or_init(|| Finder::new(self.text)).find(raw.as_bytes()).is_some()
    }
}

/// What an escape that could hide a key begins with.
static ESCAPE: Needle = Needle::new("\\u");

/// Returns whether a raw object may have one of the members `keys`: an escape could hide it. Most have not, and need
/// not be parsed.
#[must_use]
pub fn may_have<const N: usize>(raw: &str, keys: [&Needle; N]) -> bool {
    keys.iter().any(|key| key.is_in(raw)) || ESCAPE.is_in(raw)
}

/// Returns the text of a raw value, which has been read as JSON before; `None` if it is no string.
#[must_use]
pub fn unquote(raw: &str) -> Option<Cow<'_, str>> {
    // Most have no escape, and are what stands between the quotes.
    let plain = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    if let Some(plain) = plain.filter(|plain| memchr(b'\\', plain.as_bytes()).is_none()) {
        return Some(plain.into());
    }
    let Text(text) = serde_json::from_str(raw).ok()?;
    Some(text)
}

/// Writes `text` as a JSON string.
#[must_use]
pub fn quote(text: &str) -> String {
    if is_plain(text) {
        return ["\"", text, "\""].concat();
    }
    serde_json::Value::from(text).to_string()
}

/// Returns whether a text is the same as a JSON string.
fn is_plain(text: &str) -> bool {
    // Several bytes are counted at once, which takes less than to look at each in turn.
    text.bytes().filter(|byte| matches!(byte, ..b' ' | b'"' | b'\\')).count() == 0
}

/// Writes an object of raw members.
#[must_use]
pub fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let members: Vec<_> = members.map(|(key, value)| format!("{}:{value}", quote(key))).collect();
    format!("{{{}}}", members.join(","))
}

/// A string that is borrowed where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_their_meaning_and_kept_as_written() {
        let members = Members::parse(r#"{"\u0074ask": {"ttl":1e3}, "b":"\n"}"#).expect("an object");
        assert_eq!(members.get("task"), Some(r#"{"ttl":1e3}"#));
        assert_eq!(members.text("b").as_deref(), Some("\n"));
        assert_eq!(members.text("task"), None);
    }

    #[test]
    fn a_key_that_is_there_twice_is_refused_also_when_it_is_escaped() {
        let error = Members::parse(r#"{"a":1,"\u0061":2}"#).expect_err("duplicate");
        assert_eq!(error, "duplicate member \"a\"");
        let many: Vec<String> = (0..100).map(|n| format!("\"k{}\":{n}", n % 99)).collect();
        let error = Members::parse(&format!("{{{}}}", many.join(","))).expect_err("duplicate");
        assert_eq!(error, "duplicate member \"k0\"");
    }
}
