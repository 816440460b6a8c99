//! docs/protocol.md names files and tests; all of them must exist.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;

const PAGE: &str = "docs/protocol.md";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What stands between backticks and looks like a source file, or a function in one: `file` or `file::function`.
fn references(page: &str) -> Vec<&str> {
    page.split('`').skip(1).step_by(2).filter(|word| word.contains(".rs")).collect()
}

/// What is wrong with a reference, if anything.
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

/// Whether `source` has a function of that name right below a test attribute.
fn is_test(source: &str, name: &str) -> bool {
    let opening = format!("fn {name}(");
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    lines.windows(2).any(|pair| {
        let attribute = pair[0].starts_with("#[test]") || pair[0].starts_with("#[tokio::test");
        attribute && pair[1].trim_start_matches("async ").starts_with(&opening)
    })
}

#[test]
fn every_file_and_test_that_the_table_names_exists() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let references = references(&page);
    assert!(references.len() > 100, "{PAGE} names only {} files and tests", references.len());
    let mistakes: Vec<_> = references.into_iter().filter_map(mistake).collect();
    assert!(mistakes.is_empty(), "{PAGE} is wrong:\n{}", mistakes.join("\n"));
}

#[test]
fn every_row_of_the_table_names_a_test_or_says_why_there_is_none() {
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let says_why = last.starts_with("Not yet") || last.starts_with("Not applicable");
        assert!(last.contains(".rs::") || says_why, "{row}");
    }
}

#[test]
fn a_missing_file_and_a_missing_test_are_noticed() {
    assert_eq!(mistake("src/lib.rs"), None);
    assert_eq!(mistake("tests/protocol_table.rs::a_missing_file_and_a_missing_test_are_noticed"), None);
    assert!(mistake("src/gone.rs").is_some());
    assert!(mistake("tests/protocol_table.rs::references").is_some());
}
