//! What opening a file finds, and that it changes nothing where it refuses.

mod batches;
mod companions;
mod copies;
mod damaged;
mod first_start;
mod full;
mod ids;
mod page_map;

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use super::{Disk, OpenOptions, Rescue, SavedSession, SessionWrites, backup, beside::beside, schema};

const MAX_BYTES: u64 = 64 << 20;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("store")
    }

    fn options(&self, key: Option<&str>, old: &[&str]) -> OpenOptions {
        let old_keys = old.iter().map(|&key| key.to_owned()).collect();
        OpenOptions { path: self.path(), key: key.map(str::to_owned), old_keys, max_bytes: MAX_BYTES }
    }

    fn open(&self, key: Option<&str>) -> Disk {
        Disk::open(&self.options(key, &[]), &Arc::default()).expect("a whole file").0
    }

    /// Returns why the file cannot be opened, once it is sure that this changed nothing of it.
    fn refused_with(&self, key: Option<&str>) -> String {
        let before = self.files();
        let refused = Disk::open(&self.options(key, &[]), &Arc::default()).expect_err("it cannot be used").to_string();
        assert!(refused.contains(&self.path().display().to_string()), "it names the file: {refused}");
        let after = self.files();
        for (path, bytes) in &before {
            assert!(after.iter().any(|(name, now)| name == path && now == bytes), "{} has changed", path.display());
        }
        refused
    }

    fn refused(&self) -> String {
        self.refused_with(None)
    }

    /// Returns the files that have tasks, with what is in them.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = ["", "-wal", "-mark"].map(|suffix| beside(&self.path(), suffix));
        paths.into_iter().filter_map(|path| Some((path.clone(), fs::read(path).ok()?))).collect()
    }

    /// Copies what an end of the process would leave.
    fn copy_to(&self, other: &Self) {
        for (path, bytes) in self.files() {
            fs::write(other.0.path().join(path.file_name().expect("a name")), bytes).expect("room");
        }
    }

    fn change(&self, suffix: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = beside(&self.path(), suffix);
        let mut bytes = fs::read(&path).expect("a file");
        change(&mut bytes);
        fs::write(path, bytes).expect("room");
    }
}

fn session(number: u128) -> SavedSession {
    let value = format!("session {number}").into_bytes().into();
    SavedSession { id: uuid::Uuid::from_u128(number), used_at: 7, value }
}

async fn put(disk: &Disk, numbers: std::ops::Range<u128>) {
    for number in numbers {
        disk.put_session(session(number), SessionWrites::default()).await.expect("room");
    }
}

fn closed(disk: Disk) {
    assert!(disk.close(), "the disk takes everything");
    drop(disk);
}

#[tokio::test]
async fn what_was_written_is_there_the_next_time_and_keys_stay_the_same() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..3).await;
    disk.remove_session(session(1).id).tried().await.expect("there");
    disk.touch_session(session(2).id, 9);
    let key = disk.key("cursors").await.expect("room");
    closed(disk);
    let disk = folder.open(None);
    let touched = SavedSession { used_at: 9, ..session(2) };
    assert_eq!(disk.load_sessions().await.expect("whole"), [session(0), touched]);
    assert_eq!(disk.key("cursors").await.expect("there"), key);
    assert_ne!(disk.key("names").await.expect("room"), key);
}

#[tokio::test]
async fn a_file_and_the_folder_that_is_made_for_it_are_for_their_user_alone() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = parent.path().join("made/store");
    let options = OpenOptions { path: path.clone(), key: None, old_keys: Vec::new(), max_bytes: MAX_BYTES };
    let (disk, opened) = Disk::open(&options, &Arc::default()).expect("new");
    assert!(opened.is_new);
    put(&disk, 0..1).await;
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().expect("a folder")), 0o700);
    for suffix in ["", "-wal", "-shm", "-mark"] {
        assert_eq!(mode(&beside(&path, suffix)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn a_file_in_use_by_another_process_is_refused() {
    let folder = Folder::new();
    let disk = folder.open(None);
    assert!(folder.refused().contains("another process has it open"));
    closed(disk);
    // The lock goes with what holds it.
    folder.open(None);
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = Folder::new();
    fs::write(folder.path(), "a letter to a friend").expect("room");
    assert!(folder.refused().contains("does not begin as a store of taskgate does"));
    fs::write(folder.path(), "").expect("room");
    assert!(folder.refused().contains("its beginning is empty"));
    fs::remove_file(folder.path()).expect("there");
    let other = rusqlite::Connection::open(folder.path()).expect("room");
    other.execute_batch("CREATE TABLE letters (text)").expect("room");
    drop(other);
    assert!(folder.refused().contains("a database of another program"));
    fs::remove_file(folder.path()).expect("there");
    fs::create_dir(folder.path()).expect("room");
    assert!(folder.refused().contains("not a file") || folder.refused().contains("Is a directory"));
}

#[test]
fn a_newer_format_is_refused() {
    let folder = Folder::new();
    closed(folder.open(None));
    let newer = rusqlite::Connection::open(folder.path()).expect("there");
    newer.pragma_update(None, "user_version", schema::FORMAT + 1).expect("room");
    drop(newer);
    assert!(folder.refused().contains("it has format 5, and this taskgate knows format 4"));
    let rescue = Rescue::open(&folder.path(), &[]).expect("readable");
    assert!(rescue.damages[0].contains("it has format 5"), "{:?}", rescue.damages);
}

#[tokio::test]
async fn a_file_that_can_only_be_read_is_refused_before_anything_is_written() {
    let folder = Folder::new();
    closed(folder.open(None));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o400)).expect("ours");
    if fs::OpenOptions::new().write(true).open(folder.path()).is_ok() {
        eprintln!("skipped: this user may write everything");
        return;
    }
    let refused = folder.refused();
    assert!(refused.contains("it can only be read") && refused.contains("the user of taskgate"), "{refused}");
}

#[tokio::test]
async fn a_session_or_key_that_is_damaged_is_found_by_a_check() {
    let folder = Folder::new();
    let disk = folder.open(Some("key"));
    put(&disk, 0..2).await;
    disk.key("cursors").await.expect("room");
    for table in ["sessions", "keys"] {
        let flip = format!("UPDATE {table} SET value = CAST(value || x'00' AS BLOB)");
        disk.write(move |connection| connection.execute(&flip, ())).await.expect("room");
    }
    closed(disk);
    let mut found = Vec::new();
    Rescue::open(&folder.path(), &["key".to_owned()]).expect("readable").check(|what| found.push(what));
    let damaged = |table: &str| found.iter().filter(|what| what.contains(&format!("of the table {table}"))).count();
    assert_eq!((found.len(), damaged("keys"), damaged("sessions")), (3, 1, 2), "{found:?}");
}

#[tokio::test]
async fn a_file_that_is_gone_is_not_begun_anew_without_a_word() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..1).await;
    closed(disk);
    fs::remove_file(folder.path()).expect("there");
    let refused = folder.refused();
    assert!(refused.contains("the file is gone") && refused.contains("store-mark"), "{refused}");
}

#[tokio::test]
async fn a_sealed_file_is_opened_by_its_key_alone_and_an_open_one_by_none() {
    let folder = Folder::new();
    let disk = folder.open(Some("first"));
    put(&disk, 0..2).await;
    let key = disk.key("cursors").await.expect("room");
    closed(disk);
    assert!(!folder.files().iter().any(|(_, bytes)| bytes.windows(9).any(|window| window == b"session 1")));
    assert!(folder.refused().contains("it is sealed; set store.key"));
    assert!(folder.refused_with(Some("wrong")).contains("sealed by another key"));
    let rotated = Disk::open(&folder.options(Some("second"), &["other", "first"]), &Arc::default());
    let (disk, _) = rotated.expect("the old key is known");
    assert_eq!(disk.load_sessions().await.expect("whole").len(), 2);
    put(&disk, 2..3).await;
    closed(disk);
    assert!(folder.refused_with(Some("first")).contains("sealed by another key"));
    let disk = folder.open(Some("second"));
    let mut loaded = disk.load_sessions().await.expect("whole");
    loaded.sort_by_key(|session| session.id);
    assert_eq!(loaded, [session(0), session(1), session(2)]);
    assert_eq!(disk.key("cursors").await.expect("there"), key);

    let open = Folder::new();
    closed(open.open(None));
    assert!(open.refused_with(Some("first")).contains("it is not sealed"));
}

#[tokio::test]
async fn a_new_key_of_a_file_with_a_damaged_session_names_that_and_no_data_key() {
    let folder = Folder::new();
    let disk = folder.open(Some("first"));
    put(&disk, 0..1).await;
    let flip = |connection: &rusqlite::Connection| connection.execute("UPDATE sessions SET value = x'00'", ());
    assert_eq!(disk.write(flip).await, Ok(1));
    closed(disk);
    let refused = Disk::open(&folder.options(Some("second"), &["first"]), &Arc::default()).expect_err("it is damaged");
    let refused = refused.to_string();
    assert!(refused.contains("a value is not what was written") && !refused.contains("data key"), "{refused}");
}

#[tokio::test]
async fn every_damaged_page_of_the_tables_is_found_or_harmless() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..200).await;
    closed(disk);
    let whole = fs::read(folder.path()).expect("there");
    let damage = |from: usize, change: &dyn Fn(&mut [u8])| {
        let copy = Folder::new();
        let mut bytes = whole.clone();
        change(&mut bytes[from..]);
        fs::write(copy.path(), bytes).expect("room");
        match Disk::open(&copy.options(None, &[]), &Arc::default()) {
            Err(error) => assert!(error.to_string().contains("damaged") || from < 4096, "{error}"),
            Ok((disk, _)) => drop(disk),
        }
    };
    for page in (0..whole.len()).step_by(4096) {
        damage(page, &|bytes| bytes[..4096].fill(0));
        damage(page, &|bytes| bytes[..16].iter_mut().for_each(|byte| *byte ^= 0xff));
    }
    for length in [1, 99, 100, 4096, 8192, whole.len() / 2, whole.len() - 1] {
        let copy = Folder::new();
        fs::write(copy.path(), &whole[..length]).expect("room");
        let refused = copy.refused();
        assert!(refused.contains("damaged") || refused.contains("its beginning"), "{length}: {refused}");
    }
}

#[tokio::test]
async fn commits_behind_a_damaged_place_of_the_log_are_not_skipped_without_a_word() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..20).await;
    let left = Folder::new();
    folder.copy_to(&left);
    closed(disk);
    let log = fs::metadata(beside(&left.path(), "-wal")).expect("a log").len();
    let frames = usize::try_from((log - 32) / (24 + 4096)).expect("few");
    assert!(frames > 20, "{frames} frames");
    for with_mark in [true, false] {
        // Without the mark, as after a loss of power, the last commit may be torn, and only what stands before it is
        // sure.
        for frame in 0..frames - if with_mark { 0 } else { 3 } {
            let copy = Folder::new();
            left.copy_to(&copy);
            copy.change("-wal", |bytes| bytes[32 + frame * 4120 + 100] ^= 1);
            if !with_mark {
                fs::remove_file(beside(&copy.path(), "-mark")).expect("there");
            }
            let refused = copy.refused();
            assert!(refused.contains("damaged"), "frame {frame}: {refused}");
        }
    }
    let header = Folder::new();
    left.copy_to(&header);
    header.change("-wal", |bytes| bytes[17] ^= 1);
    assert!(header.refused().contains("the header of its log does not fit"));
    // What was not changed is whole.
    assert_eq!(left.open(None).load_sessions().await.expect("whole").len(), 20);
}

#[tokio::test]
async fn a_log_that_is_gone_or_cut_is_missed() {
    let folder = Folder::new();
    let disk = folder.open(None);
    put(&disk, 0..20).await;
    let (gone, cut, torn) = (Folder::new(), Folder::new(), Folder::new());
    for copy in [&gone, &cut, &torn] {
        folder.copy_to(copy);
    }
    closed(disk);
    fs::remove_file(beside(&gone.path(), "-wal")).expect("there");
    cut.change("-wal", |bytes| bytes.truncate(bytes.len() / 2));
    for copy in [&gone, &cut] {
        assert!(copy.refused().contains("commits are missing"));
        let rescue = Rescue::open(&copy.path(), &[]).expect("readable");
        assert!(rescue.damages.iter().any(|what| what.contains("commits are missing")), "{:?}", rescue.damages);
        let (saved, mut found) = (Folder::new(), Vec::new());
        rescue.check(|what| found.push(what));
        assert_eq!(found, rescue.damages, "nothing else is wrong");
        let refused = backup(&copy.path(), &saved.path()).expect_err("a copy would not show it").to_string();
        assert!(refused.contains("\": commits are missing") && !saved.path().exists(), "{refused}");
    }
    // A commit that was never told may be torn.
    torn.change("-wal", |bytes| {
        let frame = bytes[32..32 + 4120].to_vec();
        bytes.extend(&frame[..700]);
    });
    assert_eq!(torn.open(None).load_sessions().await.expect("whole").len(), 20);
}

#[tokio::test]
async fn a_copy_of_a_file_in_use_is_whole_and_sealed_as_it_is() {
    let (folder, saved) = (Folder::new(), Folder::new());
    let disk = folder.open(Some("key"));
    put(&disk, 0..5).await;
    backup(&folder.path(), &saved.path()).expect("room");
    put(&disk, 5..6).await;
    let again = backup(&folder.path(), &saved.path()).expect_err("a copy is not overwritten").to_string();
    assert!(again.contains("it exists, and nothing is overwritten"), "{again}");
    let copy = saved.open(Some("key"));
    assert_eq!(copy.load_sessions().await.expect("whole").len(), 5);
    put(&copy, 5..7).await;
}

#[tokio::test]
async fn space_is_given_back_in_steps_while_the_disk_is_idle() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let fill = |connection: &rusqlite::Connection| {
        (0..100)
            .try_for_each(|id| connection.execute("INSERT INTO chunks VALUES (?1, zeroblob(100000))", [id]).map(drop))
    };
    disk.write(fill).await.expect("room");
    let length = || fs::metadata(folder.path()).expect("there").len();
    // The log is brought into the file before the next batch.
    put(&disk, 0..1).await;
    assert!(length() > 10_000_000, "{} bytes", length());
    disk.write(|connection| connection.execute("DELETE FROM chunks WHERE id > 1", ())).await.expect("room");
    for _ in 0..300 {
        if length() < 5_500_000 {
            return;
        }
        // The file is what is waited for, and nothing tells of it.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the file has {} bytes", length());
}

#[tokio::test]
async fn numbers_in_the_state_that_no_process_has_written_are_damage() {
    for column in ["batch", "seen", "since_boot"] {
        let folder = Folder::new();
        closed(folder.open(None));
        let copy = Folder::new();
        backup(&folder.path(), &copy.path()).expect("room");
        let connection = rusqlite::Connection::open(copy.path()).expect("there");
        for change in [format!("{column} + 1"), "-1".to_owned()] {
            connection.execute(&format!("UPDATE state SET {column} = {change}"), ()).expect("room");
            assert!(copy.refused().contains("damaged"), "{column} = {change}");
        }
    }
    let folder = Folder::new();
    closed(folder.open(None));
    folder.change("", |bytes| bytes[36..40].fill(0x7f));
    assert!(folder.refused().contains("in the list of free pages, and its header tells of"));
}
