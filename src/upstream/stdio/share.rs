//! The messages of one sender that wait for a child, and how many may.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use tokio::sync::oneshot;

/// How many messages of one sender may wait. Calls of tasks and cancellations do not count.
pub(super) const MAX_MESSAGES: usize = 256;
/// How many bytes may wait, divided among the senders of which messages wait. Calls of tasks and cancellations do not
/// count.
pub(super) const MAX_BYTES: usize = 16 * 1024 * 1024;
/// What a message takes besides its bytes.
const OVERHEAD: usize = 128;

/// Names a sender: taskgate itself, or a session by its number.
pub(super) type SenderId = u64;
/// taskgate, which answers the child in place of clients.
pub(super) const TASKGATE: SenderId = 0;
/// The line of all requests about subscriptions on a shared child. The child gets those of all sessions in the order in
/// which taskgate decided on them.
pub(super) const SUBSCRIPTIONS: SenderId = SenderId::MAX;

/// What a message is, which decides about its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageClass {
    /// A plain call, by its number.
    Call(u64),
    /// The call of an acknowledged task. It always finds a place, because the limits of tasks bound it.
    Task(u64),
    /// The cancellation of a call that the child has read and whose session has gone, or taskgate's own request that
    /// ends a subscription of such a session: there is at most one for each of them.
    Cancellation,
    /// A session's request about a subscription. It waits in the line of all such requests, and is never withdrawn.
    Subscription,
    /// An answer to a request of the child.
    Answer,
    /// Any other message that is not withdrawn.
    Notice,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// The child reads no more, or is about to end.
    Closed,
    /// [`MAX_MESSAGES`] of the sender wait.
    Messages,
    /// Too much waits in the line of subscriptions of senders that have gone.
    Line,
    /// With it, the sender would have more than this many bytes waiting.
    Bytes(usize),
}

/// The messages that wait in the line of one sender; and what counts against its limits, wherever it waits or is being
/// written.
#[derive(Default)]
pub(super) struct Backlog {
    pub(super) entries: VecDeque<QueuedMessage>,
    messages: usize,
    pub(super) bytes: usize,
}

/// One message that waits.
pub(super) struct QueuedMessage {
    /// Whose limits it counts against.
    pub(super) sender: SenderId,
    pub(super) ticket: u64,
    pub(super) message: Bytes,
    pub(super) class: MessageClass,
    /// Notified when the message was written.
    pub(super) written: Option<oneshot::Sender<()>>,
}

impl fmt::Display for NotTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("it has closed its stdin"),
            Self::Messages => write!(
                f,
                "limit reached: {MAX_MESSAGES} messages of this session wait for the MCP server process behind taskgate to \
                 read its stdin; try again later"
            ),
            Self::Line => f.write_str(
                "limit reached: requests about subscriptions of sessions that have ended wait for the MCP server process behind \
                 taskgate to read its stdin; try again later",
            ),
            Self::Bytes(share) => write!(
                f,
                "limit reached: more than {share} bytes of this session would wait for the MCP server process behind \
                 taskgate to read its stdin; a larger message is taken when nothing waits; try again later"
            ),
        }
    }
}

impl MessageClass {
    /// Returns whether it counts against the limits of its sender.
    pub(super) fn is_limited(self) -> bool {
        !matches!(self, Self::Task(_) | Self::Cancellation)
    }
}

impl QueuedMessage {
    /// Returns the sender in whose line it waits.
    pub(super) fn line(&self) -> SenderId {
        if self.class == MessageClass::Subscription { SUBSCRIPTIONS } else { self.sender }
    }

    /// Returns what it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        self.message.len() + OVERHEAD
    }
}

impl Backlog {
    /// Counts a message of its sender, whose share is `share` bytes.
    ///
    /// # Errors
    /// [`NotTaken`]
    pub(super) fn count(&mut self, entry: &QueuedMessage, share: usize) -> Result<(), NotTaken> {
        if entry.class.is_limited() {
            // The first message has room at any size.
            if self.messages >= MAX_MESSAGES {
                return Err(NotTaken::Messages);
            }
            if self.messages > 0 && self.bytes + entry.size() > share {
                return Err(NotTaken::Bytes(share));
            }
            self.messages += 1;
            self.bytes += entry.size();
        }
        Ok(())
    }

    /// Returns whether nothing waits in its line, and nothing counts.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.messages == 0
    }

    /// Returns whether a sender with such a share may send nothing more.
    pub(super) fn is_full(&self, share: usize) -> bool {
        self.messages >= MAX_MESSAGES || self.bytes > share
    }

    /// Counts what waits in this line, that of subscriptions, of a sender that has gone, instead of in its backlog `own`.
    pub(super) fn inherit(&mut self, gone: SenderId, own: &mut Self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.sender == gone) {
            own.let_go(entry);
            entry.sender = SUBSCRIPTIONS;
            self.messages += 1;
            self.bytes += entry.size();
        }
    }

    /// Notes that a message of its sender waits no longer.
    pub(super) fn let_go(&mut self, entry: &QueuedMessage) {
        if entry.class.is_limited() {
            self.messages -= 1;
            self.bytes -= entry.size();
        }
    }
}
