//! The free pages of a file and its pointer map: SQLite would write over pages in use that a damaged list names, and
//! free pages of others that a damaged map has a row go on in.

use std::{fs, path::Path};

use super::{Folder, closed, put};
use crate::disk::backup;

/// The bytes of a page.
const PAGE: usize = 4096;

/// Returns a file in which this was done to the pieces of results.
async fn with_chunks(sql: &'static str) -> Folder {
    let folder = Folder::new();
    let disk = folder.open(None);
    disk.write(|connection| connection.execute_batch(sql)).await.expect("room");
    closed(disk);
    folder
}

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
    let insert = "WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n WHERE id < 40) \
                  INSERT INTO chunks SELECT id, zeroblob(200000) FROM n";
    let folder = with_chunks(insert).await;
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
const REST: u8 = 3;
const FURTHER_REST: u8 = 4;

/// Returns where the entry of a page of the pointer map stands, unless it is one of the map itself.
fn entry(page: usize) -> Option<usize> {
    let map = (page - 2) / 820 * 820 + 2;
    (page > map).then(|| at(map) + 5 * (page - map - 1))
}

/// Returns what the rows of the chunks are made of, as SQLite alone reads them.
fn chunks(path: &Path) -> Vec<(i64, Vec<u8>)> {
    let connection = rusqlite::Connection::open(path).expect("there");
    let mut all = connection.prepare("SELECT id, data FROM chunks ORDER BY id").expect("a table");
    let rows = all.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).expect("readable");
    rows.collect::<Result<_, _>>().expect("readable")
}

#[tokio::test]
async fn a_pointer_map_that_has_a_row_go_on_in_a_page_of_another_one_is_found_before_a_removal_frees_that() {
    // Rows with one further page each, of which every second one makes room, first for one large row and then for another.
    let interleave = "WITH RECURSIVE n (id) AS (VALUES (0) UNION ALL SELECT id + 1 FROM n WHERE id < 80) \
                      INSERT INTO chunks SELECT id, zeroblob(4500) FROM n; \
                      DELETE FROM chunks WHERE id % 2 = 0; INSERT INTO chunks VALUES (100, zeroblob(150000)); \
                      DELETE FROM chunks WHERE id < 100; INSERT INTO chunks VALUES (101, zeroblob(150000))";
    let (folder, removed, saved) = (with_chunks(interleave).await, Folder::new(), Folder::new());
    let whole = fs::read(folder.path()).expect("there");
    let kind = |page: usize| entry(page).map(|at| whole[at]);
    let mut tried = 0;
    for page in 4..=whole.len() / PAGE {
        let (before, next) = (page - 1, number(&whole, at(page - 1)));
        let goes_on = [Some(REST), Some(FURTHER_REST)].contains(&kind(before)) && next != 0;
        let Some(place) = entry(page).filter(|at| whole[*at] == FURTHER_REST && goes_on && next != page) else {
            continue;
        };
        let before = u32::try_from(before).expect("small").to_be_bytes();
        folder.change("", |bytes| bytes[place + 1..place + 5].copy_from_slice(&before));
        let refused = folder.refused();
        assert!(refused.contains("it is damaged: its pointer map is wrong about page"), "{page}: {refused}");
        tried += 1;
        if tried == 1 {
            // What a removal by SQLite would do.
            folder.copy_to(&removed);
            let connection = rusqlite::Connection::open(removed.path()).expect("there");
            let one = "DELETE FROM chunks WHERE id = (SELECT min(id) FROM chunks)";
            let other = "DELETE FROM chunks WHERE id = (SELECT max(id) FROM chunks)";
            let harm = [one, other].map(|delete| {
                connection.execute_batch(&format!("BEGIN; {delete}")).expect("it sees nothing");
                let found: String =
                    connection.query_row("PRAGMA integrity_check", (), |row| row.get(0)).expect("readable");
                connection.execute_batch("ROLLBACK").expect("it can");
                found
            });
            assert!(harm.iter().any(|found| found.contains("2nd reference to page")), "{harm:?}");
            // And the way on.
            assert!(refused.contains("`taskgate store backup FILE NEW` makes a copy"), "{refused}");
            backup(&folder.path(), &saved.path()).expect("all rows can be read");
            closed(saved.open(None));
            assert!(chunks(&saved.path()) == chunks(&folder.path()) && chunks(&saved.path()).len() == 2);
        }
        fs::write(folder.path(), &whole).expect("room");
    }
    assert!(tried > 20, "{tried} pages stand behind one of another row");
    closed(folder.open(None));
}

#[tokio::test]
async fn entries_of_the_pointer_map_that_fit_nothing_are_found_on_each_of_its_pages() {
    let insert = "WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n WHERE id < 40) \
                  INSERT INTO chunks SELECT id, zeroblob(100000) FROM n";
    let folder = with_chunks(insert).await;
    let whole = fs::read(folder.path()).expect("there");
    let pages = whole.len() / PAGE;
    assert!(pages > 900, "{pages} pages, of which 819 stand in the first page of the map");
    // A kind that there is not, a page that is not in the file, and one that is free and in no list.
    let wrong = "its pointer map is wrong about page";
    let damages: [fn(&mut [u8]); 4] = [
        |entry| entry[0] = 0,
        |entry| entry[0] = 6,
        |entry| entry[1] ^= 0x80,
        |entry| entry.copy_from_slice(&[2, 0, 0, 0, 0]),
    ];
    let said = [wrong, wrong, wrong, "is free, and not in the list of free pages"];
    for place in (3..pages).step_by(41).filter_map(entry) {
        for (damage, said) in damages.into_iter().zip(said) {
            folder.change("", |bytes| damage(&mut bytes[place..place + 5]));
            let refused = folder.refused();
            assert!(refused.contains(said), "{place}: {refused}");
            fs::write(folder.path(), &whole).expect("room");
        }
        // What leads to a page of a row has to be a page of one, and to a page of a tree one of a tree.
        folder.change("", |bytes| {
            let leads = if bytes[place] == FURTHER_REST { 1_u32 } else { 2 };
            bytes[place + 1..place + 5].copy_from_slice(&leads.to_be_bytes());
        });
        if whole[place] >= REST {
            assert!(folder.refused().contains(wrong), "{place}");
        }
        fs::write(folder.path(), &whole).expect("room");
    }
    closed(folder.open(None));
}
