//! Random input for the same checks.

use std::fs;

use proptest::{collection::vec, prelude::*, sample::select};

use crate::oracles::{TARGETS, config, cursor, envelope, ids, relay, splice, sse};

/// Returns the choices that a JSON text is made by, after the byte that announces them.
fn made() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..300).prop_map(|choices| [&[0xFF], &choices[..]].concat())
}

/// Returns a first line of letters, and the rest.
fn scripted(letters: &'static str, rest: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let script = vec(select(letters.as_bytes()), 0..20);
    (script, rest).prop_map(|(script, rest)| [&script[..], b"\n", &rest].concat())
}

/// Returns text made of pieces that mean something to the reader, which random text seldom does.
fn pieces(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    vec(select(pieces), 0..40).prop_map(|pieces| pieces.concat())
}

const TOML: &[&str] = &[
    "[server]",
    "[auth]",
    "[tasks]",
    "[[upstream]]",
    "[upstream.tools.\"a*\"]",
    "[upstream]",
    "[",
    "]",
    "{",
    "}",
    "listen",
    "mode",
    "header",
    "trusted_peers",
    "ttl",
    "max_ttl",
    "native",
    "transport",
    "path",
    "url",
    "command",
    "tools",
    " = ",
    "=",
    ".",
    ",",
    "\n",
    "\r\n",
    "\"",
    "'",
    "\"\"\"",
    "#",
    "\\u00e9",
    "é",
    "\u{feff}",
    "\0",
    "true",
    "-1",
    "0x",
    "99999999999999999999",
    "1e999",
    "nan",
    "1979-05-27",
    "\"15m\"",
    "\"0s\"",
    "\"4MiB\"",
    "\"header\"",
    "\"http://a\"",
    "\"http://[\"",
    "\"/mcp\"",
    "[\"a\"]",
    "[1, []]",
];

const SSE: &[&str] = &[
    "data",
    "event",
    "id",
    "retry",
    ":",
    ": ",
    "x",
    "7",
    "+7",
    "\n",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\0",
    "é",
    "\u{feff}",
    "99999999999999999999",
];

const CURSORS: &[&str] = &["{a0}", "{a1}", "{b0}", "{b1}", "{", "A", "=", "-", "_", "\0", " ", "é"];

const IDS: &[&str] =
    &["01234567", "89ab", "cdef", "-", "-", "0", "1", "18446744073709551615", "A", "+", " ", "taskgate:"];

proptest! {
    #[test]
    fn any_bytes_keep_every_promise(bytes: Vec<u8>) {
        for (_, check) in TARGETS {
            check(&bytes);
        }
    }

    #[test]
    fn a_body_is_a_message_by_the_letter_of_the_protocol_or_is_refused(body in made()) {
        envelope::check(&body);
    }

    #[test]
    fn a_damaged_body_is_a_message_or_is_refused(
        body in made(), at: prop::sample::Index, length in 0_usize..4, patch in vec(any::<u8>(), 0..4),
    ) {
        let body = crate::oracles::json::made(&body).into_bytes();
        let start = at.index(body.len());
        let end = body.len().min(start + length);
        envelope::check(&[&body[..start], &patch, &body[end..]].concat());
    }

    #[test]
    fn edits_of_a_text_are_the_edits_of_its_value(input in scripted("nsrbcx--L", made())) {
        splice::check(&input);
    }

    #[test]
    fn a_relayed_answer_is_the_whole_one_with_another_id(input in scripted("0123456789", made())) {
        relay::check(&input);
    }

    #[test]
    fn a_stream_means_the_same_events_however_it_is_cut(
        input in scripted("0123456789", pieces(SSE).prop_map(String::into_bytes)),
    ) {
        sse::check(&input);
    }

    #[test]
    fn a_cursor_is_accepted_only_unchanged_and_from_its_owner(text in pieces(CURSORS)) {
        cursor::check(text.as_bytes());
    }

    #[test]
    fn an_id_has_one_form(text in pieces(IDS)) {
        ids::check(text.as_bytes());
    }

    #[test]
    fn any_toml_is_accepted_or_reported_within_its_lines(text in pieces(TOML)) {
        config::check(text.as_bytes());
    }

    #[test]
    fn any_damage_to_a_valid_file_is_accepted_or_reported_within_its_lines(
        at: prop::sample::Index, length in 0_usize..20, patch in pieces(TOML),
    ) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/config/valid/everything.toml");
        let text = fs::read_to_string(path).unwrap();
        let start = at.index(text.len());
        let end = text.len().min(start + length);
        config::check(format!("{}{patch}{}", &text[..start], &text[end..]).as_bytes());
    }
}
