//! What stands beside the file and does not belong there.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    process::Command,
    sync::Arc,
};

use super::{Disk, Folder, closed, put};
use crate::disk::{Rescue, backup, beside::beside};

#[tokio::test]
async fn a_journal_beside_the_file_is_named_before_sqlite_takes_the_file_back_to_it() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..3).await;
    closed(disk);
    let journal = beside(&folder.path(), "-journal");
    // As that of a copy that was interrupted tells: the file was empty before.
    let hot = [&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7][..], &[0; 12], &512_u32.to_be_bytes()].concat();
    let hot = [hot, 4096_u32.to_be_bytes().to_vec(), vec![0; 484]].concat();
    fs::write(&journal, hot).expect("room");
    let (before, named) = (folder.files(), format!("\"{}\" stands beside it", journal.display()));
    let refused = folder.refused();
    assert!(
        refused.contains(&named) && refused.contains("move it away, and unless it is empty put a whole copy"),
        "{refused}"
    );
    let (link, copy) = (folder.0.path().join("link"), folder.0.path().join("copy"));
    symlink(folder.path(), &link).expect("room");
    for path in [folder.path(), link] {
        let read = Rescue::open(&path, &[]).map(drop).expect_err("SQLite would change it").to_string();
        assert!(read.contains(&named), "{read}");
        let copied = backup(&path, &copy).expect_err("SQLite would change it").to_string();
        assert!(copied.contains(&named) && !copy.exists(), "{copied}");
    }
    assert_eq!(folder.files(), before);
    fs::remove_file(journal).expect("there");
    assert_eq!(folder.open(None).load_sessions().await.expect("whole").len(), 3);
}

#[test]
fn a_first_start_makes_no_file_beside_a_journal() {
    let folder = Folder::new();
    fs::write(beside(&folder.path(), "-journal"), "text").expect("room");
    assert!(folder.refused().contains("store-journal\" stands beside it"));
    assert_eq!(fs::read_dir(folder.0.path()).expect("there").count(), 1, "nothing is made");
}

#[test]
fn what_is_no_regular_file_beside_the_file_is_named_and_nothing_waits_for_it() {
    for suffix in ["-wal", "-shm", "-mark"] {
        let (folder, copy) = (Folder::new(), Folder::new());
        closed(folder.open(None));
        let path = beside(&folder.path(), suffix);
        let named = format!("\"{}\" stands beside it and is not a regular file", path.display());
        for command in ["mkfifo", "mkdir"] {
            // It may be there or not.
            let _ = fs::remove_file(&path);
            assert!(Command::new(command).arg(&path).status().expect("it is installed").success());
            let read = Rescue::open(&folder.path(), &[]).map(drop).expect_err("it is in the way").to_string();
            let copied = backup(&folder.path(), &copy.path()).expect_err("it is in the way").to_string();
            let refused =
                Disk::open(&folder.options(None, &[]), &Arc::default()).expect_err("it is in the way").to_string();
            for said in [read, copied, refused] {
                assert!(said.contains(&named) && said.contains("move it away"), "{said}");
            }
        }
    }
}

#[tokio::test]
async fn what_may_not_be_written_beside_the_file_is_named_with_the_way_on() {
    for suffix in ["-wal", "-shm"] {
        let folder = Folder::new();
        closed(folder.open(None));
        let path = beside(&folder.path(), suffix);
        fs::write(&path, "")
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o444)))
            .expect("room");
        if fs::OpenOptions::new().write(true).open(&path).is_ok() {
            eprintln!("skipped: this user may write everything");
            return;
        }
        let refused = folder.refused();
        let named = format!("\"{}\" cannot be read and written: Permission denied", path.display());
        assert!(refused.contains(&named) && refused.contains("the user of taskgate has to"), "{refused}");
    }
}

#[tokio::test]
async fn a_file_that_others_may_read_is_for_its_user_alone_from_the_next_start_on() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..3).await;
    let left = Folder::new();
    folder.copy_to(&left);
    closed(disk);
    let of_store = ["", "-wal", "-shm", "-mark"].map(|suffix| beside(&left.path(), suffix));
    // The index is not copied, and gets the mode of the file.
    for path in of_store.iter().filter(|path| path.exists()) {
        fs::set_permissions(path, fs::Permissions::from_mode(0o664)).expect("ours");
    }
    let disk = left.open(None);
    for path in &of_store {
        let mode = fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(disk.load_sessions().await.expect("whole").len(), 3);
}
