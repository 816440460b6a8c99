//! What a sealed file tells of the sessions in it.

use std::sync::Arc;

use super::{Disk, Folder, SavedSession, SessionWrites, closed, session};

#[tokio::test]
async fn a_sealed_file_does_not_tell_the_ids_of_sessions_which_open_them() {
    let folder = Folder::new();
    let ids = [uuid::Uuid::new_v4(), uuid::Uuid::new_v4()];
    let saved = |id, used_at| SavedSession { id, used_at, ..session(0) };
    let mut key = "a key of many characters";
    for round in 1..=2 {
        let disk =
            Disk::open(&folder.options(Some(key), &["a key of many characters"]), &Arc::default()).expect("whole").0;
        for id in ids {
            disk.put_session(saved(id, round), SessionWrites::default()).await.expect("room");
        }
        disk.touch_session(ids[1], 9 + round);
        disk.remove_session(ids[0]).tried().await.expect("there");
        closed(disk);
        for (path, bytes) in folder.files() {
            for id in ids {
                let text = id.to_string();
                let tells = [id.as_bytes().as_slice(), text.as_bytes()]
                    .iter()
                    .any(|id| memchr::memmem::find(&bytes, id).is_some());
                assert!(!tells, "{} has an id", path.display());
            }
        }
        // Under another key the rows are the same.
        key = "another key of many characters";
        let disk =
            Disk::open(&folder.options(Some(key), &["a key of many characters"]), &Arc::default()).expect("whole").0;
        assert_eq!(disk.load_sessions().await.expect("whole"), [saved(ids[1], 9 + round)]);
        closed(disk);
    }
}
