//! What a first start leaves where it cannot make the file, and the names that a file may have.

use std::fs;

use super::{Folder, closed};
use crate::disk::beside::beside;

#[test]
fn a_first_start_that_fails_leaves_nothing_that_it_has_made() {
    for in_the_way in ["-new", "-new-journal"] {
        let folder = Folder::new();
        let path = beside(&folder.path(), in_the_way);
        // A folder with something in it cannot be replaced by a file, nor be removed as one.
        fs::create_dir(&path).and_then(|()| fs::write(path.join("file"), "text")).expect("room");
        assert!(folder.refused().contains("it cannot be created"));
        let left: Vec<_> =
            fs::read_dir(folder.0.path()).expect("there").map(|file| file.expect("read").path()).collect();
        assert_eq!(left, std::slice::from_ref(&path));
        fs::remove_dir_all(path).expect("there");
        closed(folder.open(None));
    }
}

#[test]
fn a_file_with_a_further_name_is_refused_under_each_of_them_until_there_is_one_name() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let other = Folder::new();
    let named = fs::hard_link(folder.path(), other.path());
    named.expect("both folders are on one disk");
    assert!(other.refused().contains("it has 2 names (hard links)"), "its first name is in use");
    closed(disk);
    for name in [&folder, &other] {
        assert!(name.refused().contains("it has 2 names (hard links)"));
    }
    assert_eq!(fs::read_dir(other.0.path()).expect("there").count(), 1, "nothing is made beside it");
    fs::remove_file(other.path()).expect("there");
    closed(folder.open(None));
}
