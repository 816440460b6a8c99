//! The shim between taskgate and its store's files (`shim.c`): compiled once, ordered through a page that both share.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

/// The kinds of calls that can fail, as bits; a write that makes a file longer is of both kinds, and so is a sync of
/// its times.
pub(crate) const WRITE: u64 = 1;
pub(crate) const SYNC: u64 = 2;
pub(crate) const TRUNCATE: u64 = 4;
pub(crate) const GROW: u64 = 8;
pub(crate) const READ: u64 = 16;
pub(crate) const SYNC_TIMES: u64 = 32;
/// Every call that changes what is on disk.
pub(crate) const CHANGES: u64 = WRITE | SYNC | TRUNCATE;

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// EIO
    Broken,
    /// ENOSPC
    Full,
    /// Half of a write is written, and the call says so. Any other call fails with EIO.
    Short,
}

impl Fault {
    fn number(self) -> u64 {
        match self {
            Self::Broken => u64::from(rustix::io::Errno::IO.raw_os_error().unsigned_abs()),
            Self::Full => u64::from(rustix::io::Errno::NOSPC.raw_os_error().unsigned_abs()),
            Self::Short => 1000,
        }
    }
}

/// The fields of the shared page, in the order of `struct orders`.
#[derive(Clone, Copy)]
enum Field {
    Calls,
    Kinds,
    Matched,
    First,
    Count,
    Error,
    Failed,
    SyncDelay,
    WriteDelay,
}

/// A shim for the files of one folder. Processes that start with its variables are watched.
pub(crate) struct Shim {
    dir: TempDir,
    orders: File,
    library: PathBuf,
}

impl Shim {
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("store")).unwrap();
        let page = dir.path().join("orders");
        fs::write(&page, [0; 4096]).unwrap();
        let orders = OpenOptions::new().read(true).write(true).open(page).unwrap();
        Self { dir, orders, library: library() }
    }

    /// Returns the watched file, which does not exist yet. Files beside it whose names begin like its name are watched
    /// too.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store/tasks.db")
    }

    /// Returns where the record of the calls is kept.
    pub(crate) fn record(&self) -> PathBuf {
        self.dir.path().join("record")
    }

    /// Returns the variables of a process whose calls are watched, and recorded if that is wanted.
    pub(crate) fn variables(&self, recorded: bool) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let mut variables = vec![
            ("LD_PRELOAD", text(&self.library)),
            ("SHIM_ORDERS", text(&self.dir.path().join("orders"))),
            ("SHIM_WATCHED", text(&self.store())),
        ];
        if recorded {
            variables.push(("SHIM_RECORD", text(&self.record())));
        }
        variables
    }

    fn get(&self, field: Field) -> u64 {
        get(&self.orders, field)
    }

    fn set(&self, field: Field, value: u64) {
        self.orders.write_all_at(&value.to_ne_bytes(), field as u64 * 8).unwrap();
    }

    /// Returns how many calls there were so far, which is the place in the record.
    pub(crate) fn calls(&self) -> u64 {
        self.get(Field::Calls)
    }

    /// Returns what tells [`Shim::calls`] elsewhere.
    pub(crate) fn counter(&self) -> Counter {
        Counter(self.orders.try_clone().unwrap())
    }

    /// Counts calls of these kinds from now on.
    pub(crate) fn count(&self, kinds: u64) {
        self.fail(kinds, 1, 0, Fault::Broken);
    }

    /// Returns how many calls of these kinds there were since [`Shim::count`] or [`Shim::fail`].
    pub(crate) fn counted(&self) -> u64 {
        self.get(Field::Matched)
    }

    /// Fails `count` calls of these kinds from now on, from the `first` on, counted from 1.
    pub(crate) fn fail(&self, kinds: u64, first: u64, count: u64, fault: Fault) {
        self.heal();
        self.set(Field::Matched, 0);
        self.set(Field::First, first);
        self.set(Field::Count, count);
        self.set(Field::Error, fault.number());
        self.set(Field::Failed, 0);
        self.set(Field::Kinds, kinds);
    }

    /// Fails every call of these kinds from now on.
    pub(crate) fn fail_all(&self, kinds: u64, fault: Fault) {
        self.fail(kinds, 1, u64::MAX, fault);
    }

    /// Fails nothing from now on.
    pub(crate) fn heal(&self) {
        self.set(Field::Kinds, 0);
    }

    /// Returns how many calls have failed since [`Shim::fail`].
    pub(crate) fn failed(&self) -> u64 {
        self.get(Field::Failed)
    }

    /// Makes every sync, and every write, take so many milliseconds longer.
    pub(crate) fn delay(&self, sync: u64, write: u64) {
        self.set(Field::SyncDelay, sync * 1000);
        self.set(Field::WriteDelay, write * 1000);
    }
}

/// Tells how many calls there were so far.
pub(crate) struct Counter(File);

impl Counter {
    pub(crate) fn get(&self) -> u64 {
        get(&self.0, Field::Calls)
    }
}

fn get(orders: &File, field: Field) -> u64 {
    let mut bytes = [0; 8];
    orders.read_exact_at(&mut bytes, field as u64 * 8).unwrap();
    u64::from_ne_bytes(bytes)
}

/// Compiles the shim, unless a test has done so since it was changed.
fn library() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kit/shim.c");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shim.so");
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    if changed(&built) < changed(&source) {
        // Several tests may compile at once.
        let own = tempfile::Builder::new().suffix(".so").tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let args = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"];
        let done =
            Command::new("cc").args(args).arg(own.path()).arg(&source).args(["-ldl", "-pthread"]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        own.persist(&built).unwrap();
    }
    built
}
