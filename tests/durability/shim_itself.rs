//! The shim and the disks that follow from its record do what the other tests rely on. Python stands for taskgate.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    process::{Command, Output},
    time::Instant,
};

use tempfile::TempDir;

use crate::{
    kit::shim::{CHANGES, Fault, GROW, SYNC, Shim, WRITE},
    loss::{Dice, Disk, Record, Unsynced},
};

/// Writes blocks of 1024 bytes, and goes on where one was written in part.
const WRITER: &str = "
import os, sys
path, byte, count, synced = sys.argv[1:]
fd = os.open(path, os.O_WRONLY | os.O_CREAT)
for _ in range(int(count)):
    written = os.write(fd, byte.encode() * 1024)
    if written < 1024: os.write(fd, byte.encode() * (1024 - written))
if synced == 'true': os.fsync(fd)
";

/// Lets Python write `count` blocks of 1024 bytes over the beginning of the store.
fn write(shim: &Shim, byte: char, count: usize, synced: bool) -> Output {
    let mut command = Command::new("python3");
    command.args(["-c", WRITER]).arg(shim.store());
    command.args([byte.to_string(), count.to_string(), synced.to_string()]).envs(shim.variables(true));
    command.output().unwrap()
}

/// Returns whether there are `length` of these bytes and no others.
fn all(image: Option<Vec<u8>>, byte: u8, length: usize) -> bool {
    image.is_some_and(|image| image.len() == length && image.iter().all(|found| *found == byte))
}

/// Returns what the store may hold after the last call.
fn image(shim: &Shim, unsynced: Unsynced, seed: u64) -> Option<Vec<u8>> {
    let record = Record::read(&shim.record());
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("image");
    record.replay(&BTreeSet::from([record.len()]), |_, disk: &Disk| {
        disk.write_image(&image, unsynced, &mut Dice::new(seed));
    });
    read(&image.join("tasks.db"))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    path.exists().then(|| fs::read(path).unwrap())
}

#[test]
fn calls_are_counted_and_recorded_in_their_order() {
    let shim = Shim::new();
    shim.count(WRITE);
    assert!(write(&shim, 'a', 3, true).status.success());
    assert_eq!(shim.counted(), 3);
    let record = Record::read(&shim.record());
    assert_eq!((record.len(), shim.calls()), (5, 5), "opened, written three times, synced");
    assert_eq!(record.syncs(), BTreeSet::from([4, 5]));
}

#[test]
fn the_call_that_is_named_fails_once_as_it_is_told() {
    let shim = Shim::new();
    for (kinds, first, fault, left, words) in [
        (WRITE, 2, Fault::Broken, 1024, "Input/output error"),
        (GROW, 3, Fault::Full, 2048, "No space left"),
        (SYNC, 1, Fault::Broken, 3072, "Input/output error"),
        (CHANGES, 4, Fault::Full, 3072, "No space left"),
    ] {
        let _ = fs::remove_file(shim.store());
        shim.fail(kinds, first, 1, fault);
        let output = write(&shim, 'a', 3, true);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!((shim.failed(), fs::metadata(shim.store()).unwrap().len()), (1, left), "{words}");
        shim.heal();
        assert!(write(&shim, 'a', 3, true).status.success());
    }
    // Nothing grows where the file has its length already.
    shim.fail_all(GROW, Fault::Full);
    assert!(write(&shim, 'b', 3, true).status.success());
    shim.fail(WRITE, 1, 1, Fault::Short);
    assert!(write(&shim, 'c', 3, true).status.success(), "it writes the rest");
    assert_eq!(shim.failed(), 1);
    assert!(all(read(&shim.store()), b'c', 3072));
}

#[test]
fn a_slow_disk_is_slow() {
    let shim = Shim::new();
    shim.delay(100, 20);
    let begun = Instant::now();
    assert!(write(&shim, 'a', 3, true).status.success());
    assert!(begun.elapsed().as_millis() >= 160);
}

#[test]
fn what_was_synced_stays_and_what_was_not_may_be_there_by_sectors() {
    let shim = Shim::new();
    assert!(write(&shim, 'a', 2, true).status.success());
    // No sync of the folder has made the name safe.
    assert_eq!(image(&shim, Unsynced::Dropped, 0), None);
    assert!(all(image(&shim, Unsynced::Kept, 0), b'a', 2048));
    assert!(write(&shim, 'b', 3, false).status.success());
    assert!(all(image(&shim, Unsynced::Kept, 0), b'b', 3072));
    let torn: BTreeSet<_> = (0..200).filter_map(|seed| image(&shim, Unsynced::Torn, seed)).collect();
    assert!(torn.len() > 50, "{} images", torn.len());
    for image in &torn {
        for (number, sector) in image.chunks(512).enumerate() {
            let allowed: &[u8] = if number < 4 { b"ab" } else { b"b\0" };
            assert!(allowed.contains(&sector[0]) && sector.iter().all(|byte| *byte == sector[0]));
        }
    }
}

#[test]
fn a_sync_after_one_that_failed_makes_only_pages_safe_that_were_written_again() {
    let shim = Shim::new();
    shim.fail(SYNC, 1, 1, Fault::Broken);
    assert!(!write(&shim, 'a', 8, true).status.success());
    // The first of two pages.
    assert!(write(&shim, 'b', 4, true).status.success());
    let first = |image: &[u8]| image[..4096] == [b'b'; 4096];
    let images: Vec<_> = (0..50).filter_map(|seed| image(&shim, Unsynced::Torn, seed)).collect();
    assert!(images.len() > 10 && images.iter().all(|image| first(image)));
    assert!(images.iter().any(|image| image.get(4096..).is_none_or(|page| page.contains(&0))));
}

/// Commits rows, and says after each how many calls there were.
const ROWS: &str = "
import os, sqlite3, sys
path, synchronous = sys.argv[1:]
rows = sqlite3.connect(path, isolation_level=None)
rows.execute('pragma journal_mode = wal')
rows.execute('pragma wal_autocheckpoint = 8')
rows.execute('pragma synchronous = ' + synchronous)
rows.execute('create table rows (bytes)')
for _ in range(30):
    rows.execute('insert into rows values (randomblob(3000))')
    print(int.from_bytes(open(os.environ['SHIM_ORDERS'], 'rb').read(8), sys.byteorder), flush=True)
os._exit(0)
";

/// Says how many rows there are in each database.
const COUNT: &str = "
import os, sqlite3, sys
for path in sys.argv[1:]:
    try:
        rows = sqlite3.connect(path)
        assert rows.execute('pragma integrity_check').fetchone() == ('ok',)
        print(rows.execute('select count(*) from rows').fetchone()[0])
    except sqlite3.OperationalError:
        print(0)
";

/// Returns how many rows are gone that were committed before one of the power losses.
fn lost(synchronous: &str) -> usize {
    let shim = Shim::new();
    let mut writer = Command::new("python3");
    writer.args(["-c", ROWS]).arg(shim.store()).arg(synchronous).envs(shim.variables(true));
    let wrote = writer.output().unwrap();
    assert!(wrote.status.success(), "{wrote:?}");
    let lines = |output: Output| -> Vec<usize> {
        String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
    };
    let (known, record) = (lines(wrote), Record::read(&shim.record()));
    let (images, mut dice, mut places) = (TempDir::new().unwrap(), Dice::new(7), Vec::new());
    record.replay(&(0..=record.len()).collect(), |place, disk| {
        for unsynced in [Unsynced::Dropped, Unsynced::Torn, Unsynced::Torn, Unsynced::Kept] {
            disk.write_image(&images.path().join(places.len().to_string()), unsynced, &mut dice);
            places.push(place);
        }
    });
    let mut counter = Command::new("python3");
    counter.args(["-c", COUNT]).args((0..places.len()).map(|number| images.path().join(format!("{number}/tasks.db"))));
    let counted = counter.output().unwrap();
    assert!(counted.status.success(), "{counted:?}");
    let expected = places.iter().map(|place| known.iter().filter(|known| *known <= place).count());
    lines(counted).iter().zip(expected).map(|(found, expected)| expected.saturating_sub(*found)).sum()
}

#[test]
fn no_power_loss_takes_a_commit_from_sqlite_where_it_syncs_each_of_them() {
    assert_eq!(lost("full"), 0);
}

#[test]
fn power_losses_take_commits_from_sqlite_where_it_syncs_less() {
    assert!(lost("normal") > 0);
}
