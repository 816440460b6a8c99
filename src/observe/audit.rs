//! The audit log: who did what with which task, one line for each; never arguments, results, tokens or ids of sessions.

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

/// Bytes of a hash that are shown, as hexadecimal digits.
const SHOWN: usize = 8;

/// Whose doing a line is about, as lines name them.
#[derive(Debug, Serialize)]
pub struct Who {
    owner: Box<str>,
    session: Box<str>,
    /// The upstream, for the log.
    #[serde(skip)]
    upstream: UpstreamId,
}

impl Who {
    /// Returns a hash of the session's id, which itself opens the session.
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
    File(AuditFile),
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
            AuditTo::File(path) => To::File(AuditFile::open(path)?),
        };
        Ok(Self { to, owner: config.owner })
    }

    /// How lines name a principal, or a session that has none.
    pub(super) fn who(&self, principal: Option<&str>, session: Uuid, upstream: &UpstreamId) -> Arc<Who> {
        // The id itself is what opens the session.
        let session = short_hash(session.as_bytes());
        let owner = match (principal, self.owner) {
            (None, _) => session.clone(),
            (Some(name), AuditOwner::Hash) => short_hash(name.as_bytes()),
            (Some(name), AuditOwner::Principal) => name.into(),
        };
        Arc::new(Who { owner, session, upstream: upstream.clone() })
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
                let taken = serde_json::to_vec(&Timed { time, line }).is_ok_and(|line| file.take(line));
                if !taken {
                    lost.inc();
                }
            }
        }
    }

    /// Writes what waits for a file, at the end of the process; waits for that, but not for long.
    pub(super) fn finish(&self) -> io::Result<()> {
        match &self.to {
            To::File(file) => file.finish(),
            To::Nowhere | To::Log => Ok(()),
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
