//! The audit log: who did what with which task, one line for each act. No line has arguments, results, tokens or ids of
//! sessions.

use std::{
    fmt::Write as _,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use aws_lc_rs::digest::{SHA256, digest};
use prometheus_client::metrics::counter::Counter;
use serde::{Serialize, Serializer};
use uuid::Uuid;

use super::audit_file::AuditFile;
use crate::config::{self, AuditOwner, AuditTo, UpstreamId};

/// How many bytes of a hash lines show, as hexadecimal digits.
const SHOWN: usize = 8;

/// The session and the owner that a line is about, as lines name them.
#[derive(Debug, Serialize)]
pub struct Who {
    owner: Box<str>,
    session: Box<str>,
    /// The upstream, which log lines name and audit lines do not.
    #[serde(skip)]
    upstream: UpstreamId,
}

impl Who {
    /// Returns the names that an earlier process has used for the same session and owner.
    #[must_use]
    pub fn restored(owner: &str, session: &str, upstream: &UpstreamId) -> Arc<Self> {
        Arc::new(Self { owner: owner.into(), session: session.into(), upstream: upstream.clone() })
    }

    /// Returns the name of the owner.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns a hash of the session's id. The id itself would open the session.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns the path of the server that the session is for.
    #[must_use]
    pub fn upstream(&self) -> &str {
        self.upstream.as_str()
    }
}

/// One line of the audit log. Fields that do not apply are left out.
#[derive(Debug, Serialize)]
pub struct AuditLine<'a> {
    /// What happened.
    pub event: &'static str,
    /// Who did it, if that is known.
    #[serde(flatten)]
    pub who: Option<&'a Who>,
    /// The task, or the unknown id that a client asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Uuid>,
    /// The tool that the task calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<&'a str>,
    /// The outcome: a status, the reason for a refusal, the limit that was reached.
    pub outcome: &'a str,
    /// How long it took, in seconds.
    #[serde(rename = "duration", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub duration: Option<Duration>,
    /// The size of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<usize>,
}

impl<'a> AuditLine<'a> {
    pub(super) const fn new(event: &'static str, who: Option<&'a Who>, outcome: &'a str) -> Self {
        Self { event, who, task: None, tool: None, outcome, duration: None, bytes: None }
    }
}

/// A line with the time at which it was written.
#[derive(Serialize)]
struct TimedLine<'a> {
    time: String,
    #[serde(flatten)]
    line: &'a AuditLine<'a>,
}

/// Writes the audit log.
#[derive(Debug)]
pub(super) struct AuditLog {
    to: Sink,
    owner: AuditOwner,
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    Nowhere,
    Log,
    File(AuditFile),
}

impl Default for AuditLog {
    fn default() -> Self {
        Self { to: Sink::Nowhere, owner: AuditOwner::Hash }
    }
}

impl AuditLog {
    /// Begins to open the file, if lines go to one.
    ///
    /// # Errors
    /// If the system gives no thread for it.
    pub(super) fn new(config: config::Audit) -> io::Result<Self> {
        let to = match config.to {
            AuditTo::Off => Sink::Nowhere,
            AuditTo::Log => Sink::Log,
            AuditTo::File(path) => Sink::File(AuditFile::start(path)?),
        };
        Ok(Self { to, owner: config.owner })
    }

    /// Waits until the file is open, if lines go to one.
    ///
    /// # Errors
    /// If it cannot be opened, or not within 5 s.
    pub(super) async fn opened(&self) -> io::Result<()> {
        match &self.to {
            Sink::File(file) => file.opened().await,
            Sink::Nowhere | Sink::Log => Ok(()),
        }
    }

    /// Returns how lines name a session and its owner: the principal, or the session itself if it has none.
    pub(super) fn who(&self, principal: Option<&str>, session: Uuid, upstream: &UpstreamId) -> Arc<Who> {
        // The id itself would open the session.
        let session = short_hash(session.as_bytes());
        let owner = match (principal, self.owner) {
            (None, _) => session.clone(),
            (Some(name), AuditOwner::Hash) => short_hash(name.as_bytes()),
            (Some(name), AuditOwner::Principal) => name.into(),
        };
        Arc::new(Who { owner, session, upstream: upstream.clone() })
    }

    pub(super) const fn is_on(&self) -> bool {
        !matches!(self.to, Sink::Nowhere)
    }

    /// Writes a line. Counts it in `lost` if there is no room for it.
    pub(super) fn write(&self, line: &AuditLine<'_>, lost: &Counter) {
        match &self.to {
            Sink::Nowhere => {}
            Sink::Log => tracing::info!(
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
            Sink::File(file) => {
                let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
                let taken = serde_json::to_vec(&TimedLine { time, line }).is_ok_and(|line| file.push(line));
                if !taken {
                    lost.inc();
                }
            }
        }
    }

    /// Writes the lines that wait for a file, at the end of the process. Waits for this, but not for long.
    pub(super) fn finish(&self) -> io::Result<()> {
        match &self.to {
            Sink::File(file) => file.finish(),
            Sink::Nowhere | Sink::Log => Ok(()),
        }
    }
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
