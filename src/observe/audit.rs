//! The audit log: who did what with which task, one line for each; never arguments, results, tokens or ids of sessions.

use std::{
    fmt::Write as _,
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde::{Serialize, Serializer};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::config::{self, AuditOwner, AuditTo};

/// How many bytes of lines may wait to be written. More come only where the disk does not take them.
const MAX_WAITING: usize = 16 << 20;
/// How long lines wait for more, so that each does not cost a write of its own.
const GATHER: Duration = Duration::from_millis(50);
/// Bytes of a hash that are shown, as hexadecimal digits.
const SHOWN: usize = 8;

/// Whose doing a line is about, as lines name them.
#[derive(Debug, Serialize)]
pub struct Who {
    owner: Box<str>,
    session: Box<str>,
}

/// One thing that somebody did. What does not apply is left out.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// What.
    pub event: &'static str,
    /// Whose doing it was, where that is known.
    #[serde(flatten)]
    pub who: Option<&'a Who>,
    /// The task, or the id that was asked for and is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
    /// The tool that the task calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'a str>,
    /// What came of it: a status, the reason of a refusal, the limit that was reached.
    pub outcome: &'a str,
    /// How long it took, in seconds.
    #[serde(rename = "duration", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// The size of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

impl<'a> Line<'a> {
    pub(super) const fn new(event: &'static str, who: Option<&'a Who>, outcome: &'a str) -> Self {
        Self { event, who, task: None, tool: None, outcome, duration: None, bytes: None }
    }
}

/// A line with the time at which it was written.
#[derive(Serialize)]
struct Timed<'a> {
    time: String,
    #[serde(flatten)]
    line: &'a Line<'a>,
}

/// Where lines go.
#[derive(Debug)]
pub(super) struct Audit {
    to: To,
    owner: AuditOwner,
}

#[derive(Debug)]
enum To {
    Nowhere,
    Log,
    File(File),
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    waiting: Mutex<Vec<u8>>,
    /// Told when there is a first line that waits.
    some: Notify,
    /// Held while lines are written, so that they stay in order.
    writing: Mutex<()>,
}

impl Default for Audit {
    fn default() -> Self {
        Self { to: To::Nowhere, owner: AuditOwner::Hash }
    }
}

impl Audit {
    /// # Errors
    /// If the file cannot be opened.
    pub(super) fn new(config: config::Audit) -> io::Result<Self> {
        let to = match config.to {
            AuditTo::Off => To::Nowhere,
            AuditTo::Log => To::Log,
            AuditTo::File(path) => {
                open(&path)?;
                To::File(File { path, waiting: Mutex::default(), some: Notify::new(), writing: Mutex::default() })
            }
        };
        Ok(Self { to, owner: config.owner })
    }

    /// How lines name a principal, or a session that has none.
    pub(super) fn who(&self, principal: Option<&str>, session: Uuid) -> Arc<Who> {
        // The id itself is what opens the session.
        let session = short_hash(session.as_bytes());
        let owner = match (principal, self.owner) {
            (None, _) => session.clone(),
            (Some(name), AuditOwner::Hash) => short_hash(name.as_bytes()),
            (Some(name), AuditOwner::Principal) => name.into(),
        };
        Arc::new(Who { owner, session })
    }

    pub(super) const fn is_on(&self) -> bool {
        !matches!(self.to, To::Nowhere)
    }

    /// Takes a line; counts it in `lost` where there is no room for it.
    pub(super) fn take(&self, line: &Line<'_>, lost: &Counter) {
        match &self.to {
            To::Nowhere => {}
            To::Log => tracing::info!(
                target: "taskgate::audit",
                owner = line.who.map(|who| &*who.owner),
                session = line.who.map(|who| &*who.session),
                task = line.task.map(tracing::field::display),
                tool = line.tool,
                outcome = line.outcome,
                duration = line.duration.map(|duration| duration.as_secs_f64()),
                bytes = line.bytes,
                "{}",
                line.event
            ),
            To::File(file) => {
                let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
                let mut waiting = file.waiting.lock();
                let (first, whole) = (waiting.is_empty(), waiting.len());
                if whole >= MAX_WAITING || serde_json::to_writer(&mut *waiting, &Timed { time, line }).is_err() {
                    waiting.truncate(whole);
                    lost.inc();
                    return;
                }
                waiting.push(b'\n');
                drop(waiting);
                if first {
                    file.some.notify_one();
                }
            }
        }
    }

    /// Resolves when lines have waited for long enough to be written; never, if none go to a file.
    pub(super) async fn due(&self) {
        match &self.to {
            To::File(file) => {
                file.some.notified().await;
                tokio::time::sleep(GATHER).await;
            }
            To::Nowhere | To::Log => std::future::pending().await,
        }
    }

    /// Writes what waits. The file is opened anew each time, so that it may be moved away and begins anew.
    pub(super) fn write(&self) -> io::Result<()> {
        let To::File(file) = &self.to else { return Ok(()) };
        let _one_at_a_time = file.writing.lock();
        let lines = std::mem::take(&mut *file.waiting.lock());
        if lines.is_empty() {
            return Ok(());
        }
        let mut left = &*lines;
        open(&file.path).and_then(|mut to| write_on(&mut to, &mut left)).map_err(|error| {
            let mut waiting = file.waiting.lock();
            let newer = std::mem::replace(&mut *waiting, left.to_vec());
            waiting.extend_from_slice(&newer);
            file.some.notify_one();
            io::Error::new(error.kind(), format!("{}: {error}", file.path.display()))
        })
    }
}

fn open(path: &Path) -> io::Result<std::fs::File> {
    // Principals are nobody else's business.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Writes what is left. What a full disk has taken, be it a part of a line, is not written again.
fn write_on(to: &mut impl io::Write, left: &mut &[u8]) -> io::Result<()> {
    while !left.is_empty() {
        match to.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => *left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn short_hash(bytes: &[u8]) -> Box<str> {
    let mut text = String::with_capacity(2 * SHOWN);
    for byte in &digest(&SHA256, bytes).as_ref()[..SHOWN] {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.into()
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that has room for so many bytes.
    struct Disk(usize, Vec<u8>);

    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.0 - self.1.len();
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.extend_from_slice(&bytes[..room.min(bytes.len())]);
            Ok(room.min(bytes.len()))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn where_a_full_disk_took_a_part_of_a_line_the_rest_follows_and_nothing_comes_twice() {
        let (mut disk, mut left) = (Disk(7, Vec::new()), &b"first\nsecond\n"[..]);
        let error = write_on(&mut disk, &mut left).expect_err("it is full");
        assert_eq!((error.kind(), left), (io::ErrorKind::StorageFull, &b"econd\n"[..]));
        disk.0 = 100;
        write_on(&mut disk, &mut left).expect("room");
        assert_eq!(disk.1, b"first\nsecond\n");
    }

    #[test]
    fn lines_beyond_what_may_wait_are_counted_as_lost_and_the_others_are_written_later() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let config = config::Audit { to: AuditTo::File(path.clone()), owner: AuditOwner::Hash };
        let audit = Audit::new(config).expect("a file");
        // A folder takes no lines.
        std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("a folder in its place");
        let tool = "x".repeat(1 << 20);
        let line = Line { tool: Some(&tool), ..Line::new("task_created", None, "running") };
        let lost = Counter::default();
        while lost.get() < 3 {
            audit.take(&line, &lost);
            assert!(audit.write().is_err());
        }
        std::fs::remove_dir(&path).expect("an empty folder");
        audit.write().expect("room again");
        let written = std::fs::read_to_string(&path).expect("text");
        assert!(written.lines().all(|line| line.ends_with('}')) && written.len() <= MAX_WAITING + 2 * tool.len());
        assert!(written.len() >= MAX_WAITING, "{}", written.len());
    }
}
