//! What taskgate knows in one session of the tasks that a server has itself: whether the client sees them, which tools
//! have them, whose progress goes on after their creation, and where their list continues.

mod server_cursor;
mod tokens;
mod tools;

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::tokens::ProgressTokens;
pub use self::tools::{MAX_WAITING, NativeTools, ToolNames};
use crate::wire::{
    Edits, Kind, Message, Method, legacy,
    message::echoed_number,
    object::{Members, Needle, may_have},
    params::progress_token,
};

/// The server's own tasks in one session.
#[derive(Debug, Default)]
pub struct NativeTasks {
    /// Whether the client sees them; not before the handshake is over.
    shown: AtomicBool,
    /// Whether the server lists them.
    lists: AtomicBool,
    /// Which tools have them.
    pub tools: NativeTools,
    /// The progress tokens of their calls.
    tokens: Mutex<ProgressTokens>,
    /// Seals the cursors of their list. Boxed: it is large, and few sessions need one.
    cursor_key: OnceLock<Box<hmac::Key>>,
}

impl NativeTasks {
    /// Shows the server's tasks to the client from now on. `lists`: the server has `tasks/list`.
    pub fn show(&self, lists: bool) {
        self.lists.store(lists, Ordering::Relaxed);
        // Pairs with the load in `shown`, so that `lists` is known by then.
        self.shown.store(true, Ordering::Release);
    }

    /// Returns whether the server lists its tasks.
    #[must_use]
    pub fn lists(&self) -> bool {
        self.lists.load(Ordering::Relaxed)
    }

    /// Returns whether the client sees the server's tasks.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        // Pairs with the store in `show`.
        self.shown.load(Ordering::Acquire)
    }

    /// Takes note of a message of the server, and returns what of it the client may see. While the server's tasks are
    /// hidden, that is neither their status nor what ties a message to them.
    pub(super) fn admit(&self, message: Message) -> Option<Message> {
        if message.method() == Method::ToolsListChanged {
            self.tools.forget();
        }
        if self.is_shown() {
            if let (Method::TaskStatus, Some(status)) = (message.method(), message.params()) {
                self.told(status);
            }
            return Some(message);
        }
        match message.method() {
            Method::TaskStatus => None,
            _ if message.kind() != Kind::Response && may_be_related(&message) => legacy::untied(&message),
            _ => Some(message),
        }
    }

    /// Returns whether a message belongs to a task of the server that the client sees.
    pub(super) fn owns(&self, message: &Message) -> bool {
        self.is_shown()
            && (message.method() == Method::TaskStatus || may_be_related(message) && legacy::is_related(message))
    }

    /// Keeps the progress token of a call that is to become a task of the server, until the answer shows what it
    /// became. `in_flight` tells whether a call is still unanswered.
    pub fn expect(&self, number: u64, token: &str, in_flight: impl Fn(u64) -> bool) {
        self.tokens.lock().expect(number, token, in_flight, Instant::now());
    }

    /// Takes note of the response to call `number`, which may have created a task.
    pub(super) fn answered(&self, number: u64, response: &Message) {
        if self.is_shown() {
            self.tokens.lock().answered(number, response, Instant::now());
        }
    }

    /// Puts the client's token into the progress of a task of the server. Returns both; `None` if there is no such
    /// task.
    pub(super) fn progress(&self, message: &Message) -> Option<(Message, Box<str>)> {
        let ours = progress_token(message)?;
        let token = self.tokens.lock().get(echoed_number(ours)?, Instant::now())?;
        let mut edits = Edits::of(message.bytes());
        edits.replace_raw(ours, token.to_string());
        Some((Message::parse(edits.apply().into_bytes()).ok()?, token))
    }

    /// Takes note of the raw state of a task, as a status notification, `tasks/get` or `tasks/cancel` tells it.
    pub fn told(&self, task: &str) {
        let Ok(task) = Members::parse(task) else { return };
        if let (Some(id), true) = (task.text("taskId"), legacy::has_ended(&task)) {
            self.ended(&id);
        }
    }

    /// Takes note that a task of the server has ended.
    pub fn ended(&self, task: &str) {
        self.tokens.lock().release(task);
    }
}

/// Returns whether a message may name a task that it belongs to; an escape could hide the key.
pub(super) fn may_be_related(message: &Message) -> bool {
    static RELATED: Needle = Needle::new("related-task");
    message.params().is_some_and(|params| may_have(params, [&RELATED]))
}
