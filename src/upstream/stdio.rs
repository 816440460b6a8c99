//! A server that is a child process: JSON-RPC lines on its stdin and stdout (revision 2025-11-25, "stdio").

use std::{
    fmt,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Carrier, Failure, Inbound, Link, MAX_MESSAGE, Outgoing, Sending, excerpt};
use crate::{
    observe::events,
    wire::{Message, Version},
};

/// How many messages may wait for a child that does not read.
const WRITE_QUEUE: usize = 256;
/// The longest line of stderr that is logged, in bytes.
const MAX_LOG_LINE: usize = 16 * 1024;
/// How long a child that has ended is still listened to.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How many bytes may wait for a child that does not read.
const WRITE_BYTES: usize = 16 * 1024 * 1024;
/// How long a child may take to end after its stdin was closed, and again after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// One configured command.
#[derive(Clone, Debug)]
pub struct Server {
    program: String,
    args: Vec<String>,
    /// What runs as long as a child does.
    children: TaskTracker,
}

impl Server {
    /// A server that is started by `program` with `args`, once for each session.
    #[must_use]
    pub fn new(program: String, args: Vec<String>) -> Self {
        Self { program, args, children: TaskTracker::new() }
    }

    /// Waits until every child is gone.
    pub(super) async fn ended(&self) {
        self.children.close();
        self.children.wait().await;
    }

    pub(super) fn connect(&self, inbound: Inbound) -> Result<StdioLink, Failure> {
        // A group of its own, so that what the command starts can be stopped with it.
        let mut child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failure::Unreachable(format!("cannot start {:?}: {error}", self.program)))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::Unreachable(format!("cannot talk to {:?}", self.program)));
        };
        let group = Group(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)));
        inbound.observer.emit(events::ChildStarted { pid: child.id().unwrap_or_default() });
        let (lines, queue) = mpsc::channel(WRITE_QUEUE);
        let state = Arc::new(State {
            inbound,
            ended: CancellationToken::new(),
            last_words: Mutex::default(),
            waiting: AtomicUsize::new(0),
        });
        tokio::spawn(write(stdin, queue, Arc::clone(&state)));
        let words = tokio::spawn(drain_stderr(stderr, Arc::clone(&state)));
        let reader = Arc::clone(&state);
        // Weak, because the child's stdin is closed with the last sender.
        let replies = lines.downgrade();
        self.children.spawn(async move {
            let gone = async {
                let _ = child.wait().await;
                // What it wrote last is still on its way; what it started may hold its stdout open for ever.
                tokio::time::sleep(LAST_WORDS).await;
            };
            tokio::select! {
                () = reader.read(stdout, replies) => {}
                () = gone => {}
            }
            reader.reap(child, &group, words).await;
        });
        Ok(StdioLink { lines: Mutex::new(Some(lines)), state, group, children: self.children.clone() })
    }
}

/// A session with a child process of its own.
#[derive(Debug)]
pub struct StdioLink {
    /// Dropped to close the child's stdin.
    lines: Mutex<Option<mpsc::Sender<Bytes>>>,
    state: Arc<State>,
    group: Group,
    children: TaskTracker,
}

#[derive(Debug)]
struct State {
    inbound: Inbound,
    /// Cancelled when the child is gone and its group with it.
    ended: CancellationToken,
    /// The last line that the child wrote to stderr, which often says why it ended.
    last_words: Mutex<String>,
    /// Bytes that wait for the child to read them.
    waiting: AtomicUsize,
}

/// A process group; gone when the child could not tell its id.
#[derive(Clone, Copy, Debug)]
struct Group(Option<Pid>);

impl Group {
    fn signal(self, signal: Signal) {
        if let Some(group) = self.0 {
            // The group may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Link for StdioLink {
    fn request(&self, outgoing: Outgoing) -> Option<Carrier> {
        let Outgoing { number, message, .. } = outgoing;
        if let Err(failure) = self.write(message) {
            self.state.inbound.exchanges.end(number, Err(failure));
        }
        // The reader does the rest.
        None
    }

    fn send(&self, message: Bytes, _headers: HeaderMap) -> Sending<'_> {
        let written = self.write(message);
        Box::pin(std::future::ready(written))
    }

    fn listen(&self, _headers: HeaderMap) {}

    fn agreed(&self, _version: Version) {}

    fn is_lost(&self) -> bool {
        self.state.ended.is_cancelled()
    }

    fn close(&self, _headers: HeaderMap) {
        self.state.inbound.exchanges.abandon_all(&Failure::Abandoned);
        if self.lines.lock().take().is_none() {
            return;
        }
        let (state, group) = (Arc::clone(&self.state), self.group);
        self.children.spawn(async move {
            for signal in [Signal::TERM, Signal::KILL] {
                if tokio::time::timeout(GRACE, state.ended.cancelled()).await.is_ok() {
                    return;
                }
                group.signal(signal);
            }
        });
    }
}

impl StdioLink {
    fn write(&self, message: Bytes) -> Result<(), Failure> {
        let lines = self.lines.lock();
        let Some(lines) = lines.as_ref().filter(|_| !self.is_lost()) else {
            return Err(Failure::ProcessEnded(self.state.last_words.lock().clone()));
        };
        let size = message.len();
        if self.state.waiting.fetch_add(size, Ordering::AcqRel) + size > WRITE_BYTES {
            self.state.waiting.fetch_sub(size, Ordering::AcqRel);
            return Err(deaf());
        }
        lines.try_send(one_line(message)).map_err(|error| {
            self.state.waiting.fetch_sub(size, Ordering::AcqRel);
            match error {
                mpsc::error::TrySendError::Full(_) => deaf(),
                mpsc::error::TrySendError::Closed(_) => Failure::ProcessEnded(self.state.last_words.lock().clone()),
            }
        })
    }
}

impl State {
    /// Takes in lines until stdout ends. Never waits for a client: what it delivers to is bounded and drops.
    async fn read(&self, stdout: impl AsyncRead + Unpin, replies: mpsc::WeakSender<Bytes>) {
        let mut reader = BufReader::new(stdout);
        let mut line = Vec::new();
        loop {
            match read_line(&mut reader, &mut line, MAX_MESSAGE).await {
                Line::Whole => {}
                Line::TooLong => {
                    tracing::warn!(limit = MAX_MESSAGE, "a line of the server is too long and was skipped");
                    // It may have been the response to any of the requests in flight, which would wait for ever.
                    self.inbound.exchanges.abandon_all(&Failure::TooLarge(MAX_MESSAGE));
                    continue;
                }
                Line::End => return,
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Message::parse_all(&Bytes::copy_from_slice(&line)) {
                Ok(messages) => {
                    for reply in messages.into_iter().filter_map(|message| self.inbound.deliver_unaddressed(message)) {
                        let size = reply.len();
                        self.waiting.fetch_add(size, Ordering::AcqRel);
                        if replies.upgrade().is_none_or(|lines| lines.try_send(reply).is_err()) {
                            self.waiting.fetch_sub(size, Ordering::AcqRel);
                        }
                    }
                }
                Err(malformed) => {
                    let line = String::from_utf8_lossy(&line);
                    tracing::warn!(%malformed, line = excerpt(&line), "the server wrote a line that is no message");
                }
            }
        }
    }

    async fn reap(&self, mut child: Child, group: &Group, words: tokio::task::JoinHandle<()>) {
        let status = if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
            status
        } else {
            group.signal(Signal::TERM);
            if let Ok(status) = tokio::time::timeout(GRACE, child.wait()).await {
                status
            } else {
                group.signal(Signal::KILL);
                child.wait().await
            }
        };
        // Whatever the command left behind in its group.
        group.signal(Signal::KILL);
        let _ = tokio::time::timeout(GRACE, words).await;
        let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        let fate = {
            let mut last = self.last_words.lock();
            *last = if last.is_empty() { status } else { format!("{status}; its last words: {}", excerpt(&last)) };
            last.clone()
        };
        self.ended.cancel();
        self.inbound.observer.emit(events::ChildEnded { fate: &fate });
        self.inbound.exchanges.abandon_all(&Failure::ProcessEnded(fate));
    }
}

fn deaf() -> Failure {
    let size = bytesize::ByteSize(WRITE_BYTES as u64);
    Failure::Unreachable(format!("it does not read its stdin; {WRITE_QUEUE} messages or {size} may wait, and do"))
}

async fn write(mut stdin: ChildStdin, mut queue: mpsc::Receiver<Bytes>, state: Arc<State>) {
    while let Some(line) = queue.recv().await {
        let written = stdin.write_all(&line).await.is_ok() && stdin.write_all(b"\n").await.is_ok();
        state.waiting.fetch_sub(line.len(), Ordering::AcqRel);
        if !written {
            return;
        }
    }
}

async fn drain_stderr(stderr: impl AsyncRead + Unpin, state: Arc<State>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    while !matches!(read_line(&mut reader, &mut line, MAX_LOG_LINE).await, Line::End) {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if !text.is_empty() {
            tracing::info!(target: "taskgate::upstream::stderr", "{}", excerpt(text));
            excerpt(text).clone_into(&mut state.last_words.lock());
        }
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line without its end into `line`; of a line over `limit` bytes only the beginning is kept.
async fn read_line(reader: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>, limit: usize) -> Line {
    line.clear();
    let mut too_long = false;
    loop {
        let Ok(chunk) = reader.fill_buf().await else { return Line::End };
        if chunk.is_empty() {
            return if line.is_empty() { Line::End } else { Line::Whole };
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = &chunk[..end.unwrap_or(chunk.len())];
        let room = limit - line.len();
        too_long |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(chunk.len(), |at| at + 1);
        reader.consume(used);
        if end.is_some() {
            return if too_long { Line::TooLong } else { Line::Whole };
        }
    }
}

/// A message must not span lines here; line ends inside JSON are only white space.
fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let mut out = BytesMut::from(&message[..]);
    for byte in out.iter_mut().filter(|byte| matches!(**byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    out.freeze()
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}
