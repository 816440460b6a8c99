//! The runtimes that serve connections: one for each processor, each on a thread of its own.
//!
//! A connection stays with its worker, and so do the calls that come over it, their tasks and the connections to
//! servers that they open. No worker takes work from another, so a call on a kept connection wakes no second thread.

use std::{
    future::{Future, pending},
    io,
    num::NonZero,
    sync::Arc,
    thread,
};

use tokio::{
    net::TcpStream,
    runtime::{Builder, Handle, Runtime},
    task::AbortHandle,
};

/// How many events of its sockets a worker takes at once.
const EVENTS: usize = 64;
/// How many of its tasks a busy worker polls before it takes events again.
const POLLS_WHILE_BUSY: u32 = 64;
/// How many events it takes then. The end of a call wakes two tasks, that of the call and that of the client's
/// connection, hence 32 for 64 polls.
const EVENTS_WHILE_BUSY: usize = 32;

/// The runtimes that serve connections.
#[derive(Debug)]
pub struct Workers {
    first: Worker,
    others: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Each of its connections has a clone.
    connections: Arc<()>,
}

impl Workers {
    /// Builds a runtime for one thread, which has to block on it.
    ///
    /// # Errors
    /// If the system gives no file descriptor.
    pub fn runtime() -> io::Result<Runtime> {
        Builder::new_current_thread()
            .enable_all()
            .event_interval(POLLS_WHILE_BUSY)
            .max_io_events_per_tick(EVENTS)
            .max_io_events_per_busy_tick(EVENTS_WHILE_BUSY)
            .build()
    }

    /// Has the caller's runtime be the worker of one processor, and starts a thread for each other that the process may
    /// use. The threads end with the process: what they do may still have to be ended in order when the listener is
    /// gone.
    ///
    /// # Errors
    /// If the system gives no thread, or no file descriptor for a runtime.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn start() -> io::Result<Self> {
        let count = thread::available_parallelism().map_or(1, NonZero::get);
        let others = (1..count).map(|_| Worker::start()).collect::<io::Result<_>>()?;
        Ok(Self { others, ..Self::here() })
    }

    /// Has the caller's runtime serve all connections, without further threads.
    ///
    /// # Panics
    /// Outside of a runtime.
    #[must_use]
    pub fn here() -> Self {
        let first = Worker { runtime: Handle::current(), connections: Arc::default() };
        Self { first, others: Vec::new() }
    }

    /// Has the worker with the fewest connections serve `stream`.
    pub(super) fn spawn<F: Future<Output = ()> + Send>(
        &self,
        stream: TcpStream,
        serve: impl FnOnce(TcpStream) -> F + Send + 'static,
    ) -> AbortHandle {
        let worker = self.others.iter().fold(
            &self.first,
            |least, worker| {
                if worker.open() < least.open() { worker } else { least }
            },
        );
        let connection = Arc::clone(&worker.connections);
        let serving = worker.runtime.spawn(async move {
            // Takes the stream from the runtime that accepted it to this one.
            match stream.into_std().and_then(TcpStream::from_std) {
                Ok(stream) => serve(stream).await,
                Err(error) => tracing::warn!(%error, "a connection could not be served"),
            }
            drop(connection);
        });
        serving.abort_handle()
    }
}

impl Worker {
    fn start() -> io::Result<Self> {
        let runtime = Workers::runtime()?;
        let handle = runtime.handle().clone();
        thread::Builder::new().name("worker".to_owned()).spawn(move || runtime.block_on(pending::<()>()))?;
        Ok(Self { runtime: handle, connections: Arc::default() })
    }

    /// Returns how many connections it serves, plus one.
    fn open(&self) -> usize {
        Arc::strong_count(&self.connections)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        os::unix::net::UnixStream,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use tokio::{
        net::TcpListener,
        sync::{
            Semaphore,
            mpsc::{self, Sender},
            oneshot,
        },
        task::JoinSet,
    };

    use super::*;

    /// Has a connection served that says on which thread, and then stays open.
    async fn connected(workers: &Workers, told: Sender<thread::ThreadId>) -> (std::net::TcpStream, AbortHandle) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let client = std::net::TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client");
        let serving = workers.spawn(stream, move |stream| async move {
            told.send(thread::current().id()).await.expect("the test listens");
            pending::<()>().await;
            drop(stream);
        });
        (client, serving)
    }

    #[tokio::test]
    async fn a_new_connection_goes_to_the_worker_with_the_fewest() {
        let [first, second] = std::array::from_fn(|_| Worker::start().expect("a thread"));
        let workers = Workers { first, others: vec![second] };
        let (told, mut threads) = mpsc::channel(2);
        let mut next = async || {
            let open = connected(&workers, told.clone()).await;
            (threads.recv().await.expect("it is served"), open)
        };
        let (one, leaves) = next().await;
        let (other, _stays) = next().await;
        assert_ne!(one, other);
        leaves.1.abort();
        while workers.first.open() > 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(next().await.0, one);
    }

    #[test]
    fn an_answer_is_sent_before_many_more_are_read() {
        let ready = Arc::new(Semaphore::new(0));
        let [unanswered, most] = std::array::from_fn(|_| Arc::new(AtomicUsize::new(0)));
        Workers::runtime().expect("descriptors").block_on(async {
            let (mut servers, mut calls) = (Vec::new(), JoinSet::new());
            for _ in 0..EVENTS * 3 {
                let (server, ours) = UnixStream::pair().expect("descriptors");
                servers.push(server);
                ours.set_nonblocking(true).expect("it can");
                let ours = tokio::net::UnixStream::from_std(ours).expect("a runtime");
                let (ended, end) = oneshot::channel();
                let (ready, most) = (Arc::clone(&ready), Arc::clone(&most));
                let [counted, answered] = std::array::from_fn(|_| Arc::clone(&unanswered));
                calls.spawn(async move {
                    ready.add_permits(1);
                    ours.readable().await.expect("it is open");
                    most.fetch_max(counted.fetch_add(1, Relaxed) + 1, Relaxed);
                    ended.send(()).expect("the answer waits");
                });
                calls.spawn(async move {
                    end.await.expect("it is read");
                    answered.fetch_sub(1, Relaxed);
                });
            }
            let all = u32::try_from(servers.len()).expect("few");
            ready.acquire_many(all).await.expect("it is open").forget();
            // All servers answer at once, since the worker reads nothing until then.
            for server in &mut servers {
                server.write_all(b"x").expect("it is open");
            }
            while let Some(call) = calls.join_next().await {
                call.expect("no panic");
            }
        });
        assert_eq!(unanswered.load(Relaxed), 0);
        assert!(most.load(Relaxed) <= EVENTS + EVENTS_WHILE_BUSY, "{most:?} were read before they were answered");
    }
}
