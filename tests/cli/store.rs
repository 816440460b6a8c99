//! `taskgate store`, and a store that the command line names.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::{USAGE, kit::Binary};

/// Returns a folder with a copy of a fixture, and the path of the copy.
fn fixture(name: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("store.db");
    fs::copy(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name), &copy).unwrap();
    (folder, copy)
}

/// Writes a key into the folder, and returns its path.
fn path_of(folder: &tempfile::TempDir, key: &str) -> String {
    let path = folder.path().join("a key");
    fs::write(&path, key).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_whole_file_of_any_format_is_checked_exported_and_copied() {
    for name in ["store-format-1.db", "store-format-2.db", "store-format-3.db", "store-format-4.db"] {
        is_checked_exported_and_copied(name).await;
    }
}

async fn is_checked_exported_and_copied(name: &str) {
    let (folder, file) = fixture(name);
    let (file, copy) = (file.to_str().unwrap(), folder.path().join("copy.db"));
    let copy = copy.to_str().unwrap();
    let copied = Binary::run(&["store", "backup", file, copy], &[]).await;
    assert_eq!((copied.code, copied.stderr), (Some(0), String::new()));
    for path in [file, copy] {
        let checked = Binary::run(&["store", "check", path], &[]).await;
        let said = format!("{path}: 5 tasks, 2 results, 0 damaged places\n");
        assert_eq!((checked.code, checked.stdout, checked.stderr), (Some(0), said, String::new()));
    }
    let exported = Binary::run(&["store", "export", file], &[]).await;
    assert_eq!((exported.code, exported.stdout.lines().count()), (Some(0), 5), "{}", exported.stderr);
    let first = concat!(
        r#"{"task":{"id":"00000000-0000-0000-0000-000000000001","owner":{"principal":{"upstream":"/mcp","name":"ann"}},"#,
        r#""tool":"tool","state":"result","status_message":null,"created_at":1000,"last_updated_at":2000,"#,
    );
    let line = exported.stdout.lines().next().unwrap();
    assert!(line.starts_with(first) && line.ends_with(r#""result":{"content":[]}}"#), "{line}");
    let again = Binary::run(&["store", "backup", file, copy], &[]).await;
    let said = format!("taskgate: no copy was made at \"{copy}\": it exists, and nothing is overwritten\n");
    assert_eq!((again.code, again.stderr), (Some(1), said));
}

#[tokio::test]
async fn a_sealed_file_needs_its_key_and_a_damaged_one_is_named() {
    let (folder, file) = fixture("store-format-1-sealed.db");
    let (path, key) = (file.to_str().unwrap(), folder.path().join("key"));
    let refused = Binary::run(&["store", "check", path], &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("it is sealed; name the file"), "{}", refused.stderr);
    let wrong = Binary::run(&["store", "export", path, "--key-file", path_of(&folder, "other").as_str()], &[]).await;
    assert!(wrong.code == Some(1) && wrong.stderr.contains("none of the keys that --key-file"), "{}", wrong.stderr);
    fs::write(&key, "a key of tests, which everyone may know\n").unwrap();
    let arguments = ["store", "check", path, "--key-file", key.to_str().unwrap()];
    assert_eq!(Binary::run(&arguments, &[]).await.code, Some(0));
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4096].fill(0);
    fs::write(&file, bytes).unwrap();
    let damaged = Binary::run(&arguments, &[]).await;
    assert!(damaged.code == Some(1) && !damaged.stderr.is_empty(), "{}", damaged.stdout);
}

#[tokio::test]
async fn a_file_that_is_no_store_is_named_before_anything_listens() {
    let (_folder, file) = fixture("store-format-1.db");
    fs::write(&file, "text").unwrap();
    let arguments = ["serve", "--upstream", "http://127.0.0.1:9/mcp", "--listen", "127.0.0.1:0", "--store"];
    let ended = Binary::run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), &[]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("does not begin as a store of taskgate does"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("listening"), "{}", ended.stderr);
    assert_eq!(Binary::run(&["store"], &[]).await.code, USAGE);
}

#[tokio::test]
async fn a_command_line_gets_advice_that_helps_on_a_command_line() {
    let (folder, file) = fixture("store-format-4.db");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (text, database, file) = (path("text"), path("database"), file.to_str().unwrap());
    fs::write(&text, "text").unwrap();
    rusqlite::Connection::open(&database).unwrap().execute("CREATE TABLE others (id)", ()).unwrap();
    for other in ["/dev/zero", &text, &database, &path("text/store.db")] {
        for command in [&["check", other][..], &["export", other], &["backup", other, &path("copy")]] {
            let ended = Binary::run(&[&["store"], command].concat(), &[]).await;
            assert_eq!(ended.code, Some(1));
            assert!(!ended.stderr.contains("store.path"), "{}", ended.stderr);
            assert!(
                other.ends_with("store.db") || ended.stderr.contains("name the file of a store"),
                "{}",
                ended.stderr
            );
        }
    }
    for target in [path("nowhere/copy"), path("text/copy")] {
        let ended = Binary::run(&["store", "backup", file, &target], &[]).await;
        assert!(ended.code == Some(1) && ended.stderr.contains("name a TARGET in a folder"), "{}", ended.stderr);
    }
}

#[tokio::test]
async fn a_session_that_is_damaged_ends_the_start_with_the_way_on() {
    let (_folder, file) = fixture("store-format-1.db");
    let store = rusqlite::Connection::open(&file).unwrap();
    let flip = "UPDATE sessions SET value = CAST(value || x'00' AS BLOB)";
    assert!(store.execute(flip, ()).unwrap() > 0);
    store.close().unwrap();
    let arguments = ["serve", "--upstream", "http://127.0.0.1:9/mcp", "--listen", "127.0.0.1:0", "--store"];
    let ended = Binary::run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), &[]).await;
    let said = &ended.stderr;
    assert!(ended.code == Some(1) && said.contains("cannot be used: a value is not what was written"), "{said}");
    assert!(said.contains("taskgate store check") && said.contains("taskgate store export"), "{said}");
    let checked = Binary::run(&["store", "check", file.to_str().unwrap()], &[]).await;
    assert!(checked.code == Some(1) && checked.stderr.contains("of the table sessions"), "{}", checked.stderr);
}

#[tokio::test]
async fn a_key_file_that_is_a_pipe_is_refused_at_once() {
    let (folder, file) = fixture("store-format-4-sealed.db");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for command in ["check", "export"] {
        let ended = Binary::run(&["store", command, file.to_str().unwrap(), "--key-file", pipe], &[]).await;
        let said = format!("taskgate: the key in \"{pipe}\" cannot be read: it is not a file\n");
        assert_eq!((ended.code, ended.stderr), (Some(1), said));
    }
}

#[tokio::test]
async fn a_start_warns_once_of_the_files_that_others_could_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, file) = fixture("store-format-4-sealed.db");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let arguments = ["serve", "--upstream", "http://127.0.0.1:9/mcp", "--listen", "127.0.0.1:0", "--store"];
    // It ends as it has no key.
    for warnings in [1, 0] {
        let ended = Binary::run(&[&arguments[..], &[file.to_str().unwrap()]].concat(), &[]).await;
        let warning =
            ended.stderr.lines().filter(|line| line.contains("WARN") && line.contains("other users could read"));
        assert_eq!(warning.clone().count(), warnings, "{}", ended.stderr);
        assert!(warning.into_iter().all(|line| line.contains(file.to_str().unwrap())), "{}", ended.stderr);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[tokio::test]
async fn a_check_of_a_newer_format_says_so_and_counts_no_damage() {
    let (_folder, file) = fixture("store-format-4.db");
    let newer = rusqlite::Connection::open(&file).unwrap();
    newer.pragma_update(None, "user_version", 5).unwrap();
    newer.close().unwrap();
    let file = file.to_str().unwrap();
    let why = "it has format 5, and this taskgate knows format 4; use the taskgate that wrote it, or a newer one";
    let checked = Binary::run(&["store", "check", file], &[]).await;
    let said = format!("taskgate: the store \"{file}\" cannot be used: {why}\n");
    assert_eq!((checked.code, checked.stdout, checked.stderr), (Some(1), String::new(), said));
    let exported = Binary::run(&["store", "export", file], &[]).await;
    assert_eq!((exported.code, exported.stdout.lines().count(), exported.stderr), (Some(1), 5, format!("{why}\n")));
}

#[tokio::test]
async fn a_report_that_could_not_be_written_ends_with_1_and_says_so() {
    let (_folder, file) = fixture("store-format-4.db");
    for command in ["check", "export"] {
        let runner = ["sh", "-c", "exec \"$@\" > /dev/full", "sh"];
        let ended = Binary::start_by(&runner, &["store", command, file.to_str().unwrap()], &[]).end().await;
        assert!(ended.code == Some(1) && ended.stderr.contains("written to stdout: No space left"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_copy_that_sqlite_has_made_is_no_damage_and_store_backup_makes_one_that_a_start_takes() {
    let (folder, file) = fixture("store-format-4.db");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (copy, usable) = (path("copy.db"), path("usable.db"));
    rusqlite::Connection::open(&file).unwrap().execute("VACUUM INTO ?1", [&copy]).unwrap();
    let serve = ["serve", "--upstream", "http://127.0.0.1:9/mcp", "--listen", "127.0.0.1:0", "--store"];
    let refused = Binary::run(&[&serve[..], &[copy.as_str()]].concat(), &[]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("taskgate store backup FILE NEW"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("damaged"), "{}", refused.stderr);
    let checked = Binary::run(&["store", "check", &copy], &[]).await;
    assert_eq!(checked.code, Some(1));
    assert_eq!(checked.stdout, format!("{copy}: 5 tasks, 2 results, 0 damaged places\n"));
    assert!(checked.stderr.contains("taskgate store backup FILE NEW"), "{}", checked.stderr);
    assert_eq!(checked.stderr.lines().count(), 1);
    assert_eq!(Binary::run(&["store", "backup", &copy, &usable], &[]).await.code, Some(0));
    assert_eq!(Binary::run(&["store", "check", &usable], &[]).await.code, Some(0));
    let taskgate = Binary::start(&[&serve[..], &[usable.as_str()]].concat(), &[]);
    taskgate.url().await;
}

#[test]
fn a_copy_gets_a_name_that_sqlite_would_read_as_a_uri_and_is_private() {
    let (folder, file) = fixture("store-format-4.db");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_taskgate"));
    command.args(["store", "backup"]).arg(file).arg("file:copy.db").current_dir(folder.path());
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let copy = folder.path().join("file:copy.db");
    assert!(fs::read(&copy).unwrap().starts_with(b"SQLite format 3"));
    assert_eq!(fs::metadata(copy).unwrap().permissions().mode() & 0o777, 0o600);
}
