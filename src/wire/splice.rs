//! Edits of JSON as byte splices: everything outside of an edit stays as it was, byte for byte.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;

use super::{
    Parts,
    object::{MemberPlace, Members, quote},
    span::span,
};

/// A set of edits to one document, applied at once.
#[derive(Debug)]
pub struct Edits<'a> {
    source: &'a Bytes,
    texts: Vec<Edit<'a>>,
    /// Members that objects gain and lose. What becomes of their commas is known when all of them are.
    members: Vec<MemberEdit<'a>>,
}

/// A text in the place of a part of the source.
type Edit<'a> = (Range<usize>, Cow<'a, str>);

/// A member that an object gains or loses.
#[derive(Debug)]
struct MemberEdit<'a> {
    /// Where the object begins in the source.
    object: usize,
    /// Whether the object has no member in the source.
    is_empty: bool,
    change: MemberChange<'a>,
}

#[derive(Debug)]
enum MemberChange<'a> {
    /// It comes, in front of those that the object has.
    Added(Cow<'a, str>),
    /// It goes.
    Removed(MemberPlace),
}

impl<'a> Edits<'a> {
    /// Starts without edits.
    #[must_use]
    pub fn of(source: &'a Bytes) -> Self {
        Self { source, texts: Vec::new(), members: Vec::new() }
    }

    /// Puts `new` in the place of `span`. Spans must not overlap.
    pub fn replace(&mut self, span: Range<usize>, new: impl Into<Cow<'a, str>>) {
        self.texts.push((span, new.into()));
    }

    /// Puts `new` in the place of `old`, a part of the source.
    pub fn replace_raw(&mut self, old: &str, new: impl Into<Cow<'a, str>>) {
        self.replace(span(self.source, old), new);
    }

    /// Takes the member `key` out of an object of the source. Does nothing if the object has no such member.
    pub fn remove(&mut self, members: &Members<'_>, key: &str) {
        if let Some(place) = members.place(key) {
            self.change(members.raw(), MemberChange::Removed(place));
        }
    }

    /// Gives the member `key` of an object of the source the raw value `value`. A missing member is added in front.
    pub fn set(&mut self, members: &Members<'_>, key: &str, value: &str) {
        if let Some(old) = members.get(key) {
            self.replace_raw(old, value.to_owned());
        } else {
            self.add(members.raw(), format!("{}:{value}", quote(key)));
        }
    }

    /// Adds a raw member in front of a raw object of the source, which must not have it.
    pub fn add(&mut self, object: &str, member: impl Into<Cow<'a, str>>) {
        self.change(object, MemberChange::Added(member.into()));
    }

    /// Notes what a raw object of the source gains or loses.
    fn change(&mut self, object: &str, change: MemberChange<'a>) {
        self.members.push(MemberEdit { object: span(self.source, object).start, is_empty: is_empty(object), change });
    }

    /// Returns the edited document.
    #[must_use]
    pub fn apply(self) -> Parts {
        self.apply_between(&[], "")
    }

    /// Returns the edited document between the texts of `front` and `back`.
    #[must_use]
    pub fn apply_between(self, front: &[&str], back: &str) -> Parts {
        let (source, edits) = self.in_order();
        let taken: usize = edits.iter().map(|(range, _)| range.len()).sum();
        let given: usize = edits.iter().map(|(_, new)| new.len()).sum();
        let mut document = Parts::beginning(front, source.len() + given + back.len() - taken);
        append(&mut document, source, &edits);
        document.push(back);
        document
    }

    /// Appends the edited document to another one.
    pub fn append_to(self, document: &mut Parts) {
        let (source, edits) = self.in_order();
        append(document, source, &edits);
    }

    /// Returns the source with its edits, which are of text only, in their order.
    fn in_order(self) -> (&'a Bytes, Vec<Edit<'a>>) {
        let Self { source, texts: mut edits, mut members } = self;
        // Stable, so that what an object gains stays in its order. What it loses comes behind that, as it stands there.
        members.sort_by_key(|edit| (edit.object, edit.place().map(|place| place.number)));
        for object in members.chunk_by_mut(|edit, next| edit.object == next.object) {
            edit_object(object, &mut edits);
        }
        // Stable, so that additions at one place stay in their order; they come before what is replaced from there on.
        edits.sort_by_key(|(range, _)| (range.start, range.end));
        (source, edits)
    }
}

impl MemberEdit<'_> {
    /// Returns the place of a member that goes.
    fn place(&self) -> Option<&MemberPlace> {
        match &self.change {
            MemberChange::Added(_) => None,
            MemberChange::Removed(place) => Some(place),
        }
    }
}

/// Appends `source` to a document, with one more raw member in front of those of a raw `object` in it, which must begin
/// with its bracket and must not have the member. Most answers to clients of the modern generation are made here, so
/// there is no list of edits.
pub fn append_with_member(document: &mut Parts, source: &Bytes, object: &str, member: &str) {
    let inside = span(source, object).start + 1;
    document.push_slice(source, 0..inside);
    document.push(member);
    document.push(if is_empty(object) { "" } else { "," });
    document.push_slice(source, inside..source.len());
}

fn is_empty(object: &str) -> bool {
    object[1..].trim_ascii_start().starts_with('}')
}

/// Appends the source with `edits`, which are in order.
fn append(document: &mut Parts, source: &Bytes, edits: &[Edit<'_>]) {
    let mut at = 0;
    for (range, new) in edits {
        document.push_slice(source, at..range.start);
        document.push(new);
        at = range.end;
    }
    document.push_slice(source, at..source.len());
}

/// Writes what an object gains, and cuts what it loses, each with the commas that go with it.
fn edit_object<'a>(members: &mut [MemberEdit<'a>], edits: &mut Vec<Edit<'a>>) {
    let Some(&MemberEdit { object, is_empty, .. }) = members.first() else { return };
    let (added, removed) = members.split_at_mut(members.partition_point(|edit| edit.place().is_none()));
    let keeps = removed.first().and_then(MemberEdit::place).map_or(!is_empty, |place| removed.len() < place.of);
    let inside = object + 1;
    let last = added.len().saturating_sub(1);
    for (number, edit) in added.iter_mut().enumerate() {
        let MemberChange::Added(member) = &mut edit.change else { continue };
        edits.push((inside..inside, std::mem::take(member)));
        if keeps || number < last {
            edits.push((inside..inside, ",".into()));
        }
    }
    // Members that follow each other go in one piece.
    let follow = |edit: &MemberEdit<'_>, next: &MemberEdit<'_>| {
        edit.place().map(|place| place.number + 1) == next.place().map(|place| place.number)
    };
    for run in removed.chunk_by(follow) {
        let ends = [run.first(), run.last()].map(|edit| edit.and_then(MemberEdit::place));
        let [Some(first), Some(last)] = ends else { continue };
        let cut = first.cut_to(last);
        edits.push((object + cut.start..object + cut.end, "".into()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::parts::SHARE_FROM;

    fn edit(text: &str, change: impl FnOnce(&mut Edits<'_>, &Members<'_>)) -> String {
        let source = Bytes::copy_from_slice(text.as_bytes());
        let raw = std::str::from_utf8(&source).expect("text");
        let members = Members::parse(raw).expect("an object");
        let mut edits = Edits::of(&source);
        change(&mut edits, &members);
        String::from_utf8(edits.apply().into_bytes().to_vec()).expect("text")
    }

    #[test]
    fn a_member_is_removed_with_its_comma_wherever_it_stands() {
        for (before, after) in [
            (r#"{"task":{},"a":1}"#, r#"{"a":1}"#),
            (r#"{ "task" : {} , "a":1}"#, r#"{ "a":1}"#),
            (r#"{"a":1,"task":{},"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1 , "task":{} }"#, r#"{"a":1 }"#),
            (r#"{"task":{}}"#, "{}"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            assert_eq!(edit(before, |edits, members| edits.remove(members, "task")), after);
        }
    }

    #[test]
    fn a_member_is_set_in_place_or_added() {
        assert_eq!(edit(r#"{"a": 1 }"#, |e, m| e.set(m, "a", "2")), r#"{"a": 2 }"#);
        assert_eq!(edit(r#"{"b":1}"#, |e, m| e.set(m, "a", "2")), r#"{"a":2,"b":1}"#);
        assert_eq!(edit("{ }", |e, m| e.set(m, "a", "2")), r#"{"a":2 }"#);
        assert_eq!(edit("\n {\"b\":1} ", |e, m| e.set(m, "a", "2")), "\n {\"a\":2,\"b\":1} ");
    }

    #[test]
    fn a_member_is_added_where_the_first_one_is_removed_in_any_order() {
        let after = r#"{"c":3,"a":2,"b":1}"#;
        for removes_first in [true, false] {
            let edited = edit(r#"{"task":{},"b":1}"#, |edits, members| {
                if removes_first {
                    edits.remove(members, "task");
                }
                edits.set(members, "c", "3");
                edits.set(members, "a", "2");
                if !removes_first {
                    edits.remove(members, "task");
                }
            });
            assert_eq!(edited, after, "{removes_first}");
        }
    }

    #[test]
    fn no_comma_is_left_where_members_go_and_none_is_missing_where_they_come() {
        let all = |text| {
            edit(text, |edits, members| {
                edits.add(members.raw(), r#""c":3"#);
                edits.remove(members, "x");
                edits.remove(members, "y");
                edits.set(members, "d", "4");
            })
        };
        for before in ["{}", r#"{"x":1}"#, r#"{"y":1}"#, r#"{ "x":1, "y":2 }"#, r#"{"y":1,"x":2}"#] {
            assert_eq!(all(before).replace(' ', ""), r#"{"c":3,"d":4}"#, "{before}");
        }
        for before in [r#"{"x":1,"a":1,"y":2}"#, r#"{"x":1,"y":2,"a":1}"#, r#"{"a":1,"y":2,"x":1}"#] {
            assert_eq!(all(before), r#"{"c":3,"d":4,"a":1}"#, "{before}");
        }
    }

    /// The members of an object, in their order.
    fn members_of(text: &str) -> Vec<(String, String)> {
        let members = Members::parse(text).expect("an object");
        members.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn one_member_is_added_in_an_object_of_a_larger_source_between_texts() {
        let large = format!(r#"{{"a":"{}"}}"#, "x".repeat(2 * SHARE_FROM));
        for object in ["{}", "{ }", "{\n}", r#"{"a":{}}"#, r#"{ "a":1}"#, &large] {
            let source = Bytes::from(format!(r#"{{"result":{object} ,"z":1}}"#));
            let start = r#"{"result":"#.len();
            let raw = std::str::from_utf8(&source[start..start + object.len()]).expect("text");
            let mut added = Parts::beginning(&["<"], 0);
            append_with_member(&mut added, &source, raw, r#""m":7"#);
            added.push(">");
            let added = added.into_bytes();
            let mut edits = Edits::of(&source);
            edits.add(raw, r#""m":7"#);
            assert_eq!(added, edits.apply_between(&["<"], ">").into_bytes(), "{object}");
            assert!(serde_json::from_slice::<serde_json::Value>(&added[1..added.len() - 1]).is_ok(), "{object}");
        }
    }

    proptest! {
        /// A change is a key and its new value; one without a value removes the member.
        #[test]
        fn an_edited_object_has_the_members_that_it_should_have_in_their_order(
            members in 0..6_u8,
            gap in "[ \n]{0,2}",
            changes in prop::collection::hash_map(0..9_u8, prop::option::of(10..99_u8), 0..9),
        ) {
            let pairs: Vec<_> = (0..members).map(|key| format!("{gap}\"{key}\"{gap}:{key}{gap}")).collect();
            let source = Bytes::from(format!("{gap}{{{gap}{}}}{gap}", pairs.join(",")));
            let raw = std::str::from_utf8(&source).expect("text");
            let object = Members::parse(raw).expect("an object");
            let mut edits = Edits::of(&source);
            let (mut added, mut kept) = (Vec::new(), members_of(raw));
            for (key, value) in &changes {
                let (key, value) = (key.to_string(), value.map(|value| value.to_string()));
                match &value {
                    Some(value) => edits.set(&object, &key, value),
                    None => edits.remove(&object, &key),
                }
                match (kept.iter().position(|(own, _)| *own == key), value) {
                    (Some(at), Some(value)) => kept[at].1 = value,
                    (Some(at), None) => drop(kept.remove(at)),
                    (None, Some(value)) => added.push((key, value)),
                    (None, None) => {}
                }
            }
            let edited = edits.apply().into_bytes();
            let edited = std::str::from_utf8(&edited).expect("text");
            prop_assert!(serde_json::from_str::<serde_json::Value>(edited).is_ok(), "{edited}");
            prop_assert_eq!(members_of(edited), [added, kept].concat());
        }
    }

    #[test]
    fn large_parts_are_shared_and_the_document_stays_whole() {
        let text = format!(r#"{{"id":1,"big":"{}"}}"#, "x".repeat(2 * SHARE_FROM));
        let source = Bytes::from(text.clone());
        let mut edits = Edits::of(&source);
        edits.replace(6..7, "\"client\"");
        let chunks = edits.apply().into_chunks();
        assert_eq!(chunks.len(), 2);
        assert_eq!(chunks[1].as_ptr(), source[7..].as_ptr());
        assert_eq!(chunks.concat(), text.replacen(":1", ":\"client\"", 1).into_bytes());
    }
}
