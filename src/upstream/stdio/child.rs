//! One child process: what it is told, what it says, and its end.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::BufReader,
    process::{self, ChildStderr, ChildStdin, ChildStdout},
    sync::mpsc::{self, error::TrySendError},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    backoff::SETTLED,
    children::{Children, Slot},
    lines::{self, Line, one_line},
    strays,
};
use crate::{
    observe::{Observer, events},
    upstream::{Failure, MAX_MESSAGE, excerpt},
    wire::{
        Message, RpcError,
        beginning::{Meant, meant},
        received::{Broken, Received, receive},
    },
};

/// How many messages may wait for a child that does not read.
const WRITE_QUEUE: usize = 256;
/// How many bytes may wait for a child that does not read.
const WRITE_BYTES: usize = 16 * 1024 * 1024;
/// The longest line of stderr that is logged, in bytes.
const MAX_LOG_LINE: usize = 16 * 1024;
/// How long a child that has ended is still listened to.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long what is left to do after a child's end may take.
const GRACE: Duration = Duration::from_secs(2);

/// Who hears what a child says. Nothing here may wait: it holds up the reader.
pub(super) trait Ears: fmt::Debug + Send + Sync {
    /// One message.
    fn hear(&self, message: Message, child: &Child);

    /// A message was too long and is lost. It was the response to the request of that number, or, if there is none, may
    /// have been that to any request in flight, which would wait for ever.
    fn miss(&self, number: Option<u64>, failure: Failure);

    /// The child is gone, and every request in flight ends.
    fn end(&self, failure: &Failure);
}

/// A process group, named by the process that leads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group(pub(super) Pid);

impl Group {
    /// Returns the process id of its leader.
    pub(super) fn pid(self) -> u32 {
        self.0.as_raw_nonzero().get().unsigned_abs()
    }

    pub(super) fn signal(self, signal: Signal) {
        // The group may have ended by itself.
        let _ = kill_process_group(self.0, signal);
    }
}

/// The other ends of a child's stdin, stdout and stderr.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A child that was started.
#[derive(Debug)]
pub(super) struct Child {
    /// Dropped to close the child's stdin.
    lines: Mutex<Option<mpsc::Sender<Bytes>>>,
    /// Bytes that wait for the child to read them.
    waiting: AtomicUsize,
    /// The last line that the child wrote to stderr, which often says why it ended.
    last_words: Mutex<String>,
    started: Instant,
    initialized: AtomicBool,
    /// Whether it did not end with its stdin and got a signal.
    signalled: AtomicBool,
    /// Cancelled when the child is gone and its group with it.
    ended: CancellationToken,
    group: Group,
    children: Arc<Children>,
}

impl Child {
    /// Takes over a process that was just started.
    pub(super) fn run(
        children: Arc<Children>,
        process: process::Child,
        pipes: Pipes,
        slot: Slot,
        ears: Arc<dyn Ears>,
        observer: Arc<Observer>,
    ) -> Arc<Self> {
        let (lines, queue) = mpsc::channel(WRITE_QUEUE);
        let child = Arc::new(Self {
            lines: Mutex::new(Some(lines)),
            waiting: AtomicUsize::new(0),
            last_words: Mutex::default(),
            started: Instant::now(),
            initialized: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            ended: CancellationToken::new(),
            group: slot.group(),
            children,
        });
        let Pipes { stdin, stdout, stderr } = pipes;
        tokio::spawn(Arc::clone(&child).write_all(stdin, queue));
        let words = tokio::spawn(Arc::clone(&child).drain(stderr));
        child.children.tasks.spawn(Arc::clone(&child).accompany(process, stdout, words, slot, ears, observer));
        child
    }

    /// Queues a message for the child.
    ///
    /// # Errors
    /// [`Failure`] if the child is gone, is to end, or does not read.
    pub(super) fn write(&self, message: Bytes) -> Result<(), Failure> {
        let gone = || Failure::ProcessEnded(self.last_words.lock().clone());
        let lines = self.lines.lock();
        let Some(lines) = lines.as_ref().filter(|_| !self.has_ended()) else { return Err(gone()) };
        let size = message.len();
        if self.waiting.fetch_add(size, Ordering::AcqRel) + size > WRITE_BYTES {
            self.waiting.fetch_sub(size, Ordering::AcqRel);
            return Err(deaf());
        }
        lines.try_send(one_line(message)).map_err(|error| {
            self.waiting.fetch_sub(size, Ordering::AcqRel);
            match error {
                TrySendError::Full(_) => deaf(),
                TrySendError::Closed(_) => gone(),
            }
        })
    }

    /// Notes that the handshake is over.
    pub(super) fn initialized(&self) {
        self.initialized.store(true, Ordering::Release);
        self.settle();
    }

    /// Whether the child is gone, and all that it has started.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Cancelled when the child is gone, and all that it has started.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Ends the child in the background: by the end of its stdin, by SIGTERM, by SIGKILL.
    pub(super) fn stop(self: &Arc<Self>) {
        if self.lines.lock().take().is_none() {
            return;
        }
        let child = Arc::clone(self);
        self.children.tasks.spawn(async move {
            for signal in [Signal::TERM, Signal::KILL] {
                if timeout(child.children.grace, child.ended.cancelled()).await.is_ok() {
                    return;
                }
                child.signalled.store(true, Ordering::Release);
                child.group.signal(signal);
            }
        });
    }

    async fn accompany(
        self: Arc<Self>,
        mut process: process::Child,
        stdout: ChildStdout,
        words: JoinHandle<()>,
        slot: Slot,
        ears: Arc<dyn Ears>,
        observer: Arc<Observer>,
    ) {
        let gone = async {
            let _ = process.wait().await;
            // What it wrote last is still on its way; what it started may hold its stdout open for ever.
            sleep(LAST_WORDS).await;
        };
        let settles = async {
            sleep(SETTLED).await;
            self.settle();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // What can be read is read, however late this task comes to it.
            biased;
            () = self.listen(stdout, &*ears) => {}
            () = gone => {}
            () = settles => {}
        }
        let by_itself = self.lines.lock().is_some();
        let young = !self.initialized.load(Ordering::Acquire) || self.started.elapsed() < SETTLED;
        let fate = self.reap(process, words, slot).await;
        if by_itself && young {
            self.children.backoff.failed(self.started, &fate);
        }
        self.ended.cancel();
        self.lines.lock().take();
        observer.emit(events::ChildEnded { upstream: &self.children.path, pid: self.group.pid(), fate: &fate });
        ears.end(&Failure::ProcessEnded(fate));
    }

    /// Takes in lines until stdout ends.
    async fn listen(&self, stdout: ChildStdout, ears: &dyn Ears) {
        let mut reader = BufReader::new(stdout);
        loop {
            let line = match lines::read(&mut reader, MAX_MESSAGE).await {
                Line::Whole(line) => line,
                Line::TooLong(beginning) => {
                    let (upstream, pid) = (&*self.children.path, self.group.pid());
                    tracing::warn!(
                        upstream,
                        pid,
                        limit = MAX_MESSAGE,
                        "a line of the server is too long and was skipped"
                    );
                    let too_large = Failure::TooLarge(MAX_MESSAGE);
                    match meant(&beginning) {
                        Meant::Response(number) => ears.miss(number, too_large),
                        Meant::Request(id) => self.refuse(&id, format!("it is longer than {MAX_MESSAGE} bytes")),
                        Meant::Unknown => ears.miss(None, too_large),
                    }
                    continue;
                }
                Line::End => return,
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            for received in receive(&line) {
                match received {
                    Received::Message(message) => ears.hear(message, self),
                    Received::Broken(Broken { why, meant }) => {
                        // Not the line: it may be a result.
                        let (upstream, pid, bytes) = (&*self.children.path, self.group.pid(), line.len());
                        tracing::warn!(upstream, pid, why, bytes, "the server wrote a line that is no message");
                        match meant {
                            Meant::Response(Some(number)) => ears.miss(Some(number), Failure::BadAnswer(why)),
                            Meant::Request(id) => self.refuse(&id, why),
                            Meant::Response(None) | Meant::Unknown => {}
                        }
                    }
                }
            }
        }
    }

    /// Answers a request that is none.
    fn refuse(&self, id: &str, why: impl fmt::Display) {
        let error = RpcError::invalid_request(format!("Invalid request: {why}"));
        // A child that cannot be told has ended, or does not read.
        let _ = self.write(error.to_response(Some(id)));
    }

    /// Ends what is left of the child and of all that it has started; says how it ended.
    async fn reap(&self, mut process: process::Child, mut words: JoinHandle<()>, slot: Slot) -> String {
        let grace = self.children.grace;
        let mut status = timeout(grace, process.wait()).await;
        for signal in [Signal::TERM, Signal::KILL] {
            if status.is_err() {
                self.group.signal(signal);
                status = timeout(grace, process.wait()).await;
            }
        }
        // Whatever the command left behind in its group, and outside of it.
        self.group.signal(Signal::KILL);
        let marks = [slot.mark.clone()];
        let _ = timeout(GRACE, tokio::task::spawn_blocking(move || strays::kill(&marks))).await;
        if timeout(GRACE, &mut words).await.is_err() {
            words.abort();
        }
        drop(slot);
        let status = match status {
            Ok(Ok(status)) => {
                *self.children.last_status.lock() = Some(status).filter(|_| !self.signalled.load(Ordering::Acquire));
                status.to_string()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no end even after SIGKILL".to_owned(),
        };
        let mut last = self.last_words.lock();
        *last = if last.is_empty() { status } else { format!("{status}; its last words: {}", excerpt(&last)) };
        last.clone()
    }

    /// A child that was initialised and has lived for long shows that the command works.
    fn settle(&self) {
        if self.initialized.load(Ordering::Acquire) && self.started.elapsed() >= SETTLED {
            self.children.backoff.settled();
        }
    }

    async fn write_all(self: Arc<Self>, mut stdin: ChildStdin, mut queue: mpsc::Receiver<Bytes>) {
        while let Some(message) = queue.recv().await {
            let written = lines::write(&mut stdin, &message).await;
            self.waiting.fetch_sub(message.len(), Ordering::AcqRel);
            if written.is_err() {
                return;
            }
        }
    }

    async fn drain(self: Arc<Self>, stderr: ChildStderr) {
        let mut reader = BufReader::new(stderr);
        while let Line::Whole(line) | Line::TooLong(line) = lines::read(&mut reader, MAX_LOG_LINE).await {
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if !text.is_empty() {
                let (upstream, pid, text) = (&*self.children.path, self.group.pid(), excerpt(text));
                tracing::info!(target: "taskgate::upstream::stderr", upstream, pid, "{text}");
                *self.last_words.lock() = text.into_owned();
            }
        }
    }
}

fn deaf() -> Failure {
    let size = bytesize::ByteSize(WRITE_BYTES as u64);
    Failure::Unreachable(format!("it does not read its stdin; {WRITE_QUEUE} messages or {size} may wait, and do"))
}
