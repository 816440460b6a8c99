//! Files that were damaged: a byte flipped, a page zeroed, the end cut off, in the database and in its log. What is
//! told afterwards is right or a named error, never less than what was there, without a word.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    book::Told,
    house::{House, copy_files},
    kit::Binary,
    loss::Dice,
    modern_client::Modern,
    people::{Failure, Form, Person},
    workshop::Job,
};

/// How many damages of each file the suite tries.
const SHARE: usize = 24;
/// The size of a page, and of the head of the log and of each frame.
const PAGE: usize = 4096;
const LOG_HEAD: usize = 32;
const FRAME_HEAD: usize = 24;

/// Makes a store with tasks, kills its process, and returns what was told.
async fn made(house: &House) -> Vec<Told> {
    let mut all = Vec::new();
    // A part in the database, and a part in the log only.
    for start in 0..2 {
        let serving = house.serve().await;
        let person = Person::new(Form::Modern, "user", "json");
        for turn in 0..8 {
            let bytes = [100, 100, 400_000, 100][turn % 4];
            let job = Job { key: format!("{start}.{turn}"), millis: 1, bytes };
            let mut told = Told::create(&person, &serving.base, job).await.unwrap();
            told.finish(&serving.base).await.unwrap();
            all.push(told);
        }
        if start == 0 {
            serving.binary.signal(rustix::process::Signal::TERM);
            serving.binary.end().await;
        } else {
            serving.kill().await;
        }
    }
    all
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// What became of a damaged store.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    refused: usize,
    named: usize,
    harmless: usize,
}

/// A copy of the store to which `damage` happened in the file with this suffix.
struct Damaged {
    dir: TempDir,
    what: String,
}

impl Damaged {
    fn new(house: &House, suffix: &str, what: String, damage: impl FnOnce(&mut Vec<u8>)) -> Self {
        let dir = TempDir::new().unwrap();
        let copy = dir.path().join("tasks.db");
        copy_files(house.store().parent().unwrap(), dir.path());
        let mut bytes = fs::read(beside(house.store(), suffix)).unwrap();
        damage(&mut bytes);
        fs::write(beside(&copy, suffix), bytes).unwrap();
        Self { dir, what }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("tasks.db")
    }

    /// Starts taskgate with it, asks for everything, and checks that no answer is wrong and no refusal without a name.
    async fn try_out(&self, house: &House, told: &[Told], outcomes: &mut Outcomes) {
        let before = self.files();
        match house.try_on(&self.store()).await {
            Err(ended) => {
                let said = &ended.stderr;
                assert!(ended.code.is_some_and(|code| code != 0), "{}: {ended:?}", self.what);
                assert!(said.contains("tasks.db") && !said.contains("panicked"), "{}: {said}", self.what);
                let ways = ["taskgate store export", "taskgate store backup", "set another store.path", "put it back"];
                assert!(ways.iter().any(|way| said.contains(way)), "{}: no way on is named: {said}", self.what);
                assert!(before == self.files(), "{}: a start that refuses has changed the files", self.what);
                outcomes.refused += 1;
            }
            Ok(serving) => {
                let mut named = 0;
                for told in told {
                    let mut told = told.clone();
                    match told.look(&serving.base).await {
                        Ok(_) => {}
                        Err(Failure::Unavailable(_)) => named += 1,
                        Err(other) => panic!("{}: {}: {other:?}", self.what, told.job.key),
                    }
                }
                serving.kill().await;
                if named > 0 { outcomes.named += 1 } else { outcomes.harmless += 1 }
            }
        }
    }

    /// Makes a copy by `backup`, which a start takes, and finds everything in it.
    async fn follow_advice(&self, house: &House, told: &[Told]) {
        let (store, copy) = (self.store(), self.dir.path().join("copy.db"));
        let command = ["store", "backup", store.to_str().unwrap(), copy.to_str().unwrap()];
        let ended = Binary::run(&command, &[]).await;
        assert_eq!(ended.code, Some(0), "{}: {ended:?}", self.what);
        let serving = match house.try_on(&copy).await {
            Ok(serving) => serving,
            Err(ended) => panic!("{}: no start takes the copy: {ended:?}", self.what),
        };
        for told in told {
            told.clone().look(&serving.base).await.unwrap_or_else(|error| panic!("{}: {error:?}", self.what));
        }
        serving.kill().await;
    }

    fn files(&self) -> Vec<Option<Vec<u8>>> {
        ["", "-wal"].map(|suffix| fs::read(beside(&self.store(), suffix)).ok()).to_vec()
    }
}

fn flip(at: usize) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| bytes[at] ^= 0x10
}

fn zero(at: usize, length: usize) -> impl FnOnce(&mut Vec<u8>) {
    move |bytes| {
        let end = bytes.len().min(at + length);
        bytes[at..end].fill(0);
    }
}

fn share() -> usize {
    std::env::var("TASKGATE_DAMAGES").map_or(SHARE, |share| share.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_database_is_never_told_otherwise_than_it_was() {
    let house = House::plain().await;
    let told = made(&house).await;
    let length = fs::read(house.store()).unwrap().len();
    let (mut outcomes, mut dice) = (Outcomes::default(), Dice::new(u64::from(std::process::id())));
    for turn in 0..share() {
        let (at, page) = (dice.below(length), dice.below(length / PAGE) * PAGE);
        let damaged = match turn % 3 {
            // Half of the flips in the first pages, where everything depends on each byte.
            0 => {
                let at = if turn % 2 == 0 { at % (4 * PAGE) } else { at };
                Damaged::new(&house, "", format!("byte {at} of the database flipped"), flip(at))
            }
            1 => Damaged::new(&house, "", format!("page at {page} of the database zeroed"), zero(page, PAGE)),
            _ => Damaged::new(&house, "", format!("database cut at {at}"), |bytes| bytes.truncate(at)),
        };
        damaged.try_out(&house, &told, &mut outcomes).await;
    }
    eprintln!("{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_empty_or_gone_beside_its_log_is_refused() {
    let house = House::plain().await;
    let told = made(&house).await;
    let mut outcomes = Outcomes::default();
    Damaged::new(&house, "", "an empty database".into(), Vec::clear).try_out(&house, &told, &mut outcomes).await;
    Damaged::new(&house, "", "all zeros".into(), |bytes| bytes.fill(0)).try_out(&house, &told, &mut outcomes).await;
    let gone = Damaged::new(&house, "", "no database".into(), Vec::clear);
    fs::remove_file(gone.store()).unwrap();
    gone.try_out(&house, &told, &mut outcomes).await;
    assert_eq!(outcomes.refused, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_list_of_free_pages_is_refused_before_anything_is_written_over() {
    let house = House::plain().await;
    let told = made(&house).await;
    let store = rusqlite::Connection::open(house.store()).unwrap();
    // What expired results leave.
    let leave = "INSERT INTO chunks VALUES (1 << 50, zeroblob(200000)); DELETE FROM chunks WHERE id = 1 << 50";
    store.execute_batch(leave).unwrap();
    store.close().unwrap();
    let bytes = fs::read(house.store()).unwrap();
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let list = (number(32) - 1) * PAGE;
    let (mut outcomes, mut dice) = (Outcomes::default(), Dice::new(u64::from(std::process::id())));
    for _ in 0..share() / 3 {
        let at = list + 8 + dice.below(4 * number(list + 4));
        let what = format!("byte {at} of the list of free pages flipped");
        let damaged = Damaged::new(&house, "", what, flip(at));
        damaged.try_out(&house, &told, &mut outcomes).await;
        damaged.follow_advice(&house, &told).await;
    }
    assert_eq!(outcomes.refused, share() / 3, "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_result_is_told_as_that_to_its_client_and_once_to_the_operator() {
    for form in [Form::Legacy, Form::Modern] {
        let house = House::plain().await;
        let serving = house.serve().await;
        let person = Person::new(form, "user", "json");
        let mut told = Vec::new();
        for key in ["whole", "flipped"] {
            let job = Job { key: key.to_owned(), millis: 1, bytes: 9000 };
            told.push(Told::create(&person, &serving.base, job).await.unwrap());
        }
        for told in &mut told {
            told.finish(&serving.base).await.unwrap();
        }
        serving.binary.signal(rustix::process::Signal::TERM);
        serving.binary.end().await;
        let mut bytes = fs::read(house.store()).unwrap();
        let at = bytes.windows(11).position(|part| part == b"flipped:40;").expect("its result");
        flip(at)(&mut bytes);
        fs::write(house.store(), bytes).unwrap();
        let serving = house.serve().await;
        let person = person.elsewhere();
        for _ in 0..3 {
            assert_eq!(person.look(&serving.base, &told[0].id).await.unwrap().status, "completed");
            let Err(Failure::Unavailable(said)) = person.look(&serving.base, &told[1].id).await else { panic!("told") };
            assert!(said.contains("-32603") && said.contains("asking again will not help"), "{said}");
        }
        let mut subscriber = Modern::with_tasks(&format!("{}/json", serving.base));
        subscriber.http = subscriber.http.with("x-user", "user");
        let filter = json!({ "notifications": { "taskIds": [told[1].id] } });
        let mut stream = subscriber.stream("subscriptions/listen", filter);
        assert_eq!(stream.message().await["method"], "notifications/subscriptions/acknowledged");
        let news = stream.message().await["params"].take();
        assert_eq!((news["taskId"].as_str(), &news["status"]), (Some(&*told[1].id), &json!("failed")));
        assert!(news["error"]["message"].as_str().unwrap().contains("asking again will not help"), "{news}");
        drop(stream);
        let said = serving.kill().await.stderr;
        let lines: Vec<_> = said.lines().filter(|line| line.contains("ERROR")).collect();
        let names = [told[1].id.as_str(), "tasks.db", "taskgate store check"];
        assert!(lines.len() == 1 && names.iter().all(|name| lines[0].contains(name)), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_behind_a_damaged_frame_of_the_log_are_not_skipped_without_a_word() {
    let house = House::plain().await;
    let told = made(&house).await;
    let log = fs::read(beside(house.store(), "-wal")).unwrap();
    let frame = FRAME_HEAD + PAGE;
    let frames = (log.len() - LOG_HEAD) / frame;
    assert!(frames > 8, "only {frames} frames");
    let (mut outcomes, mut dice) = (Outcomes::default(), Dice::new(u64::from(std::process::id())));
    for turn in 0..share() {
        let (at, number) = (dice.below(log.len()), dice.below(frames));
        let start = LOG_HEAD + number * frame;
        let damaged = match turn % 6 {
            0 => Damaged::new(&house, "-wal", format!("byte {at} of the log flipped"), flip(at)),
            4 => Damaged::new(&house, "-wal", format!("log cut at {at}"), |bytes| bytes.truncate(at)),
            // A mark proves nothing where it is not what was written. No task is lost with it.
            5 => Damaged::new(&house, "-mark", format!("byte {} of the mark flipped", at % 32), flip(at % 32)),
            1 => Damaged::new(&house, "-wal", format!("frame {number} of the log zeroed"), zero(start, frame)),
            2 => {
                let at = start + dice.below(FRAME_HEAD);
                Damaged::new(&house, "-wal", format!("byte {at} of the log, in the head of frame {number}"), flip(at))
            }
            _ => {
                let at = at % LOG_HEAD;
                Damaged::new(&house, "-wal", format!("byte {at} of the head of the log flipped"), flip(at))
            }
        };
        damaged.try_out(&house, &told, &mut outcomes).await;
    }
    eprintln!("{outcomes:?}");
    assert!(outcomes.refused > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_log_is_gone_and_whose_mark_is_damaged_is_not_opened_without_a_word() {
    let house = House::plain().await;
    made(&house).await;
    let damaged = Damaged::new(&house, "-mark", "a byte of the mark flipped, and no log".into(), flip(20));
    fs::remove_file(beside(&damaged.store(), "-wal")).unwrap();
    let checked = Binary::run(&["store", "check", damaged.store().to_str().unwrap()], &[]).await;
    assert!(checked.code == Some(1) && checked.stderr.contains("-mark\" is damaged"), "{checked:?}");
    let Ok(serving) = house.try_on(&damaged.store()).await else { panic!("it has all that the file has") };
    let said = serving.kill().await.stderr;
    assert!(said.contains("WARN") && said.contains("-mark\\\" is damaged"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_refused_can_be_checked_and_exported() {
    let house = House::plain().await;
    let told = made(&house).await;
    let damaged = Damaged::new(&house, "", "zeros in the middle".into(), |bytes| {
        let middle = bytes.len() / PAGE / 2 * PAGE;
        bytes[middle..middle + 8 * PAGE].fill(0);
    });
    let store = damaged.store();
    let store = store.to_str().unwrap();
    let checked = Binary::run(&["store", "check", store], &[]).await;
    assert!(checked.code.is_some_and(|code| code != 0), "{checked:?}");
    assert!(!checked.stderr.contains("panicked"), "{checked:?}");
    let exported = Binary::run(&["store", "export", store], &[]).await;
    assert!(exported.code.is_some() && !exported.stderr.contains("panicked"), "{exported:?}");
    let cut = Damaged::new(&house, "-wal", "the log cut".into(), |bytes| bytes.truncate(bytes.len() / 2));
    let (store, copy) = (cut.store(), cut.dir.path().join("copy.db"));
    let (store, copy) = (store.to_str().unwrap(), copy.to_str().unwrap());
    for command in [&["store", "check", store][..], &["store", "export", store], &["store", "backup", store, copy]] {
        let ended = Binary::run(command, &[]).await;
        assert!(ended.code == Some(1) && ended.stderr.contains("commits are missing"), "{command:?}: {ended:?}");
    }
    assert!(!Path::new(copy).exists(), "a copy would not show what is missing");
    let whole = Binary::run(&["store", "check", house.store().to_str().unwrap()], &[]).await;
    assert_eq!(whole.code, Some(0), "{whole:?}");
    let all = Binary::run(&["store", "export", house.store().to_str().unwrap()], &[]).await;
    let lost: Vec<_> = told.iter().filter(|told| !all.stdout.contains(&told.id)).map(|told| &told.job.key).collect();
    assert!(all.code == Some(0) && lost.is_empty(), "the export of a whole store lacks {lost:?}");
}
