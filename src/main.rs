//! The `taskgate` binary: arguments to actions, the log, signals, exit codes.

mod cli;
mod demo;
mod environment;
mod log;
mod packaging;

use std::{
    future::Future,
    io::Write,
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use clap::CommandFactory;
use taskgate::{
    app::{App, Wrapper},
    config::Config,
};
use tikv_jemalloc_ctl::{background_thread, max_background_threads};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use cli::{Cli, Command, Serve, Stdio, Wrong};
use log::Log;

/// A call allocates and frees on different threads, where the system's allocator takes locks.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// When the allocator begins to give memory back.
const GIVES_BACK_AFTER: Duration = Duration::from_secs(1);

/// Wrong arguments or configuration, as `sysexits.h` has it for a usage error.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = Cli::read();
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            // Nobody to tell is no reason to end otherwise.
            let _ = writeln!(std::io::stderr(), "taskgate: the log cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = act(cli, &log);
    log.finish();
    code
}

fn act(cli: Cli, log: &Log) -> ExitCode {
    // The demo speaks for itself.
    let directives = if matches!(cli.command, Command::Demo) { "error" } else { &cli.log };
    if let Err(error) = log.listen(directives, cli.log_format) {
        log.say(&format!("taskgate: --log {directives:?}: {error}"));
        return ExitCode::from(USAGE);
    }
    for warning in Cli::unknown_variables() {
        tracing::warn!("{warning}");
    }
    match cli.command {
        Command::Serve(arguments) => in_runtime(log, serve(log, arguments)),
        Command::Stdio(arguments) => in_runtime(log, wrap(log, arguments)),
        Command::Check(arguments) => match arguments.run() {
            Ok(summary) => {
                say(&summary);
                ExitCode::SUCCESS
            }
            Err(mistakes) => {
                log.say(&mistakes.to_string());
                ExitCode::from(USAGE)
            }
        },
        Command::Demo => in_runtime(log, demo::run(log)),
        Command::DemoServer => demo::server::run(),
        Command::Completions { shell } => {
            say(packaging::completions(&Cli::command(), shell).trim_end());
            ExitCode::SUCCESS
        }
        Command::Man { folder } => match packaging::man(Cli::command(), &folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log.say(&format!("taskgate: the man pages cannot be written to {}: {error}", folder.display()));
                ExitCode::FAILURE
            }
        },
    }
}

/// Writes to stdout. That nobody reads it is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn in_runtime(log: &Log, work: impl Future<Output = ExitCode>) -> ExitCode {
    match runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.spawn(give_memory_back());
            let code = runtime.block_on(work);
            // A read of stdin that nothing will end must not keep the process.
            runtime.shutdown_background();
            code
        }
        Err(error) => {
            log.say(&format!("taskgate: the runtime cannot be started: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Has a thread of the allocator give back what is no longer needed, which otherwise only those do who allocate. One is
/// enough: each takes memory of its own. At the start there is nothing to give back, and other things to do.
async fn give_memory_back() {
    tokio::time::sleep(GIVES_BACK_AFTER).await;
    if let Err(error) = max_background_threads::write(1).and_then(|()| background_thread::write(true)) {
        tracing::warn!(%error, "the allocator keeps memory that is no longer needed");
    }
}

/// The configuration, or the exit code for arguments that are wrong.
fn configured(log: &Log, config: Result<Config, Wrong>) -> Result<Config, ExitCode> {
    config.map_err(|wrong| {
        log.say(&wrong.to_string());
        ExitCode::from(USAGE)
    })
}

async fn wrap(log: &Log, arguments: Stdio) -> ExitCode {
    let config = match configured(log, arguments.config()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let wrapper = match Wrapper::new(config).await {
        Ok(wrapper) => wrapper,
        Err(error) => {
            log.say(&format!("taskgate: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let (signals, kill, stop) = (Signals::listen(), wrapper.killer(), CancellationToken::new());
    let running = wrapper.run(tokio::io::stdin(), tokio::io::stdout(), stop.clone().cancelled_owned());
    tokio::select! {
        ended = running => match ended {
            (Some(status), _) => fate(status),
            (None, true) => ExitCode::SUCCESS,
            // The server could not be started or reached.
            (None, false) => ExitCode::FAILURE,
        },
        () = signals.hurry(stop) => at_once(kill),
    }
}

/// The exit code of a child process, or what a shell makes of its end by a signal.
fn fate(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

async fn serve(log: &Log, arguments: Serve) -> ExitCode {
    let config = match configured(log, arguments.config()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let app = match App::bind(config).await {
        Ok(app) => app,
        Err(error) => {
            log.say(&format!("taskgate: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // Listened for before anybody can know that taskgate runs.
    let (signals, kill, stop) = (Signals::listen(), app.killer(), CancellationToken::new());
    for endpoint in app.endpoints() {
        tracing::info!("listening on {endpoint}");
    }
    if let Some(admin) = app.admin() {
        tracing::info!("admin on {admin}");
    }
    tokio::select! {
        () = app.run(stop.clone().cancelled_owned()) => ExitCode::SUCCESS,
        () = signals.hurry(stop) => at_once(kill),
    }
}

/// Ends what would have to be waited for.
fn at_once(kill_children: impl FnOnce()) -> ExitCode {
    kill_children();
    ExitCode::FAILURE
}

/// SIGTERM, SIGINT and SIGHUP from now on; none of them can be listened for if this fails.
struct Signals(std::io::Result<[Signal; 3]>);

impl Signals {
    fn listen() -> Self {
        let listen = || {
            let [terminate, interrupt, hangup] =
                [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
            Ok([terminate?, interrupt?, hangup?])
        };
        Self(listen())
    }

    /// The first signal cancels `stop`; the second one resolves this. SIGHUP, which would end the process, does nothing.
    async fn hurry(self, stop: CancellationToken) {
        let Ok([mut terminate, mut interrupt, mut hangup]) = self.0 else { return std::future::pending().await };
        let mut next = async move || loop {
            tokio::select! {
                _ = terminate.recv() => break "SIGTERM",
                _ = interrupt.recv() => break "SIGINT",
                _ = hangup.recv() => tracing::warn!(
                    "SIGHUP is ignored: the configuration is read at the start only, so restart taskgate to change it; the \
                     audit file, certificates and files with headers or keys are looked at again without a signal"
                ),
            }
        };
        // Waited for here: what stands in a log line is not done where that line is not logged.
        let signal = next().await;
        tracing::info!(signal, "stopping");
        stop.cancel();
        next().await;
    }
}
