//! The committed inputs of the fuzz targets, with the fuzzer's findings among them, fed to the same checks.

use std::{collections::BTreeSet, fs, panic, path::Path};

use crate::oracles::TARGETS;

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}

/// Returns the names in a folder, without their endings.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_fuzz_target_has_a_program_and_a_corpus_and_there_are_no_others() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names(&fuzz().join("fuzz_targets")), targets);
    assert_eq!(names(&fuzz().join("corpus")), targets);
}

#[test]
fn every_input_of_every_corpus_keeps_every_promise() {
    let mut broken = Vec::new();
    for (name, check) in TARGETS {
        let folder = fuzz().join("corpus").join(name);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 20, "{} has {} inputs only", folder.display(), files.len());
        for file in files {
            let input = fs::read(&file).unwrap();
            if panic::catch_unwind(|| check(&input)).is_err() {
                broken.push(file);
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
