//! The `taskgate` binary: runs what the arguments ask for, with the log, signals and exit codes.

mod cli;
mod demo;
mod environment;
mod log;
mod packaging;
mod store;

use std::{
    fmt::Display,
    future::Future,
    io::{ErrorKind, Write},
    os::unix::process::ExitStatusExt,
    pin::pin,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use clap::CommandFactory;
use taskgate::{
    app::{App, Wrapper, WrapperEnd},
    config::{AuditTo, Config},
    gate::http::Workers,
};
use tikv_jemalloc_ctl::{background_thread, max_background_threads};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use cli::{Cli, Command, ConfigError, Serve, Stdio};
use log::Log;

/// A call allocates on one thread and frees on another, for which the system's allocator takes locks.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long after the start the allocator begins to give memory back.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// The exit code for wrong arguments or a wrong configuration: that of a usage error in `sysexits.h`.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let cli = Cli::read();
    let log = match Log::start() {
        Ok(log) => log,
        Err(error) => {
            // If stderr cannot be written, the process still ends with the same code.
            let _ = writeln!(std::io::stderr(), "taskgate: the log cannot be started: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = run(cli, &log);
    log.finish();
    code
}

fn run(cli: Cli, log: &Log) -> ExitCode {
    // The demo prints for itself what happens.
    let directives = if matches!(cli.command, Command::Demo) { "error" } else { &cli.log };
    if let Err(error) = log.listen(directives, cli.log_format) {
        log.say(&format!("taskgate: --log {directives:?}: {error}"));
        return ExitCode::from(USAGE);
    }
    for warning in cli.unknown_variables {
        tracing::warn!("{warning}");
    }
    match cli.command {
        Command::Serve(arguments) => in_runtime(log, serve(log, arguments)),
        Command::Stdio(arguments) => in_runtime(log, wrap(log, arguments)),
        Command::Check(arguments) => match arguments.run() {
            Ok(cli::Checked { summary, warnings }) => {
                for warning in warnings {
                    log.say(&format!("warning: {warning}"));
                }
                say(&summary);
                ExitCode::SUCCESS
            }
            Err(mistakes) => {
                log.say(&mistakes.to_string());
                ExitCode::from(USAGE)
            }
        },
        Command::Store(arguments) => store::run(log, &arguments),
        Command::Demo => in_runtime(log, demo::run(log)),
        Command::DemoServer => demo::server::run(),
        Command::Completions { shell } => {
            let script = packaging::completions(&Cli::command(), shell);
            match writeln!(std::io::stdout().lock(), "{}", script.trim_end()) {
                // A file with half a script would be loaded at each start of the shell.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    log.say(&format!("taskgate: the script cannot be written: {error}"));
                    ExitCode::FAILURE
                }
                _ => ExitCode::SUCCESS,
            }
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

/// Writes a line to stdout. Does not fail if the reader is gone.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn in_runtime(log: &Log, work: impl Future<Output = ExitCode>) -> ExitCode {
    match Workers::runtime() {
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

/// Starts a thread of the allocator that gives back unused memory. Without it only threads that allocate do so, and an
/// idle process does not. One thread is enough, since each needs memory of its own. It starts late because at first
/// there is nothing to give back.
async fn give_memory_back() {
    tokio::time::sleep(GIVE_BACK_AFTER).await;
    if let Err(error) = max_background_threads::write(1).and_then(|()| background_thread::write(true)) {
        tracing::warn!(%error, "the allocator does not give unused memory back");
    }
}

/// Returns the configuration. If there is none, says why and returns the exit code for wrong arguments.
fn config_or_exit_code(log: &Log, config: Result<Config, ConfigError>) -> Result<Config, ExitCode> {
    let config = config.map_err(|wrong| {
        log.say(&wrong.to_string());
        ExitCode::from(USAGE)
    })?;
    if config.audit.to == AuditTo::Log && !tracing::enabled!(target: "taskgate::audit", tracing::Level::INFO) {
        tracing::warn!(
            "audit.to = \"log\" writes no lines, since --log leaves them out: add taskgate::audit=info to it"
        );
    }
    Ok(config)
}

async fn wrap(log: &Log, arguments: Stdio) -> ExitCode {
    let config = match config_or_exit_code(log, arguments.config()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let mut signals = Signals::listen();
    let wrapper = match signals.stop_start(log, Wrapper::new(config)).await {
        Ok(wrapper) => wrapper,
        Err(code) => return code,
    };
    let (kill, stop) = (wrapper.killer(), CancellationToken::new());
    let running = wrapper.run(tokio::io::stdin(), tokio::io::stdout(), stop.clone().cancelled_owned());
    tokio::select! {
        end = running => match end {
            WrapperEnd { child: Some(status), .. } => exit_code_of(status),
            WrapperEnd { child: None, had_session } if had_session || stop.is_cancelled() => ExitCode::SUCCESS,
            // The server could not be started or reached.
            WrapperEnd { child: None, .. } => ExitCode::FAILURE,
        },
        () = signals.stop_then_wait(&stop) => exit_at_once(kill),
    }
}

/// Returns the exit code of a child process. If a signal ended it, the code is the one that a shell would give.
fn exit_code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

async fn serve(log: &Log, arguments: Serve) -> ExitCode {
    let config = match config_or_exit_code(log, arguments.config()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let warnings: Vec<_> = config.exposed().into_iter().chain(config.missing_commands()).collect();
    let workers = match Workers::start() {
        Ok(workers) => workers,
        Err(error) => {
            log.say(&format!("taskgate: the threads that serve connections cannot be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut signals = Signals::listen();
    let app = match Box::pin(signals.stop_start(log, App::bind(config, workers))).await {
        Ok(app) => app,
        Err(code) => return code,
    };
    let (kill, stop) = (app.killer(), CancellationToken::new());
    for endpoint in app.endpoints() {
        tracing::info!("listening on {endpoint}");
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if let Some(admin) = app.admin() {
        tracing::info!("admin on {admin}");
    }
    // Dropped only after the kill, as it holds what is known of children.
    let mut running = pin!(app.run(stop.clone().cancelled_owned()));
    tokio::select! {
        () = &mut running => ExitCode::SUCCESS,
        () = signals.stop_then_wait(&stop) => exit_at_once(kill),
    }
}

/// Kills the children instead of waiting for them.
fn exit_at_once(kill_children: impl FnOnce()) -> ExitCode {
    kill_children();
    ExitCode::FAILURE
}

/// SIGTERM, SIGINT and SIGHUP, received from [`Signals::listen`] on; none is received if that failed.
struct Signals(std::io::Result<[Signal; 3]>);

/// The number of SIGXFSZ, which would end a process that writes more to a file than it may (`ulimit -f`). Once it is
/// received, the write fails like any other that the disk does not take.
const XFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();

impl Signals {
    fn listen() -> Self {
        let listen = || {
            let [terminate, interrupt, hangup] =
                [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
            drop(signal(SignalKind::from_raw(XFSZ))?);
            Ok([terminate?, interrupt?, hangup?])
        };
        Self(listen())
    }

    /// Returns what a start gives; the exit code where it fails, or a signal comes first.
    async fn stop_start<T, E: Display>(
        &mut self,
        log: &Log,
        start: impl Future<Output = Result<T, E>>,
    ) -> Result<T, ExitCode> {
        let error = tokio::select! {
            started = start => match started {
                Ok(started) => return Ok(started),
                Err(error) => format!("taskgate: {error}"),
            },
            () = self.first() => return Err(ExitCode::SUCCESS),
        };
        let log = log.clone();
        tokio::select! {
            _ = tokio::task::spawn_blocking(move || log.say(&error)) => {}
            // The line waits for a reader of stderr. Without one, a signal ends the process.
            _ = self.next() => {}
        }
        Err(ExitCode::FAILURE)
    }

    /// Cancels `stop` at the first signal, and returns at the second.
    async fn stop_then_wait(mut self, stop: &CancellationToken) {
        self.first().await;
        stop.cancel();
        let signal = self.next().await;
        tracing::warn!(signal, "a second signal ends taskgate at once: what runs and what is open is cut off");
    }

    /// Waits for the signal that stops taskgate, and says so.
    async fn first(&mut self) {
        // Not inside the log macro, which evaluates its fields only where the line is logged.
        let signal = self.next().await;
        tracing::info!(signal, "stopping");
    }

    /// Waits for the next signal to stop. SIGHUP, which would end the process, does nothing.
    async fn next(&mut self) -> &'static str {
        let Ok([terminate, interrupt, hangup]) = &mut self.0 else { return std::future::pending().await };
        loop {
            tokio::select! {
                _ = terminate.recv() => break "SIGTERM",
                _ = interrupt.recv() => break "SIGINT",
                _ = hangup.recv() => tracing::warn!(
                    "SIGHUP is ignored: the configuration is read at the start only, so restart taskgate to change it, or \
                     what auth.client_secret and store.key refer to; the files of server.tls, of auth.jwks and of the headers \
                     of upstreams are read again without a signal, and the audit file is opened again for each write"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn the_allocator_has_three_arenas_for_two_processors() {
        let processors = rustix::thread::sched_getaffinity(None).expect("the processors").count();
        let arenas = if processors == 1 { 1 } else { (3 * processors).div_ceil(2) };
        assert_eq!(tikv_jemalloc_ctl::opt::narenas::read().expect("a number"), arenas, "by .cargo/config.toml");
    }
}
