//! `config.toml` at the top of the project: every key, and what its comments say when they become lines.

use std::fs;

use taskgate::config::{Config, Overrides, load, parse};

use super::{reference, root, with_files};

/// Returns the file with every key that it has as a comment.
fn uncommented() -> String {
    let text = fs::read_to_string(root().join("config.toml")).unwrap();
    let is_key = |line: &str| {
        let word = line.split(" = ").next().unwrap();
        line.starts_with('[')
            || line.contains(" = ") && word.chars().all(|char| char.is_ascii_lowercase() || char == '_')
    };
    let lines = text.lines().map(|line| line.strip_prefix('#').filter(|rest| is_key(rest)).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the keys and values below the headings of a section. A table with a heading of its own is a key too.
fn keys_of<'t>(text: &'t str, section: &str) -> Vec<(&'t str, &'t str)> {
    let mut heading = "";
    let mut keys = Vec::new();
    for line in text.lines() {
        if line.starts_with('[') {
            heading = line.trim_matches(['[', ']']);
            let table = heading.strip_prefix(section).and_then(|rest| rest.strip_prefix('.'));
            keys.extend(table.map(|rest| (rest.split('.').next().unwrap(), "{}")));
        } else if heading == section
            && let Some(pair) = line.split_once(" = ")
        {
            keys.push(pair);
        }
    }
    keys
}

#[test]
fn every_key_is_in_the_complete_file_and_a_comment_shows_its_default() {
    let text = uncommented();
    for (section, keys) in reference() {
        let there = keys_of(&text, &section);
        for (key, default) in keys {
            let values: Vec<_> = there.iter().filter(|(name, _)| *name == key).map(|(_, value)| *value).collect();
            assert!(!values.is_empty(), "config.toml does not have {key} in [{section}]");
            if let Some(default) = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')) {
                assert!(values.contains(&default), "config.toml shows {values:?} for {section}.{key}, not {default}");
            }
        }
    }
}

#[test]
fn the_complete_file_has_the_defaults_as_it_stands() {
    let Config { server, auth, audit, rate, store, tasks, upstreams } =
        load(&root().join("config.toml"), Overrides::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let expected = Config::for_upstream(upstreams[0].target.clone());
    assert_eq!(
        (server, auth, audit, rate, store, tasks),
        (expected.server, expected.auth, expected.audit, expected.rate, expected.store, expected.tasks)
    );
    assert_eq!(upstreams[0].policy.tool("any"), expected.upstreams[0].policy.tool("any"));
}

#[test]
fn every_commented_key_of_the_complete_file_is_valid_once_uncommented() {
    let (_files, text) = with_files(&uncommented());
    let text = text.replace("to = \"off\"", "to = \"file\"").replace("kind = \"memory\"", "kind = \"file\"");
    for mode in ["none", "header", "jwt", "introspect", "mtls", "bearer"] {
        let mut text = text.replace("mode = \"none\"", &format!("mode = \"{mode}\""));
        if mode == "bearer" {
            // The server that is a process gets no tokens that it could judge.
            let blocks: Vec<_> = text.split("\n[[upstream]]\n").collect();
            text = [blocks[0], blocks[2]].join("\n[[upstream]]\n");
        }
        let Err(mistakes) = parse("config.toml", &text, Overrides::default()) else { panic!("{mode} uses every key") };
        // What another mode uses is there for that mode.
        let (others, wrong): (Vec<_>, Vec<_>) = mistakes.iter().partition(|mistake| {
            mistake.key.starts_with("auth.") && mistake.message.starts_with("only used with mode")
        });
        assert!(wrong.is_empty(), "{mode}: {wrong:#?}");
        let of_others: Vec<_> = others.iter().map(|mistake| mistake.line).collect();
        let lines = (1..).zip(text.lines()).filter(|(number, _)| !of_others.contains(number));
        let text = lines.map(|(_, line)| line).collect::<Vec<_>>().join("\n");
        parse("config.toml", &text, Overrides::default()).unwrap_or_else(|mistakes| panic!("{mode}: {mistakes}"));
    }
}
