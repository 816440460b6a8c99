//! What a disk may hold after the power went: built from the record that the shim keeps.
//!
//! A write or a new length is safe once its file was synced. Before that each sector of 512 bytes may hold any of the
//! versions that it had since, whatever other sectors hold. Names of files are safe once their folder was synced, and
//! become so in order. A sync that failed makes nothing safe: as on Linux, the pages are clean from then on, and only
//! those that are written again take part in the next sync.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
};

/// What a disk writes wholly or not at all.
const SECTOR: usize = 512;
/// What the kernel keeps track of.
const PAGE: usize = 4096;

/// One call of the record.
#[derive(Clone, Debug)]
enum Call {
    Opened { file: u32, path: PathBuf, is_new: bool },
    Written { file: u32, offset: usize, data: Vec<u8> },
    Synced { file: u32 },
    SyncFailed { file: u32 },
    Truncated { file: u32, length: usize },
    Unlinked { path: PathBuf },
    Renamed { path: PathBuf, to: PathBuf },
    SyncedFolder,
}

/// What becomes of that which was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Dropped,
    Kept,
    /// Any part of it is there, by sectors.
    Torn,
}

/// Random numbers that a seed repeats.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 16) % u64::try_from(end).unwrap()).unwrap()
    }
}

/// A part of a write within one sector, or a new length.
#[derive(Clone, Debug)]
enum Change {
    Part { offset: usize, data: Vec<u8> },
    Length(usize),
}

/// A file that may have lost its name.
#[derive(Clone, Debug, Default)]
struct Inode {
    safe: Vec<u8>,
    pending: Vec<Change>,
    /// By page: what a failed sync has left in memory only.
    limbo: BTreeMap<usize, Vec<Change>>,
}

impl Inode {
    fn write(&mut self, offset: usize, data: &[u8]) {
        let mut at = offset;
        while at < offset + data.len() {
            let end = ((at / SECTOR + 1) * SECTOR).min(offset + data.len());
            self.pending.extend(self.limbo.remove(&(at / PAGE)).into_iter().flatten());
            self.pending.push(Change::Part { offset: at, data: data[at - offset..end - offset].to_vec() });
            at = end;
        }
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.safe, &change);
        }
    }

    fn fail_sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Part { offset, .. } => self.limbo.entry(offset / PAGE).or_default().push(change),
                // Lengths are in the journal of the file system, not in pages.
                Change::Length(_) => apply(&mut self.safe, &change),
            }
        }
    }

    fn image(&self, unsynced: Unsynced, dice: &mut Dice) -> Vec<u8> {
        let mut image = self.safe.clone();
        let changes: Vec<_> = self.limbo.values().flatten().chain(&self.pending).collect();
        match unsynced {
            Unsynced::Dropped => {}
            Unsynced::Kept => changes.into_iter().for_each(|change| apply(&mut image, change)),
            Unsynced::Torn => {
                let mut versions: HashMap<usize, usize> = HashMap::new();
                for change in &changes {
                    if let Change::Part { offset, .. } = change {
                        *versions.entry(offset / SECTOR).or_default() += 1;
                    }
                }
                let mut sectors: Vec<_> = versions.into_iter().collect();
                sectors.sort_unstable();
                let mut left: HashMap<_, _> =
                    sectors.into_iter().map(|(sector, versions)| (sector, dice.below(versions + 1))).collect();
                for change in changes {
                    let kept = match change {
                        Change::Length(_) => dice.below(2) == 0,
                        Change::Part { offset, .. } => {
                            let left = left.get_mut(&(offset / SECTOR)).unwrap();
                            std::mem::replace(left, left.saturating_sub(1)) > 0
                        }
                    };
                    if kept {
                        apply(&mut image, change);
                    }
                }
            }
        }
        image
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Length(length) => bytes.resize(*length, 0),
        Change::Part { offset, data } => {
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[*offset..offset + data.len()].copy_from_slice(data);
        }
    }
}

/// A change of names, which happens wholly or not at all.
#[derive(Clone, Debug)]
enum Naming {
    New(PathBuf, usize),
    Gone(PathBuf),
    Moved(PathBuf, PathBuf),
}

/// The disk as it follows from the calls so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    names: HashMap<PathBuf, usize>,
    safe_names: HashMap<PathBuf, usize>,
    /// How names have changed since the folder was synced.
    pending_names: Vec<Naming>,
    open: HashMap<u32, usize>,
}

impl Disk {
    /// Returns a disk on which everything in `folder` is safe.
    fn holding(folder: &Path) -> Self {
        let mut disk = Self::default();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            disk.inodes.push(Inode { safe: fs::read(&path).unwrap(), ..Inode::default() });
            disk.safe_names.insert(path, disk.inodes.len() - 1);
        }
        disk.names = disk.safe_names.clone();
        disk
    }

    fn follow(&mut self, call: &Call) {
        match call {
            Call::Opened { file, path, is_new } => {
                let known = self.names.get(path).copied().filter(|_| !is_new);
                let inode = known.unwrap_or_else(|| {
                    self.inodes.push(Inode::default());
                    self.names.insert(path.clone(), self.inodes.len() - 1);
                    self.pending_names.push(Naming::New(path.clone(), self.inodes.len() - 1));
                    self.inodes.len() - 1
                });
                self.open.insert(*file, inode);
            }
            Call::Written { file, offset, data } => self.inode(*file).write(*offset, data),
            Call::Synced { file } => self.inode(*file).sync(),
            Call::SyncFailed { file } => self.inode(*file).fail_sync(),
            Call::Truncated { file, length } => self.inode(*file).pending.push(Change::Length(*length)),
            Call::Unlinked { path } => {
                self.names.remove(path);
                self.pending_names.push(Naming::Gone(path.clone()));
            }
            Call::Renamed { path, to } => {
                let moved = Naming::Moved(path.clone(), to.clone());
                moved.apply(&mut self.names);
                self.pending_names.push(moved);
            }
            Call::SyncedFolder => {
                for naming in std::mem::take(&mut self.pending_names) {
                    naming.apply(&mut self.safe_names);
                }
            }
        }
    }

    fn inode(&mut self, file: u32) -> &mut Inode {
        &mut self.inodes[self.open[&file]]
    }

    /// Writes the files as they may be after the power went now into `folder`, which it empties first.
    pub(crate) fn write_image(&self, folder: &Path, unsynced: Unsynced, dice: &mut Dice) {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir(folder).unwrap();
        let mut names = self.safe_names.clone();
        let kept = match unsynced {
            Unsynced::Dropped => 0,
            Unsynced::Kept => self.pending_names.len(),
            Unsynced::Torn => dice.below(self.pending_names.len() + 1),
        };
        for naming in &self.pending_names[..kept] {
            naming.apply(&mut names);
        }
        for (path, inode) in names {
            let image = self.inodes[inode].image(unsynced, dice);
            fs::write(folder.join(path.file_name().unwrap()), image).unwrap();
        }
    }
}

impl Naming {
    fn apply(&self, names: &mut HashMap<PathBuf, usize>) {
        match self {
            Self::New(path, inode) => names.insert(path.clone(), *inode),
            Self::Gone(path) => names.remove(path),
            Self::Moved(path, to) => names.remove(path).and_then(|inode| names.insert(to.clone(), inode)),
        };
    }
}

/// A record, call by call, and the disk before it.
pub(crate) struct Record {
    before: Disk,
    calls: Vec<Call>,
}

impl Record {
    /// Reads the record of processes of which the first began with an empty folder. Its last line may be cut off.
    pub(crate) fn read(path: &Path) -> Self {
        Self::after(Disk::default(), path)
    }

    fn after(before: Disk, path: &Path) -> Self {
        let bytes = fs::read(path).unwrap();
        let (mut calls, mut rest) = (Vec::new(), &bytes[..]);
        while let Some((call, behind)) = parse(rest) {
            calls.push(call);
            rest = behind;
        }
        Self { before, calls }
    }

    /// Does the same where the process began with the files that are in `folder` when this is called; the record is
    /// read by calling what it returns.
    pub(crate) fn beginning_with(folder: &Path) -> impl FnOnce(&Path) -> Self {
        let before = Disk::holding(folder);
        |path| Self::after(before, path)
    }

    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns the places after which a file or the folder had just been synced, or was about to be.
    pub(crate) fn syncs(&self) -> BTreeSet<usize> {
        let syncs = self
            .calls
            .iter()
            .enumerate()
            .filter(|(_, call)| matches!(call, Call::Synced { .. } | Call::SyncedFolder | Call::SyncFailed { .. }));
        syncs.flat_map(|(place, _)| [place, place + 1]).collect()
    }

    /// Calls `visit` with the disk as it was after each number of calls in `places`.
    pub(crate) fn replay(&self, places: &BTreeSet<usize>, mut visit: impl FnMut(usize, &Disk)) {
        let mut disk = self.before.clone();
        for place in 0..=self.calls.len() {
            if places.contains(&place) {
                visit(place, &disk);
            }
            if let Some(call) = self.calls.get(place) {
                disk.follow(call);
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<(Call, &[u8])> {
    let (head, rest) = bytes.split_at_checked(24)?;
    let word = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap());
    let long = |at: usize| usize::try_from(u64::from_ne_bytes(head[at..at + 8].try_into().unwrap())).unwrap();
    let (what, file, offset, length) = (word(0), word(4), long(8), long(16));
    let (data, behind) = rest.split_at_checked(if matches!(what, 1 | 2 | 5 | 8) { length } else { 0 })?;
    let path = || PathBuf::from(String::from_utf8(data.to_vec()).unwrap());
    let call = match what {
        1 => Call::Opened { file, path: path(), is_new: offset == 1 },
        2 => Call::Written { file, offset, data: data.to_vec() },
        3 => Call::Synced { file },
        4 => Call::Truncated { file, length: offset },
        5 => Call::Unlinked { path: path() },
        6 => Call::SyncedFolder,
        7 => Call::SyncFailed { file },
        8 => {
            let text = String::from_utf8(data.to_vec()).unwrap();
            let (path, to) = text.split_once('\n').unwrap();
            Call::Renamed { path: path.into(), to: to.into() }
        }
        _ => panic!("no call has the number {what}"),
    };
    Some((call, behind))
}
