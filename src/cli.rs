//! The command line: flags win over the environment, the environment over the file.

use std::{fmt, net::SocketAddr, path::PathBuf};

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, parser::ValueSource};
use taskgate::config::{self, Config, Mistakes, Overrides, Target};

/// A reverse proxy that gives tasks to MCP servers that have none.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Try `taskgate demo` first. Every key of the configuration file: docs/configuration.md"
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What to log, on stderr: error, warn, info, debug, trace, or a tracing filter such as taskgate=debug
    #[arg(long, global = true, env = "TASKGATE_LOG", default_value = "info")]
    pub log: String,
    /// The form of the log
    #[arg(long, global = true, env = "TASKGATE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stand in front of MCP servers and give them tasks
    Serve(Serve),
    /// Wrap one MCP server for one client on stdin and stdout, as in a desktop client's configuration
    Stdio(Stdio),
    /// Say everything that is wrong with a configuration file, with line and column
    Check(Check),
    /// Show one task from call to result, with a built-in slow server behind taskgate
    Demo,
    /// The slow server of the demo, on stdin and stdout
    #[command(hide = true)]
    DemoServer,
}

/// What is behind.
#[derive(Debug, Args)]
struct Behind {
    /// URL of the MCP server to stand in front of (Streamable HTTP or HTTP+SSE)
    #[arg(long, env = "TASKGATE_UPSTREAM", value_name = "URL", value_parser = config::target_from_url)]
    upstream: Option<Target>,
    /// Configuration file
    #[arg(long, env = "TASKGATE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Command of a stdio MCP server to stand in front of
    #[arg(last = true, value_name = "COMMAND")]
    child: Vec<String>,
}

/// The arguments of `stdio`.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    #[command(flatten)]
    behind: Behind,
}

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    behind: Behind,
    /// Address to listen on; port 0 picks a free one [default: 127.0.0.1:8808]
    #[arg(long, env = "TASKGATE_LISTEN", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address for /livez, /readyz and /metrics; without it there is no such port
    #[arg(long, env = "TASKGATE_ADMIN", value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Host header to accept besides local names and the listen address; may be given more than once
    #[arg(long = "allowed-host", env = "TASKGATE_ALLOWED_HOSTS", value_name = "HOST", value_delimiter = ',',
          value_parser = config::allowed_host)]
    allowed_hosts: Option<Vec<String>>,
    /// Origin of browser pages to accept besides those of the same host and port; may be given more than once
    #[arg(long = "allowed-origin", env = "TASKGATE_ALLOWED_ORIGINS", value_name = "ORIGIN", value_delimiter = ',',
          value_parser = config::allowed_origin)]
    allowed_origins: Option<Vec<String>>,
}

/// The arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Configuration file
    #[arg(long, env = "TASKGATE_CONFIG", value_name = "FILE")]
    config: PathBuf,
}

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The file has mistakes.
    File(Mistakes),
    /// The arguments do not fit together.
    Arguments(&'static str),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(mistakes) => mistakes.fmt(f),
            Self::Arguments(why) => f.write_str(why),
        }
    }
}

impl Cli {
    /// Reads the arguments; prints help or a usage error and ends the process where that is all there is to do.
    pub(crate) fn read() -> Self {
        let matches = Self::command().try_get_matches().unwrap_or_else(|error| end(&error));
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| end(&error));
        let behind = match &mut cli.command {
            Command::Serve(serve) => Some(&mut serve.behind),
            Command::Stdio(stdio) => Some(&mut stdio.behind),
            Command::Check(_) | Command::Demo | Command::DemoServer => None,
        };
        if let (Some(behind), Some((_, matches))) = (behind, matches.subcommand()) {
            behind.prefer_the_command_line(matches);
        }
        cli
    }
}

/// Prints help to stdout, or what is wrong with the arguments to stderr, and ends the process.
#[expect(clippy::exit, reason = "nothing has begun yet")]
fn end(error: &clap::Error) -> ! {
    // Nobody to tell is no reason to end otherwise.
    let _ = error.print();
    std::process::exit(if error.use_stderr() { i32::from(crate::USAGE) } else { 0 })
}

impl Behind {
    /// A command on the command line wins over a URL in the environment.
    fn prefer_the_command_line(&mut self, matches: &ArgMatches) {
        if !self.child.is_empty() && matches.value_source("upstream") == Some(ValueSource::EnvVariable) {
            self.upstream = None;
        }
    }

    /// The configuration that the arguments, the environment and the file make together.
    fn config(self, overrides: Overrides) -> Result<Config, Wrong> {
        let mut child = self.child.into_iter();
        let target = match (self.upstream, child.next()) {
            (Some(_), Some(_)) => return Err(Wrong::Arguments("give either --upstream URL or -- COMMAND, not both")),
            (Some(url), None) => Some(url),
            (None, Some(program)) => Some(Target::Command { program, args: child.collect() }),
            (None, None) => None,
        };
        if target.is_none() && self.config.is_none() {
            return Err(Wrong::Arguments(
                "nothing to stand in front of: give --upstream URL, -- COMMAND ARGS…, or --config FILE",
            ));
        }
        let overrides = Overrides { target, ..overrides };
        match self.config {
            Some(path) => config::load(&path, overrides),
            None => config::parse("command line", "", overrides),
        }
        .map_err(Wrong::File)
    }
}

impl Serve {
    /// The configuration that the arguments, the environment and the file make together.
    pub(crate) fn config(self) -> Result<Config, Wrong> {
        self.behind.config(Overrides {
            listen: self.listen,
            admin: self.admin,
            allowed_hosts: self.allowed_hosts,
            allowed_origins: self.allowed_origins,
            target: None,
        })
    }
}

impl Stdio {
    /// The configuration that the arguments, the environment and the file make together.
    pub(crate) fn config(self) -> Result<Config, Wrong> {
        self.behind.config(Overrides::default())
    }
}

impl Check {
    /// Checks the file, and says what it configures.
    pub(crate) fn run(&self) -> Result<String, Mistakes> {
        let config = config::load(&self.config, Overrides::default())?;
        let endpoints = config.upstreams.iter().map(|upstream| {
            let target = match &upstream.target {
                Target::Url(uri) => uri.to_string(),
                Target::Command { program, args } => [std::slice::from_ref(program), args].concat().join(" "),
            };
            format!("  {}://{}{} -> {target}\n", config.server.scheme(), config.server.listen, upstream.path)
        });
        Ok(format!("{}: no mistakes\n{}", self.config.display(), endpoints.collect::<String>().trim_end()))
    }
}
