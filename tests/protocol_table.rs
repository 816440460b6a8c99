//! docs/protocol.md and docs/security.md name only files and tests that exist, and the list of limits is complete.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PAGES: [&str; 2] = ["docs/protocol.md", "docs/security.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns what stands between backticks and looks like a source file, or a function in one: `file` or
/// `file::function`.
fn references(page: &str) -> Vec<&str> {
    page.split('`').skip(1).step_by(2).filter(|word| word.contains(".rs")).collect()
}

/// Returns what is wrong with a reference, if anything.
fn mistake(reference: &str) -> Option<String> {
    let (file, function) = match reference.split_once("::") {
        Some((file, function)) => (file, Some(function)),
        None => (reference, None),
    };
    let Ok(source) = fs::read_to_string(root().join(file)) else {
        return Some(format!("{reference}: there is no file {file}"));
    };
    let function = function?;
    let is_there = is_test(&source, function);
    (!is_there).then(|| format!("{reference}: {file} has no test {function}"))
}

/// Returns whether `source` has a function of that name right below a test attribute, or in a list that a macro makes
/// tests of.
fn is_test(source: &str, name: &str) -> bool {
    let listed = source.split("\ncontract! {").nth(1).and_then(|rest| rest.split('}').next()).unwrap_or_default();
    let over_each_store = source.split("\nover_each_store! {").nth(1).unwrap_or_default().trim_start();
    if listed.split(',').any(|promise| promise.trim() == name) || over_each_store.starts_with(&format!("{name}(")) {
        return true;
    }
    let opening = format!("fn {name}(");
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| {
        let attribute = pair[0].starts_with("#[test]") || pair[0].starts_with("#[tokio::test");
        attribute && pair[1].trim_start_matches("async ").starts_with(&opening)
    })
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// Returns the rows of the tables below a heading, in cells, without those that say what is in the columns.
fn rows<'p>(page: &'p str, heading: &str) -> Vec<Vec<&'p str>> {
    let from = page.find(heading).unwrap() + heading.len();
    let part = page[from..].split("\n## ").next().unwrap();
    let lines: Vec<_> = part.lines().chain([""]).collect();
    let is_row = |pair: &&[&str]| pair[0].starts_with("| ") && !pair[1].starts_with("|-");
    let ends = lines.windows(2).filter(is_row).map(|pair| pair[0]);
    ends.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns the limits in a page's list, each with the other cells of its row.
fn limits(page: &str) -> BTreeMap<&str, Vec<&str>> {
    rows(page, "\n## Limits\n")
        .into_iter()
        .flat_map(|row| row[0].split(", ").map(|name| (name, row[1..].to_vec())).collect::<Vec<_>>())
        .collect()
}

/// Returns the keys of the configuration with their defaults, by their names.
fn keys(reference: &str) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    for section in ["server", "rate", "store", "tasks", "upstream"] {
        let heading = if section == "upstream" { "\n## `[[upstream]]`" } else { &format!("\n## `[{section}]`") };
        for row in rows(reference, heading) {
            keys.insert(format!("`{section}.{}`", row[0].trim_matches('`')), row[2].to_owned());
        }
    }
    keys
}

#[test]
fn every_file_and_test_that_the_tables_name_exists() {
    for page in PAGES {
        let text = read(page);
        let references = references(&text);
        assert!(references.len() > 100, "{page} names only {} files and tests", references.len());
        let mistakes: Vec<_> = references.into_iter().filter_map(mistake).collect();
        assert!(mistakes.is_empty(), "{page} is wrong:\n{}", mistakes.join("\n"));
    }
}

#[test]
fn every_row_of_the_tables_names_a_test_or_says_why_there_is_none() {
    let (protocol, security) = (read(PAGES[0]), read(PAGES[1]));
    let tables = [rows(&protocol, "\n"), rows(&security, "\n## Threats\n"), rows(&security, "\n## Limits\n")];
    for row in tables.iter().flatten() {
        let last = row.last().unwrap();
        let says_why = ["Not yet", "Not applicable", "None: "].iter().any(|word| last.starts_with(word));
        // A row that has only a heading.
        let heading = row[0].starts_with("**") && last.is_empty();
        assert!(last.contains(".rs::") || says_why || heading, "{row:?}");
    }
}

#[test]
fn the_list_of_limits_has_every_configured_limit_with_its_default() {
    let (security, reference) = (read(PAGES[1]), read("docs/configuration.md"));
    let (limits, keys) = (limits(&security), keys(&reference));
    for (key, default) in &keys {
        let bounds = key.contains(".max_") || key.contains("timeout") || key.starts_with("`rate.");
        assert!(!bounds || limits.contains_key(key.as_str()), "{key} is not listed");
        if let Some(row) = limits.get(key.as_str()) {
            assert_eq!(row[0], default, "{key}");
        }
    }
    for key in limits.keys().filter(|limit| limit.starts_with('`')) {
        assert!(keys.contains_key(*key), "{key} is no key");
    }
}

#[test]
fn every_limit_in_operations_is_in_the_list_of_limits() {
    let (security, operations) = (read(PAGES[1]), read("docs/operations.md"));
    let (limits, said) = (limits(&security), limits(&operations));
    assert!(said.len() > 40, "{} limits", said.len());
    for limit in said.keys() {
        assert!(limits.contains_key(limit), "{limit} is not in docs/security.md");
    }
}

#[test]
fn a_missing_file_and_a_missing_test_are_reported() {
    assert_eq!(mistake("src/lib.rs"), None);
    assert_eq!(mistake("tests/protocol_table.rs::a_missing_file_and_a_missing_test_are_reported"), None);
    assert!(mistake("src/gone.rs").is_some());
    assert!(mistake("tests/protocol_table.rs::references").is_some());
}
