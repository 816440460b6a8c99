//! A copy of the file is whole or has no name, and nothing of anybody else is overwritten for it.

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _, thread};

use rusqlite::Connection;

use super::{Folder, closed};
use crate::disk::{backup, beside::beside};

#[tokio::test]
async fn a_copy_gets_its_name_once_it_is_whole_and_leaves_nothing_else() {
    let (folder, saved) = (Folder::new(), Folder::new());
    let disk = folder.open(None);
    let fill = |connection: &Connection| {
        (0..300)
            .try_for_each(|id| connection.execute("INSERT INTO chunks VALUES (?1, zeroblob(100000))", [id]).map(drop))
    };
    disk.write(fill).await.expect("room");
    let (file, copy) = (folder.path(), saved.path());
    let copying = thread::spawn(move || backup(&file, &copy));
    let mut lengths = BTreeSet::new();
    while !copying.is_finished() {
        lengths.extend(fs::metadata(saved.path()).map(|copy| copy.len()));
    }
    copying.join().expect("no panic").expect("room");
    let whole = fs::metadata(saved.path()).expect("there");
    assert!(lengths.iter().all(|length| *length == whole.len()), "{lengths:?}");
    assert_eq!(whole.permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(saved.0.path()).expect("there").count(), 1);
    closed(saved.open(None));
}

#[test]
fn what_stands_at_a_name_that_a_copy_needs_stays_and_is_named() {
    let folder = Folder::new();
    closed(folder.open(None));
    for suffix in [".partial", ".partial-journal", ".partial-wal", "-journal", "-wal", "-shm", "-mark"] {
        let saved = Folder::new();
        let left = beside(&saved.path(), suffix);
        fs::write(&left, "of another").expect("room");
        let refused = backup(&folder.path(), &saved.path()).expect_err("it would be in the way").to_string();
        let said = format!("was not copied to \"{}\": \"{}\"", saved.path().display(), left.display());
        assert!(
            refused.contains(&said) && refused.contains("it if none runs") | refused.contains("move it away"),
            "{refused}"
        );
        assert_eq!(fs::read(left).expect("there"), b"of another");
        assert_eq!(fs::read_dir(saved.0.path()).expect("there").count(), 1);
    }
}
