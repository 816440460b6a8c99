//! The log: to stderr, each event as one line, whatever strangers have written into it. No line waits for a reader, and
//! no event fills the log alone.

mod filter;
mod limit;
mod line;
mod queue;

use std::{
    io::{self, IsTerminal},
    sync::Arc,
    time::Duration,
};

pub(crate) use filter::filter;
use limit::{Limit, Limits};
use queue::Queue;
use tracing_subscriber::{
    EnvFilter, Layer as _, filter::ParseError, fmt, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::cli::LogFormat;

/// How long the end of the process waits for a reader of stderr that is slow.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Everything that the process writes to stderr.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    queue: Arc<Queue>,
    limits: Arc<Limits>,
}

impl Log {
    /// Starts the thread that writes to stderr.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, limits) = (Arc::<Queue>::default(), Arc::<Limits>::default());
        let log = Self { queue, limits };
        let (queue, limits) = (Arc::clone(&log.queue), Arc::clone(&log.limits));
        std::thread::Builder::new().name("log".to_owned()).spawn(move || queue.write_on(&limits))?;
        Ok(log)
    }

    /// Takes in events from now on, and panics as events.
    pub(crate) fn listen(&self, directives: &str, format: LogFormat) -> Result<(), ParseError> {
        let (ansi, queue) = (io::stderr().is_terminal(), Arc::clone(&self.queue));
        let lines = fmt::layer()
            .with_ansi(ansi)
            // What cannot be written would be written to stderr, and panic.
            .log_internal_errors(false)
            .with_writer(move || line::OneLine { queue: Arc::clone(&queue), ansi });
        let lines = match format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let filter = EnvFilter::try_new(directives)?;
        tracing_subscriber::registry().with(lines).with(Limit(Arc::clone(&self.limits))).with(filter).init();
        // The default hook writes to stderr itself, and waits for its reader.
        std::panic::set_hook(Box::new(|panic| tracing::error!(target: "taskgate", "{panic}")));
        Ok(())
    }

    /// Writes a text that is no event.
    pub(crate) fn say(&self, text: &str) {
        self.queue.push(format!("{text}\n").as_bytes());
    }

    /// Writes what is left, as far as stderr takes it soon.
    pub(crate) fn finish(&self) {
        self.limits.sum_up();
        self.queue.flush(LAST_LINES);
    }
}
