//! The documents: their links work, the files that they name exist, and the README is short enough to be read.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &Path) -> String {
    fs::read_to_string(page).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// Returns the pages at the top of the project and in `docs`.
fn pages() -> Vec<PathBuf> {
    let entries = ["", "docs"].into_iter().flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Returns the lines of a page that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(str::lines)
}

/// Returns the anchor that a heading gets.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|char| char.is_alphanumeric() || ['-', '_'].contains(char)).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    prose(text).filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// Returns the places in the project that a page links to.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).collect::<Vec<_>>().join("\n");
    let targets = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned());
    targets.filter(|target| !target.starts_with("http")).collect()
}

/// Says why a link of a page leads nowhere.
fn broken(page: &Path, link: &str) -> Option<String> {
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() { page.to_owned() } else { page.parent().unwrap().join(file) };
    if !target.exists() {
        return Some(format!("{} links to {link}, and there is no such file", page.display()));
    }
    let leads = heading.is_empty() || anchors(&read(&target)).contains(heading);
    (!leads).then(|| format!("{} links to {link}, and there is no such heading", page.display()))
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let links = links(&read(&page));
        count += links.len();
        wrong.extend(links.iter().filter_map(|link| broken(&page, link)));
    }
    assert!(count > 50, "only {count} links");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_that_the_architecture_and_the_decisions_name_exists() {
    for page in ["ARCHITECTURE.md", "docs/decisions.md"] {
        let text = read(&root().join(page));
        let files: Vec<_> = text.split('`').skip(1).step_by(2).filter(|word| word.contains(".rs")).collect();
        assert!(files.len() > 15, "{page} names only {} files", files.len());
        let exists = |file: &str| root().join("src").join(file).exists() || root().join(file).exists();
        let gone: Vec<_> = files.into_iter().filter(|file| !exists(file)).collect();
        assert!(gone.is_empty(), "{page} names {gone:?}");
    }
}

/// Returns the words of the code below a folder, without those of comments.
fn words_of_code(folder: &Path, words: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            words_of_code(&path, words);
            continue;
        }
        let text = read(&path);
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        words.extend(
            code.flat_map(|line| line.split(|char: char| !char.is_alphanumeric() && char != '_')).map(str::to_owned),
        );
    }
}

#[test]
fn every_type_and_function_that_the_architecture_and_the_decisions_name_exists() {
    let mut words = BTreeSet::new();
    words_of_code(&root().join("src"), &mut words);
    for page in ["ARCHITECTURE.md", "docs/decisions.md"] {
        let text = read(&root().join(page));
        let is_name = |name: &&str| {
            name.contains("::") || name.starts_with(char::is_uppercase) && name.chars().all(char::is_alphanumeric)
        };
        let names: Vec<_> = text.split('`').skip(1).step_by(2).filter(is_name).collect();
        assert!(names.len() > 4, "{page} names only {names:?}");
        let gone: Vec<_> =
            names.into_iter().filter(|name| !name.split("::").all(|word| words.contains(word))).collect();
        assert!(gone.is_empty(), "{page} names {gone:?}");
    }
}

#[test]
fn the_readme_has_at_most_a_thousand_words() {
    let words = read(&root().join("README.md")).split_whitespace().count();
    assert!(words <= 1000, "{words} words");
}

#[test]
fn a_broken_link_is_reported() {
    let page = root().join("README.md");
    assert!(broken(&page, "docs/configuration.md#serverls").is_some());
    assert!(broken(&page, "docs/gone.md").is_some());
    assert_eq!(broken(&page, "docs/configuration.md#servertls"), None);
    assert_eq!(links("a [b](c.md#d)\n```\n[e](f)\n```\n[g](https://h)"), ["c.md#d"]);
}
