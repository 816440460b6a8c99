//! The house: a room uses only the rooms below it, no two of its files use each other, and a file stays small enough to
//! be read.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A longer file should be two files.
const MAX_LINES: usize = 400;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns every Rust file below a folder of the project.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the rooms from top to bottom, as the documentation of the crate lists them.
fn rooms() -> Vec<String> {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let docs = text.lines().filter_map(|line| line.strip_prefix("//!"));
    let names = docs.flat_map(|line| line.split("[`").skip(1));
    names.map(|name| name.split_once("`]").unwrap().0.to_owned()).collect()
}

/// Returns the room that a file belongs to; `None` for the binary's own files.
fn room_of(file: &Path) -> Option<String> {
    let place = file.strip_prefix(root().join("src")).unwrap();
    let first = Path::new(place.components().next().unwrap().as_os_str());
    let name = first.file_stem().unwrap().to_str().unwrap().to_owned();
    rooms().contains(&name).then_some(name)
}

/// Returns the rooms that a text names after `crate::`, in lists too.
fn used_by(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    code.split("crate::").skip(1).flat_map(first_segments).collect()
}

/// Returns the first segment of a path, or of each path in a list.
fn first_segments(path: &str) -> Vec<String> {
    let segment = |text: &str| -> String {
        text.trim_start().chars().take_while(|char| char.is_alphanumeric() || *char == '_').collect()
    };
    let Some(list) = path.strip_prefix('{') else { return vec![segment(path)] };
    let mut segments = vec![segment(list)];
    let mut depth = 1;
    for (at, char) in list.char_indices() {
        match char {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => segments.push(segment(&list[at + 1..])),
            _ => {}
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

#[test]
fn every_room_has_its_place_in_the_order() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let modules: BTreeSet<_> =
        text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let order = rooms();
    assert_eq!(order.iter().map(String::as_str).collect::<BTreeSet<_>>(), modules);
    assert_eq!(order.len(), modules.len(), "{order:?}");
    assert_eq!((order.first().unwrap().as_str(), order.last().unwrap().as_str()), ("app", "config"));
}

#[test]
fn a_room_uses_only_rooms_below_it() {
    let order = rooms();
    let place = |room: &String| order.iter().position(|other| other == room);
    let mut wrong = Vec::new();
    for file in sources("src") {
        let Some(room) = room_of(&file) else { continue };
        for used in used_by(&fs::read_to_string(&file).unwrap()) {
            if place(&used) < place(&room) {
                wrong.push(format!("{} uses {used}", file.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "a room stands above those that it uses, in the order {order:?}: {wrong:#?}");
}

#[test]
fn the_check_finds_uses_in_paths_lists_and_expressions() {
    let text = "use crate::wire::{Message, Version};\n// crate::nothing\nuse crate::{\n    config::{self, Auth},\n    \
        observe::{Observer, events},\n    task,\n};\nfn f() { crate::limit::g() }";
    let used: Vec<_> = used_by(text).into_iter().collect();
    assert_eq!(used, ["config", "limit", "observe", "task", "wire"]);
}

/// A module by the names on the way to it from the top of the crate.
type Module = Vec<String>;

/// The modules of the crate: the code of each without comments and unit tests, and what each re-exports.
struct Modules {
    code: BTreeMap<Module, String>,
    /// The path behind each re-exported name.
    exports: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl Modules {
    fn read() -> Self {
        let mut modules = Self { code: BTreeMap::new(), exports: BTreeMap::new() };
        for file in sources("src") {
            let place = file.strip_prefix(root().join("src")).unwrap().with_extension("");
            let mut module: Module = place.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
            module.retain(|name| name != "mod" && name != "lib" && name != "main");
            let text = fs::read_to_string(&file).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            let code: Vec<_> = code.lines().map(|line| line.split("//").next().unwrap()).collect();
            modules.add(module, code.join("\n"));
        }
        modules
    }

    fn add(&mut self, module: Module, code: String) {
        self.exports.insert(module.clone(), exports_of(&code));
        self.code.insert(module, code);
    }

    /// Returns the module that `path` leads to from `from`, or that has what it names.
    fn find(&self, from: &Module, path: &[String]) -> Module {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let (mut module, path) = match path[0].as_str() {
            "crate" => (Module::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            _ => (from[..from.len() - supers].to_vec(), &path[supers..]),
        };
        for (at, name) in path.iter().enumerate() {
            module.push(name.clone());
            if self.code.contains_key(&module) {
                continue;
            }
            module.pop();
            let Some(exported) = self.exports.get(&module).and_then(|exports| exports.get(name)) else { break };
            let whole: Vec<_> = exported.iter().chain(&path[at + 1..]).cloned().collect();
            return self.find(&module, &whole);
        }
        module
    }

    /// Returns the pairs of files in one room that use each other. A file may use the folder that it stands in, which
    /// declares and re-exports it.
    fn circles(&self) -> Vec<String> {
        let paths =
            |code: &str| ["crate::", "super::"].iter().flat_map(|start| paths_from(code, start)).collect::<Vec<_>>();
        let used = |(module, code): (&Module, &String)| -> (Module, BTreeSet<Module>) {
            (module.clone(), paths(code).iter().map(|path| self.find(module, path)).collect())
        };
        let uses: BTreeMap<Module, BTreeSet<Module>> = self.code.iter().map(used).collect();
        let mut circles = Vec::new();
        for (module, used) in &uses {
            for other in used.iter().filter(|other| *other > module && other.first() == module.first()) {
                if !other.starts_with(module) && uses[other].contains(module) {
                    circles.push(format!("{} and {}", module.join("::"), other.join("::")));
                }
            }
        }
        circles
    }
}

/// The paths in `code` that begin with `start`, those in lists one by one.
fn paths_from(code: &str, start: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices(start) {
        if !code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_' || before == ':') {
            expand(&code[at..], Vec::new(), &mut paths);
        }
    }
    paths
}

/// The path behind each name that `code` re-exports.
fn exports_of(code: &str) -> BTreeMap<String, Vec<String>> {
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let Some((before, used)) = statement.split_once(" use ") else { continue };
        if before.rsplit('\n').next().unwrap().starts_with("pub") {
            expand(used, Vec::new(), &mut paths);
        }
    }
    paths.into_iter().filter_map(|path| Some((path.last()?.clone(), path))).collect()
}

/// Adds the paths at the beginning of `text`, behind `path`, and returns what follows them.
fn expand<'a>(mut text: &'a str, mut path: Vec<String>, paths: &mut Vec<Vec<String>>) -> &'a str {
    loop {
        if let Some(list) = text.strip_prefix('{') {
            let mut rest = list.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = expand(rest, path.clone(), paths).trim_start_matches(|char| char != ',' && char != '}');
                rest = rest.trim_start_matches(',').trim_start();
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        let end = text.find(|char: char| !char.is_alphanumeric() && char != '_').unwrap_or(text.len());
        if end > 0 && (&text[..end] != "self" || path.is_empty()) {
            path.push(text[..end].to_owned());
        }
        let Some(rest) = text[end..].strip_prefix("::") else {
            paths.push(path);
            return &text[end..];
        };
        text = rest;
    }
}

#[test]
fn no_two_files_of_a_room_use_each_other() {
    let circles = Modules::read().circles();
    assert!(circles.is_empty(), "move what both need into a file below them: {circles:#?}");
}

#[test]
fn files_that_use_each_other_are_found_by_path_by_list_and_by_re_export() {
    let mut modules = Modules { code: BTreeMap::new(), exports: BTreeMap::new() };
    for (module, code) in [
        ("room", "mod a;\npub mod b;\npub(crate) use self::{a::A, b::{B, C}};\nmod c;\nuse c::D;"),
        ("room::a", "use super::{c::D, b::B as Other};"),
        ("room::b", "fn b() { crate::room::A::new() }"),
        ("room::c", "use super::C; use crate::other::O;"),
        ("room::c::d", "use super::D; use crate::room::{self, A};"),
        ("other", "use crate::room::c;"),
    ] {
        modules.add(module.split("::").map(str::to_owned).collect(), code.to_owned());
    }
    assert_eq!(modules.circles(), ["room::a and room::b"]);
}

#[test]
fn no_file_has_more_than_400_lines() {
    let files = ["src", "tests", "benches"].into_iter().flat_map(sources);
    let lengths = files.map(|file| (fs::read_to_string(&file).unwrap().lines().count(), file));
    let long: Vec<_> = lengths.filter(|(lines, _)| *lines > MAX_LINES).collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines: {long:#?}");
}

/// Numbers in the order of a file would mean another upstream as soon as the file is edited.
#[test]
fn an_upstream_is_named_by_its_path_and_never_by_a_number() {
    let is_number = |line: &&str| {
        let code = line.split("//").next().unwrap().replace(char::is_whitespace, "");
        ["upstream:usize", "upstream:&usize", "upstreams["].iter().any(|number| code.contains(number))
    };
    let mut numbered = Vec::new();
    for file in sources("src") {
        let text = fs::read_to_string(&file).unwrap();
        // Tests may take the first upstream of a configuration.
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        numbered.extend(code.lines().filter(is_number).map(|line| format!("{}: {line}", file.display())));
    }
    assert!(numbered.is_empty(), "name an upstream by its UpstreamId, or keep its Arc: {numbered:#?}");
}

/// What a dialect writes and reads is its own: the engine has ids, owners, events and raw outcomes.
#[test]
fn the_engine_knows_no_wire_form() {
    let forms = ["jsonrpc", "\"tasks/", "notifications/", "_meta", "related", "legacy", "Members", "Edits", "Method::"];
    let mut known = Vec::new();
    for file in sources("src/task") {
        let text = fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(root().join("src/task")).unwrap().to_str().unwrap();
        // Tests stand for dialects.
        if ["tiny.rs", "faults.rs", "interleavings/sessions.rs"].contains(&name) {
            continue;
        }
        let code = text.lines().map(|line| line.split("//").next().unwrap());
        known.extend(
            code.filter(|line| forms.iter().any(|form| line.contains(form))).map(|line| format!("{name}: {line}")),
        );
    }
    assert!(known.is_empty(), "a wire form belongs to a dialect: {known:#?}");
}
