//! One child process: its stdin, stdout and stderr, and its end.

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
    upstream::{Carrier, Exchanges, Failure, MAX_MESSAGE},
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
/// How long taskgate reads on from a child that has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long each cleanup after a child's end may take.
const GRACE: Duration = Duration::from_secs(2);

/// Handles what a child says. Nothing here may wait, because it would hold up the reader.
pub(super) trait ChildHandler: fmt::Debug + Send + Sync {
    /// Takes one message of the child.
    fn on_message(&self, message: Message, child: &Child);

    /// Ends the request of that number, whose response is lost: it was malformed or too long. Without a number, ends
    /// every request in flight, because the message may have been the response to any of them.
    fn on_lost(&self, number: Option<u64>, failure: Failure);

    /// Ends every request in flight, because the child is gone.
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
    /// The messages that wait for it. Closing the queue closes its stdin.
    queue: Arc<StdinQueue>,
    /// What it wrote to stderr last, which often explains its end.
    last_words: Mutex<LastWords>,
    /// How it ended.
    fate: OnceLock<String>,
    started: Instant,
    /// Whether the handshake is over.
    initialized: AtomicBool,
    /// Whether it has been told to end.
    stopped: AtomicBool,
    /// Whether it did not end with its stdin and got a signal.
    signalled: AtomicBool,
    /// Cancelled when the child is gone and its group with it.
    ended: CancellationToken,
    /// The process group that it leads.
    group: Group,
    /// What it has in common with the other children of its command.
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
        tokio::spawn(Arc::clone(&child).write_stdin(stdin));
        let words = tokio::spawn(Arc::clone(&child).read_stderr(stderr));
        child.roster.tasks.spawn(Arc::clone(&child).follow(process, stdout, words, slot, handler));
        child
    }

    /// Returns the path of the upstream.
    pub(super) fn upstream(&self) -> &str {
        self.roster.upstream.as_str()
    }

    /// Queues a notification, or an answer to a request of the child.
    ///
    /// # Errors
    /// [`Failure`] if the child is gone or about to end, or if the sender is at a limit.
    pub(super) fn tell(&self, sender: SenderId, class: MessageClass, message: Bytes) -> Result<(), Failure> {
        self.queue.tell(sender, class, message).map_err(|why| self.failure(why))
    }

    /// Queues the call that is exchange `number` of `exchanges`. Returns the work that waits until the call has been
    /// written.
    ///
    /// # Errors
    /// The same as for [`Child::tell`]; but a task's call always finds a place.
    pub(super) fn call(
        self: &Arc<Self>,
        sender: SenderId,
        class: MessageClass,
        message: Bytes,
        exchanges: &Arc<Exchanges>,
        number: u64,
    ) -> Result<Carrier, Failure> {
        let queued = self.queue.call(sender, class, message).map_err(|why| self.failure(why))?;
        let (child, exchanges) = (Arc::clone(self), Arc::clone(exchanges));
        Ok(Box::pin(async move {
            if !queued.written().await {
                // A child that has closed its stdin probably ends soon, and the way it ends says more.
                let _ = timeout(2 * TIME_TO_END, child.ended.cancelled()).await;
                exchanges.end(number, Err(child.failure(NotTaken::Closed)));
            }
        }))
    }

    /// Takes back a call that still waits, by the number in its class. Returns whether it did: then the child never gets it.
    pub(super) fn withdraw(&self, sender: SenderId, number: u64) -> bool {
        self.queue.withdraw(sender, number)
    }

    /// Drops what waits of a sender that has gone, except for its answers and its requests about subscriptions. Returns
    /// the numbers of the dropped calls.
    pub(super) fn forget(&self, sender: SenderId) -> Vec<u64> {
        self.queue.forget(sender)
    }

    fn failure(&self, why: NotTaken) -> Failure {
        match (why, self.fate.get()) {
            (NotTaken::Closed, Some(fate)) => Failure::ProcessEnded(fate.clone()),
            (NotTaken::Closed, None) => Failure::ProcessEnded(self.last_words.lock().behind(why)),
            _ => Failure::Limit(why.to_string()),
        }
    }

    /// Notes that the handshake is over.
    pub(super) fn initialized(&self) {
        // Pairs with the loads in `settle` and `follow`.
        self.initialized.store(true, Ordering::Release);
        self.settle();
    }

    /// Notes that it is a modern server, which needs no handshake.
    pub(super) fn set_modern(&self) {
        self.queue.take_no_answers();
        self.initialized();
    }

    /// Returns a token that is cancelled when the child and all that it has started are gone.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Ends the child in the background: closes its stdin, then sends SIGTERM, then SIGKILL.
    pub(super) fn stop(self: &Arc<Self>) {
        // Pairs with the load in `follow`.
        if self.stopped.swap(true, Ordering::AcqRel) {
            return;
        }
        self.queue.close();
        self.end_by_force();
    }

    /// Sends SIGTERM, then SIGKILL, where the child does not end by itself.
    fn end_by_force(self: &Arc<Self>) {
        let child = Arc::clone(self);
        self.roster.tasks.spawn(async move {
            for signal in [Signal::TERM, Signal::KILL] {
                if timeout(TIME_TO_END, child.ended.cancelled()).await.is_ok() {
                    return;
                }
                // Pairs with the load in `reap`.
                child.signalled.store(true, Ordering::Release);
                child.group.signal(signal);
            }
        });
    }

    /// Follows the child to its end, and cleans up after it.
    async fn follow(
        self: Arc<Self>,
        mut process: process::Child,
        stdout: ChildStdout,
        words: JoinHandle<()>,
        slot: Slot,
        handler: Arc<dyn ChildHandler>,
    ) {
        let gone = async {
            let _ = process.wait().await;
            // Its last output is still on its way, and a process that it started may hold its stdout open for ever.
            sleep(LAST_WORDS).await;
        };
        let settles = async {
            sleep(SETTLED).await;
            self.settle();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Output comes first, so that all of it is read also when this task runs late.
            biased;
            () = self.read_stdout(stdout, &*handler) => {}
            () = gone => {}
            () = settles => {}
        }
        // These pair with the swap in `stop` and the store in `initialized`.
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
    async fn read_stdout(&self, stdout: ChildStdout, handler: &dyn ChildHandler) {
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
                        // No call waits for it.
                        Meant::Unanswerable => {}
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
                    Meant::Response(None) | Meant::Unanswerable | Meant::Unknown => {}
                }
            }
        }
    }

    /// Answers a malformed request.
    fn refuse(&self, id: &str, why: impl fmt::Display) {
        let error = RpcError::invalid_request(format!("Invalid request: {why}"));
        // A child that refuses the answer has ended, or does not read.
        let _ = self.tell(TASKGATE, MessageClass::Answer, error.to_response(Some(id)));
    }

    /// Ends what is left of the child and of all that it has started. Returns how it ended.
    async fn reap(&self, mut process: process::Child, mut words: JoinHandle<()>, slot: Slot) -> String {
        let mut status = timeout(TIME_TO_END, process.wait()).await;
        // Pairs with the swap in `stop`.
        let lives_on = status.is_err() && !self.stopped.load(Ordering::Acquire);
        for signal in [Signal::TERM, Signal::KILL] {
            if status.is_err() {
                self.group.signal(signal);
                status = timeout(TIME_TO_END, process.wait()).await;
            }
        }
        // What the command has left in its group and outside of it.
        self.group.signal(Signal::KILL);
        let marks = [slot.mark.clone()];
        let _ = timeout(GRACE, tokio::task::spawn_blocking(move || strays::kill(&marks))).await;
        if timeout(GRACE, &mut words).await.is_err() {
            words.abort();
        }
        drop(slot);
        let status = match status {
            Ok(Ok(status)) => {
                // Pairs with the store in `stop`.
                *self.roster.last_status.lock() = Some(status).filter(|_| !self.signalled.load(Ordering::Acquire));
                status.to_string()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no end even after SIGKILL".to_owned(),
        };
        let cause = if lives_on { "taskgate ended it, as it had closed its stdout: " } else { "" };
        self.fate.get_or_init(|| self.last_words.lock().behind(format!("{cause}{status}"))).clone()
    }

    /// Resets the backoff once the child has been initialised and has lived for long, which shows that the command
    /// works.
    fn settle(&self) {
        // Pairs with the store in `initialized`.
        if self.initialized.load(Ordering::Acquire) && self.started.elapsed() >= SETTLED {
            self.roster.backoff.settled();
        }
    }

    /// Writes what waits to stdin.
    async fn write_stdin(self: Arc<Self>, mut stdin: ChildStdin) {
        while let Some(message) = self.queue.next().await {
            if lines::write(&mut stdin, &message).await.is_err() {
                // A child that reads no more would stay in the place of one that does.
                self.end_by_force();
                break;
            }
            self.queue.written();
        }
        self.queue.clear();
    }

    /// Reads stderr into the log.
    async fn read_stderr(self: Arc<Self>, stderr: ChildStderr) {
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
