//! The free pages of a file and its pointer map: SQLite would write over pages in use that a damaged list names, and
//! free pages of others that a damaged map has a row go on in.

use std::fs;

use super::{Folder, closed, put};

/// The bytes of a page.
const PAGE: usize = 4096;

/// Returns a file with free pages, as it is while it is open and after it was closed.
async fn with_free_pages() -> (Folder, Folder) {
    let (folder, in_use) = (Folder::new(), Folder::new());
    let disk = folder.open(None);
    let insert = "INSERT INTO chunks SELECT column1, zeroblob(200000) FROM (VALUES (1), (2), (3))";
    disk.write(|connection| connection.execute(insert, ())).await.expect("room");
    put(&disk, 0..5).await;
    disk.write(|connection| connection.execute("DELETE FROM chunks WHERE id < 3", ())).await.expect("room");
    folder.copy_to(&in_use);
    closed(disk);
    (folder, in_use)
}

fn number(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    usize::try_from(u32::from_be_bytes(bytes)).expect("small")
}

/// Returns where a page begins.
fn at(page: usize) -> usize {
    (page - 1) * PAGE
}

#[tokio::test]
async fn each_flipped_bit_of_the_list_of_free_pages_is_found_before_a_page_in_use_is_written_over() {
    let (folder, _) = with_free_pages().await;
    let whole = fs::read(folder.path()).expect("there");
    let (trunk, count) = (number(&whole, 32), number(&whole, 36));
    let leaves = number(&whole, at(trunk) + 4);
    assert!(leaves > 50 && count > 90 && PAGE / 5 > count, "{leaves} leaves, {count} free pages");
    // Where the list begins, how many pages it has, and what the first page of it says of the next one and of the
    // others.
    let list = [32, 36].into_iter().chain((0..leaves + 2).map(|entry| at(trunk) + 4 * entry));
    // The pointer map is page 2, and begins with page 3.
    let map = (0..leaves).map(|leaf| at(2) + 5 * (number(&whole, at(trunk) + 8 + 4 * leaf) - 3));
    for (turn, place) in list.chain(map).enumerate() {
        let bit = turn % 32;
        for bit in [bit, 31 - bit, 24, 25] {
            folder.change("", |bytes| bytes[place + bit / 8] ^= 1 << (bit % 8));
            let refused = folder.refused();
            assert!(refused.contains("it is damaged") && refused.contains("free pages"), "{place}, {bit}: {refused}");
            fs::write(folder.path(), &whole).expect("room");
        }
    }
    closed(folder.open(None));
}

#[tokio::test]
async fn free_pages_are_read_as_the_log_has_them() {
    let (_, in_use) = with_free_pages().await;
    let log = in_use.files().into_iter().find(|(path, _)| path.ends_with("store-wal")).expect("a log").1;
    assert!(log.len() > 100 * PAGE, "the log has pages that the file has not");
    let disk = in_use.open(None);
    assert_eq!(disk.load_sessions().await.expect("whole").len(), 5);
    closed(disk);
    // And when the file has them.
    closed(in_use.open(None));
}

#[tokio::test]
async fn a_list_of_more_pages_than_one_tells_of_is_followed_to_its_end() {
    let folder = Folder::new();
    let disk = folder.open(None);
    let insert = "WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n WHERE id < 40) \
                  INSERT INTO chunks SELECT id, zeroblob(200000) FROM n";
    disk.write(|connection| connection.execute(insert, ())).await.expect("room");
    closed(disk);
    // By a connection that gives no space back.
    let connection = rusqlite::Connection::open(folder.path()).expect("there");
    connection.execute("DELETE FROM chunks", ()).expect("room");
    drop(connection);
    let bytes = fs::read(folder.path()).expect("there");
    let (trunk, count) = (number(&bytes, 32), number(&bytes, 36));
    assert!(count > 1900 && number(&bytes, at(trunk)) != 0, "{count} free pages");
    closed(folder.open(None));
}

/// What the pointer map says of the first page in which a row goes on, and of each further one.
const FIRST: u8 = 3;
const FURTHER: u8 = 4;

#[tokio::test]
async fn a_pointer_map_that_has_a_row_go_on_in_a_page_of_another_one_is_found_before_a_removal_frees_that() {
    let folder = Folder::new();
    let disk = folder.open(None);
    // Rows with one further page each, of which every second one makes room, first for one large row and then for another.
    let interleave = "WITH RECURSIVE n (id) AS (VALUES (0) UNION ALL SELECT id + 1 FROM n WHERE id < 80) \
                      INSERT INTO chunks SELECT id, zeroblob(4500) FROM n; \
                      DELETE FROM chunks WHERE id % 2 = 0; INSERT INTO chunks VALUES (100, zeroblob(150000)); \
                      DELETE FROM chunks WHERE id < 100; INSERT INTO chunks VALUES (101, zeroblob(150000))";
    disk.write(|connection| connection.execute_batch(interleave)).await.expect("room");
    closed(disk);
    let whole = fs::read(folder.path()).expect("there");
    let entry = |page: usize| at(2) + 5 * (page - 3);
    let goes_on = |page: usize| [FIRST, FURTHER].contains(&whole[entry(page)]);
    let mut tried = 0;
    for page in 4..=whole.len() / PAGE {
        let (before, next) = (page - 1, number(&whole, at(page - 1)));
        if whole[entry(page)] != FURTHER || !goes_on(before) || next == 0 || next == page {
            continue;
        }
        folder.change("", |bytes| {
            let before = u32::try_from(before).expect("small");
            bytes[entry(page) + 1..entry(page) + 5].copy_from_slice(&before.to_be_bytes());
        });
        let refused = folder.refused();
        assert!(
            refused.contains("it is damaged") && refused.contains("goes on in two pages by the pointer map"),
            "{page}: {refused}"
        );
        fs::write(folder.path(), &whole).expect("room");
        tried += 1;
    }
    assert!(tried > 20, "{tried} pages stand behind one of another row");
    closed(folder.open(None));
}
