//! The log on stderr: each event is one line, whatever text from clients is in it. Logging waits for no reader, and no
//! kind of event fills the log alone. Reports do wait: those of `check`, `store` and `man`, and why a start fails.

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
use limit::{EventRates, RateLayer};
use queue::StderrQueue;
use tracing_subscriber::{
    Layer as _,
    filter::{ParseError, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::cli::LogFormat;

/// How long the process waits at its end for a slow reader of stderr.
const FINISH_TIMEOUT: Duration = Duration::from_millis(500);

/// Everything that the process writes to stderr.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    queue: Arc<StderrQueue>,
    rates: Arc<EventRates>,
}

impl Log {
    /// Starts the thread that writes to stderr.
    pub(crate) fn start() -> io::Result<Self> {
        let (queue, rates) = (Arc::<StderrQueue>::default(), Arc::<EventRates>::default());
        let log = Self { queue, rates };
        let (queue, rates) = (Arc::clone(&log.queue), Arc::clone(&log.rates));
        std::thread::Builder::new().name("log".to_owned()).spawn(move || queue.write_forever(&rates))?;
        Ok(log)
    }

    /// Logs events from now on, and panics as events.
    pub(crate) fn listen(&self, directives: &str, format: LogFormat) -> Result<(), ParseError> {
        let (ansi, queue) = (io::stderr().is_terminal(), Arc::clone(&self.queue));
        let lines = fmt::layer()
            .with_ansi(ansi)
            // The layer would write its own errors to stderr, and panic where it cannot.
            .log_internal_errors(false)
            .with_writer(move || line::LineWriter { queue: Arc::clone(&queue), ansi });
        let lines = match format {
            LogFormat::Text => lines.boxed(),
            LogFormat::Json => lines.json().boxed(),
        };
        let filter: Targets = directives.parse()?;
        tracing_subscriber::registry().with(lines).with(RateLayer(Arc::clone(&self.rates))).with(filter).init();
        // The default hook writes to stderr itself, and waits for its reader.
        std::panic::set_hook(Box::new(|panic| tracing::error!(target: "taskgate", "{panic}")));
        Ok(())
    }

    /// Writes a text that is not an event: a report, which is what the command was called for. So nothing of it is lost,
    /// and it waits for its reader, however slow that is.
    pub(crate) fn say(&self, text: &str) {
        self.queue.write_through(format!("{text}\n").as_bytes());
    }

    /// Writes the lines that are left, if stderr takes them soon.
    pub(crate) fn finish(&self) {
        self.rates.sum_up();
        self.queue.flush(FINISH_TIMEOUT);
    }
}
