//! One child process: what it is told, what it says, and its end.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::{
    io::BufReader,
    process::{self, ChildStderr, ChildStdin, ChildStdout},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    backoff::SETTLED,
    lines::{self, Line},
    queue::StdinQueue,
    roster::{Group, Roster, Slot},
    share::{MessageClass, NotTaken, SenderId, TASKGATE},
    strays,
    words::LastWords,
};
use crate::{
    observe::{Observer, events},
    upstream::{Carrier, Failure, Inbound, MAX_MESSAGE},
    wire::{
        Message, RpcError,
        beginning::{Meant, meant},
        received::{Broken, Received, receive},
    },
};

/// How long a child may take to end after its stdin was closed, and again after SIGTERM.
pub(crate) const TIME_TO_END: Duration = Duration::from_millis(1500);
/// The longest line of stderr that is logged, in bytes.
const MAX_LOG_LINE: usize = 16 * 1024;
/// How long a child that has ended is still listened to.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long what is left to do after a child's end may take.
const GRACE: Duration = Duration::from_secs(2);

/// Who hears what a child says. Nothing here may wait: it holds up the reader.
pub(super) trait ChildHandler: fmt::Debug + Send + Sync {
    /// One message.
    fn on_message(&self, message: Message, child: &Child);

    /// A message was too long and is lost. It was the response to the request of that number, or, if there is none, may
    /// have been that to any request in flight, which would wait for ever.
    fn on_lost(&self, number: Option<u64>, failure: Failure);

    /// The child is gone, and every request in flight ends.
    fn on_end(&self, failure: &Failure);
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
    /// What waits for it; closed to close its stdin.
    queue: Arc<StdinQueue>,
    /// What it wrote to stderr last, which often says why it ended.
    last_words: Mutex<LastWords>,
    /// How it ended.
    fate: OnceLock<String>,
    started: Instant,
    initialized: AtomicBool,
    /// Whether it has been told to end.
    stopped: AtomicBool,
    /// Whether it did not end with its stdin and got a signal.
    signalled: AtomicBool,
    /// Cancelled when the child is gone and its group with it.
    ended: CancellationToken,
    group: Group,
    roster: Arc<Roster>,
    observer: Arc<Observer>,
}

impl Child {
    /// Takes over a process that was just started.
    pub(super) fn run(
        roster: Arc<Roster>,
        process: process::Child,
        pipes: Pipes,
        slot: Slot,
        handler: Arc<dyn ChildHandler>,
        observer: Arc<Observer>,
    ) -> Arc<Self> {
        let child = Arc::new(Self {
            queue: StdinQueue::new(Arc::clone(&observer)),
            last_words: Mutex::default(),
            fate: OnceLock::new(),
            started: Instant::now(),
            initialized: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            signalled: AtomicBool::new(false),
            ended: CancellationToken::new(),
            group: slot.group,
            roster,
            observer,
        });
        let Pipes { stdin, stdout, stderr } = pipes;
        tokio::spawn(Arc::clone(&child).write_all(stdin));
        let words = tokio::spawn(Arc::clone(&child).drain(stderr));
        child.roster.tasks.spawn(Arc::clone(&child).accompany(process, stdout, words, slot, handler));
        child
    }

    /// Queues a notification, or an answer to a request of the child.
    ///
    /// # Errors
    /// [`Failure`] if the child is gone, is to end, or as much of this sender waits as may.
    pub(super) fn tell(&self, sender: SenderId, what: MessageClass, message: Bytes) -> Result<(), Failure> {
        self.queue.tell(sender, what, message).map_err(|why| self.failure(why))
    }

    /// Queues the call that is the exchange `number` of `inbound`; returns what waits with it until it was written.
    ///
    /// # Errors
    /// As [`Child::tell`]; the call of a task finds a place in any case.
    pub(super) fn call(
        self: &Arc<Self>,
        sender: SenderId,
        what: MessageClass,
        message: Bytes,
        (inbound, number): (&Inbound, u64),
    ) -> Result<Carrier, Failure> {
        let place = self.queue.call(sender, what, message).map_err(|why| self.failure(why))?;
        let (child, exchanges) = (Arc::clone(self), Arc::clone(&inbound.exchanges));
        Ok(Box::pin(async move {
            if !place.written().await {
                // A child that has closed its stdin is likely to end, and how it does says more.
                let _ = timeout(2 * TIME_TO_END, child.ended.cancelled()).await;
                exchanges.end(number, Err(child.failure(NotTaken::Closed)));
            }
        }))
    }

    /// Gives up what waits of a sender that has gone, but for its answers; returns the numbers of the calls.
    pub(super) fn forget(&self, sender: SenderId) -> Vec<u64> {
        self.queue.forget(sender)
    }

    fn failure(&self, why: NotTaken) -> Failure {
        match (why, self.fate.get()) {
            (NotTaken::Closed, Some(fate)) => Failure::ProcessEnded(fate.clone()),
            (NotTaken::Closed, None) => Failure::ProcessEnded(self.with_last_words(why)),
            _ => Failure::Limit(why.to_string()),
        }
    }

    /// Notes that the handshake is over.
    pub(super) fn initialized(&self) {
        self.initialized.store(true, Ordering::Release);
        self.settle();
    }

    /// Cancelled when the child is gone, and all that it has started.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Ends the child in the background: by the end of its stdin, by SIGTERM, by SIGKILL.
    pub(super) fn stop(self: &Arc<Self>) {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        self.queue.close();
        let child = Arc::clone(self);
        self.roster.tasks.spawn(async move {
            for signal in [Signal::TERM, Signal::KILL] {
                if timeout(TIME_TO_END, child.ended.cancelled()).await.is_ok() {
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
        handler: Arc<dyn ChildHandler>,
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
            () = self.listen(stdout, &*handler) => {}
            () = gone => {}
            () = settles => {}
        }
        let by_itself = !self.stopped.load(Ordering::Acquire);
        let young = !self.initialized.load(Ordering::Acquire) || self.started.elapsed() < SETTLED;
        let fate = self.reap(process, words, slot).await;
        if by_itself && young {
            self.roster.backoff.failed(self.started, &fate);
        }
        self.queue.clear();
        self.ended.cancel();
        self.observer.emit(events::ChildEnded {
            upstream: self.roster.upstream.as_str(),
            pid: self.group.pid(),
            fate: &fate,
        });
        handler.on_end(&Failure::ProcessEnded(fate));
    }

    /// Takes in lines until stdout ends.
    async fn listen(&self, stdout: ChildStdout, handler: &dyn ChildHandler) {
        let mut reader = BufReader::new(stdout);
        let mut first = true;
        loop {
            let line = match lines::read(&mut reader, MAX_MESSAGE).await {
                Line::Whole(line) => line,
                Line::TooLong(beginning) => {
                    let (upstream, pid) = (self.roster.upstream.as_str(), self.group.pid());
                    tracing::warn!(
                        upstream,
                        pid,
                        limit = MAX_MESSAGE,
                        "a line of the server is too long and was skipped"
                    );
                    let too_large = Failure::TooLarge(MAX_MESSAGE);
                    match meant(&beginning) {
                        Meant::Response(number) => handler.on_lost(number, too_large),
                        Meant::Request(id) => self.refuse(&id, format!("it is longer than {MAX_MESSAGE} bytes")),
                        Meant::Unknown => handler.on_lost(None, too_large),
                    }
                    continue;
                }
                Line::End => return,
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            for received in receive(&line) {
                let Broken { why, meant } = match received {
                    Received::Message(message) => {
                        handler.on_message(message, self);
                        continue;
                    }
                    Received::Broken(broken) => broken,
                };
                let (upstream, pid, bytes) = (self.roster.upstream.as_str(), self.group.pid(), line.len());
                self.observer.emit(events::NotAMessage { upstream, pid, why: &why, bytes, first });
                first = false;
                match meant {
                    Meant::Response(Some(number)) => handler.on_lost(Some(number), Failure::BadAnswer(why)),
                    Meant::Request(id) => self.refuse(&id, why),
                    Meant::Response(None) | Meant::Unknown => {}
                }
            }
        }
    }

    /// Answers a request that is none.
    fn refuse(&self, id: &str, why: impl fmt::Display) {
        let error = RpcError::invalid_request(format!("Invalid request: {why}"));
        // A child that cannot be told has ended, or does not read.
        let _ = self.tell(TASKGATE, MessageClass::Answer, error.to_response(Some(id)));
    }

    /// Ends what is left of the child and of all that it has started; says how it ended.
    async fn reap(&self, mut process: process::Child, mut words: JoinHandle<()>, slot: Slot) -> String {
        let mut status = timeout(TIME_TO_END, process.wait()).await;
        for signal in [Signal::TERM, Signal::KILL] {
            if status.is_err() {
                self.group.signal(signal);
                status = timeout(TIME_TO_END, process.wait()).await;
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
                *self.roster.last_status.lock() = Some(status).filter(|_| !self.signalled.load(Ordering::Acquire));
                status.to_string()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no end even after SIGKILL".to_owned(),
        };
        self.fate.get_or_init(|| self.with_last_words(status)).clone()
    }

    fn with_last_words(&self, end: impl fmt::Display) -> String {
        let words = self.last_words.lock().telling();
        words.map_or_else(|| end.to_string(), |words| format!("{end}; its last words: {words}"))
    }

    /// A child that was initialised and has lived for long shows that the command works.
    fn settle(&self) {
        if self.initialized.load(Ordering::Acquire) && self.started.elapsed() >= SETTLED {
            self.roster.backoff.settled();
        }
    }

    async fn write_all(self: Arc<Self>, mut stdin: ChildStdin) {
        while let Some(message) = self.queue.next().await {
            if lines::write(&mut stdin, &message).await.is_err() {
                break;
            }
            self.queue.written();
        }
        self.queue.clear();
    }

    async fn drain(self: Arc<Self>, stderr: ChildStderr) {
        let mut reader = BufReader::new(stderr);
        loop {
            let (line, cut) = match lines::read(&mut reader, MAX_LOG_LINE).await {
                Line::Whole(line) => (line, ""),
                Line::TooLong(beginning) => (beginning, " (cut)"),
                Line::End => return,
            };
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if !text.is_empty() {
                let (upstream, pid) = (self.roster.upstream.as_str(), self.group.pid());
                tracing::info!(target: "taskgate::upstream::stderr", upstream, pid, "{text}{cut}");
                self.last_words.lock().hear(text);
            }
        }
    }
}
