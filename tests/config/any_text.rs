//! Whatever the text is, reading it ends in a configuration or in a report that points into the text.

use std::fs;

use proptest::prelude::*;
use taskgate::config::{Overrides, parse};

use super::{root, with_target};

/// Text made of pieces that mean something to the reader, which plain random text seldom does.
fn toml_like() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
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
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

fn check_report(text: &str) -> Result<(), TestCaseError> {
    for overrides in [Overrides::default(), with_target()] {
        let Err(report) = parse("config.toml", text, overrides) else { continue };
        let lines: Vec<_> = text.split('\n').collect();
        let mut last = (1, 1);
        for mistake in report.iter() {
            let place = (mistake.line, mistake.column);
            prop_assert!(place >= last, "{place:?} after {last:?}");
            let columns = lines[mistake.line - 1].chars().count() + 1;
            prop_assert!((1..=columns).contains(&mistake.column), "{mistake}");
            last = place;
        }
        prop_assert!(report.iter().next().is_some());
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_text_is_accepted_or_reported_within_its_lines(text in any::<String>()) {
        check_report(&text)?;
    }

    #[test]
    fn any_toml_like_text_is_accepted_or_reported_within_its_lines(text in toml_like()) {
        check_report(&text)?;
    }

    #[test]
    fn any_damage_to_a_valid_file_is_accepted_or_reported_within_its_lines(
        at in any::<prop::sample::Index>(), length in 0_usize..20, patch in toml_like(),
    ) {
        let text = fs::read_to_string(root().join("tests/config/valid/everything.toml")).unwrap();
        let start = at.index(text.len());
        let end = text.len().min(start + length);
        check_report(&format!("{}{patch}{}", &text[..start], &text[end..]))?;
    }
}
