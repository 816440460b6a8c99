//! The command line. Flags win over the environment, and the environment over the file.

mod usage;

use std::{fmt, net::SocketAddr, path::PathBuf};

use clap::{
    ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, error::ErrorKind,
    parser::ValueSource,
};
use clap_complete::Shell;
use taskgate::config::{self, Config, Mistakes, Overrides, Target};

use crate::environment;
use usage::{end, explain_and_end};

const EXAMPLES: &str = "\
Examples:
  taskgate demo
  taskgate serve --upstream http://127.0.0.1:3000/mcp
  taskgate serve -- npx -y @modelcontextprotocol/server-filesystem .
  taskgate stdio -- npx -y @modelcontextprotocol/server-filesystem .
  taskgate check --config config.toml

Every key of the configuration file: docs/configuration.md";

const SERVE_EXAMPLES: &str = "\
Examples:
  In front of an HTTP server; clients connect to http://127.0.0.1:8808/mcp
    taskgate serve --upstream http://127.0.0.1:3000/mcp

  In front of a stdio server, with a process for each session
    taskgate serve -- npx -y @modelcontextprotocol/server-filesystem .

  On every interface, under a name, with health checks and metrics
    taskgate serve --upstream http://127.0.0.1:3000/mcp --listen 0.0.0.0:8808 --allowed-host mcp.example.com \\
      --admin 127.0.0.1:9808

  With a file, or with its text in the environment
    taskgate serve --config config.toml
    TASKGATE_CONFIG_TOML='[[upstream]]
    url = \"http://127.0.0.1:3000/mcp\"' taskgate serve";

const STDIO_EXAMPLES: &str = "\
Examples:
  The command of a server in a desktop client's configuration
    taskgate stdio -- npx -y @modelcontextprotocol/server-filesystem /srv/documents

  An HTTP server for a client that only knows stdio
    taskgate stdio --upstream http://127.0.0.1:3000/mcp

  With a file that has one [[upstream]] block
    taskgate stdio --config desktop.toml";

const CHECK_EXAMPLES: &str = "\
Example:
  taskgate check --config config.toml";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  mkdir -p ~/.local/share/bash-completion/completions
  taskgate completions bash > ~/.local/share/bash-completion/completions/taskgate
  mkdir -p ~/.zfunc
  taskgate completions zsh > ~/.zfunc/_taskgate
  mkdir -p ~/.config/fish/completions
  taskgate completions fish > ~/.config/fish/completions/taskgate.fish";

/// A reverse proxy that gives MCP servers tasks
#[derive(Debug, Parser)]
#[command(version = env!("VERSION_AND_COMMIT"), after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// What to log, on stderr: off, error, warn, info, debug, trace, or directives such as taskgate=debug,hyper=info
    #[arg(long, global = true, env = "TASKGATE_LOG", default_value = "info", value_parser = crate::log::filter)]
    pub log: String,
    /// The form of the log
    #[arg(long, global = true, env = "TASKGATE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// A warning for every `TASKGATE_` variable that means nothing to taskgate.
    #[arg(skip)]
    pub unknown_variables: Vec<String>,
}

/// The form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Proxy MCP servers and give them tasks
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Wrap one MCP server for one client on stdin and stdout, as in a desktop client's configuration
    #[command(after_help = STDIO_EXAMPLES)]
    Stdio(Stdio),
    /// Check a configuration file: name each mistake with line and column, and warn of what this machine lacks
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Check),
    /// Check, export or copy the file of a store
    Store(crate::store::Store),
    /// Show one task from call to result, with a built-in slow server behind taskgate
    Demo,
    /// Run the slow server of the demo on stdin and stdout
    #[command(hide = true)]
    DemoServer,
    /// Print the script that completes taskgate's arguments in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the man pages into a folder, for packages
    #[command(hide = true)]
    Man {
        /// A folder that exists
        folder: PathBuf,
    },
}

/// Where the upstreams come from: a URL, a command, or a configuration.
#[derive(Debug, Args)]
struct UpstreamArgs {
    /// URL of the MCP server (Streamable HTTP or HTTP+SSE)
    #[arg(long, env = "TASKGATE_UPSTREAM", value_name = "URL", value_parser = config::target_from_url)]
    upstream: Option<Target>,
    #[command(flatten)]
    config: ConfigArgs,
    /// File to keep tasks in, so that they outlive this process (with `stdio` those of a session do not); without it they are kept in memory
    #[arg(long, env = "TASKGATE_STORE", value_name = "FILE")]
    store: Option<PathBuf>,
    /// Command that starts a stdio MCP server
    #[arg(last = true, value_name = "COMMAND")]
    child: Vec<String>,
}

const CONFIG_HELP: &str = "Configuration file; TASKGATE_CONFIG_TOML may have its text instead";

/// Where the configuration comes from.
#[derive(Debug, Args)]
struct ConfigArgs {
    /// The name of a configuration file.
    #[arg(id = "config", long = "config", env = "TASKGATE_CONFIG", value_name = "FILE", help = CONFIG_HELP)]
    file: Option<PathBuf>,
    /// Whether the environment names the file, and not the command line.
    #[arg(skip)]
    by_environment: bool,
}

/// The arguments of `stdio`.
#[derive(Debug, Args)]
pub(crate) struct Stdio {
    #[command(flatten)]
    upstream: UpstreamArgs,
}

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    upstream: UpstreamArgs,
    /// Address to listen on, such as 127.0.0.1:8808, or a port of 127.0.0.1; port 0 picks a free one [default: 8808]
    #[arg(long, env = "TASKGATE_LISTEN", value_name = "ADDRESS", value_parser = config::listen_address)]
    listen: Option<SocketAddr>,
    /// Address for /livez, /readyz and /metrics; if not given, there is no such port
    #[arg(long, env = "TASKGATE_ADMIN", value_name = "ADDRESS", value_parser = config::listen_address)]
    admin: Option<SocketAddr>,
    /// Host header to accept besides local names and the listen address; may be given more than once, or with commas
    #[arg(long = "allowed-host", env = "TASKGATE_ALLOWED_HOSTS", value_name = "HOST", value_delimiter = ',',
          value_parser = config::allowed_host)]
    allowed_hosts: Option<Vec<String>>,
    /// Origin of browser pages to accept besides those of the same host and port; more than once, or with commas
    #[arg(long = "allowed-origin", env = "TASKGATE_ALLOWED_ORIGINS", value_name = "ORIGIN", value_delimiter = ',',
          value_parser = config::allowed_origin)]
    allowed_origins: Option<Vec<String>>,
}

/// The arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Why there is no valid configuration.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The file has mistakes.
    File(Mistakes),
    /// The arguments and the environment do not fit together.
    Arguments(String),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(mistakes) => mistakes.fmt(f),
            Self::Arguments(why) => write!(f, "taskgate: {why}"),
        }
    }
}

impl Cli {
    /// Reads the arguments. For help, and for a usage error, prints it and ends the process.
    pub(crate) fn read() -> Self {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os());
        let matches = matches.unwrap_or_else(|error| explain_and_end(&mut command, error));
        if let Some(empty) = environment::empty_in_matches(&command, &matches) {
            end(&command.error(ErrorKind::InvalidValue, empty));
        }
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| end(&error));
        cli.unknown_variables = environment::unknown(&command);
        let Some((_, matches)) = matches.subcommand() else { return cli };
        match &mut cli.command {
            Command::Serve(Serve { upstream, .. }) | Command::Stdio(Stdio { upstream }) => {
                upstream.prefer_the_command_line(matches);
                upstream.config.note_source(matches);
            }
            Command::Check(check) => check.config.note_source(matches),
            Command::Store(_)
            | Command::Demo
            | Command::DemoServer
            | Command::Completions { .. }
            | Command::Man { .. } => {}
        }
        cli
    }
}

impl ConfigArgs {
    /// Notes whether the environment or the command line names the file.
    fn note_source(&mut self, matches: &ArgMatches) {
        self.by_environment = matches.value_source("config") == Some(ValueSource::EnvVariable);
    }

    /// Reads the configuration with the overrides that win over it, and returns it with its name. If there is none, the
    /// error begins with `nothing`, which says what to give besides a file.
    fn load(&self, overrides: Overrides, nothing: &str) -> Result<(String, Config), ConfigError> {
        let text = match &self.file {
            // The command line wins over the environment.
            Some(_) if !self.by_environment => None,
            _ => environment::config_toml().map_err(ConfigError::Arguments)?,
        };
        let name = environment::CONFIG_TOML;
        match (&self.file, text) {
            (Some(_), Some(_)) => {
                Err(ConfigError::Arguments(format!("TASKGATE_CONFIG and {name} are both set; unset one")))
            }
            (Some(path), None) => {
                let name = path.display().to_string();
                let config = config::load(path, overrides).map_err(|mistakes| {
                    if self.by_environment && mistakes.iter().all(|mistake| mistake.is_of_whole(&name)) {
                        return ConfigError::Arguments(format!("TASKGATE_CONFIG: {mistakes}"));
                    }
                    ConfigError::File(mistakes)
                });
                Ok((name, config?))
            }
            (None, Some(text)) => {
                Ok((name.to_owned(), config::parse(name, &text, overrides).map_err(ConfigError::File)?))
            }
            (None, None) if overrides.target.is_some() => {
                let name = "command line";
                Ok((name.to_owned(), config::parse(name, "", overrides).map_err(ConfigError::File)?))
            }
            (None, None) => Err(ConfigError::Arguments(format!("{nothing}--config FILE, or its text in {name}"))),
        }
    }
}

impl UpstreamArgs {
    /// Drops a URL from the environment where the command line has a command.
    fn prefer_the_command_line(&mut self, matches: &ArgMatches) {
        if !self.child.is_empty() && matches.value_source("upstream") == Some(ValueSource::EnvVariable) {
            self.upstream = None;
        }
    }

    /// Returns the configuration that the arguments, the environment and the file make together.
    fn config(self, overrides: Overrides) -> Result<Config, ConfigError> {
        let mut child = self.child.into_iter();
        let target = match (self.upstream, child.next()) {
            (Some(_), Some(_)) => {
                return Err(ConfigError::Arguments("give either --upstream URL or -- COMMAND, not both".to_owned()));
            }
            (Some(url), None) => Some(url),
            (None, Some(program)) => Some(Target::Command { program, args: child.collect() }),
            (None, None) => None,
        };
        let nothing = "no MCP server given: give --upstream URL, -- COMMAND ARGS…, ";
        self.config.load(Overrides { target, store: self.store, ..overrides }, nothing).map(|(_, config)| config)
    }
}

impl Serve {
    /// Returns the configuration that the arguments, the environment and the file make together.
    pub(crate) fn config(self) -> Result<Config, ConfigError> {
        self.upstream.config(Overrides {
            listen: self.listen,
            admin: self.admin,
            allowed_hosts: self.allowed_hosts,
            allowed_origins: self.allowed_origins,
            ..Overrides::default()
        })
    }
}

impl Stdio {
    /// Returns the configuration that the arguments, the environment and the file make together.
    pub(crate) fn config(self) -> Result<Config, ConfigError> {
        self.upstream.config(Overrides { stdio: true, ..Overrides::default() })
    }
}

/// A configuration without mistakes.
pub(crate) struct Checked {
    /// What it says.
    pub summary: String,
    /// What may be wrong all the same.
    pub warnings: Vec<String>,
}

impl Check {
    /// Checks the configuration.
    pub(crate) fn run(&self) -> Result<Checked, ConfigError> {
        let nothing = "nothing to check: give ";
        // As `serve` does, also below where the file names no server.
        let store = environment::store().map_err(ConfigError::Arguments)?;
        let (name, config) = match self.config.load(Overrides { store: store.clone(), ..Overrides::default() }, nothing)
        {
            Err(ConfigError::File(mistakes)) if lacks_upstream(&mistakes) => {
                let target = environment::upstream().map_err(ConfigError::Arguments)?;
                self.config.load(Overrides { target, store, ..Overrides::default() }, nothing)?
            }
            loaded => loaded?,
        };
        let endpoints = config.upstreams.iter().map(|upstream| {
            let target = match &upstream.target {
                Target::Url(uri) => config::without_secrets(uri),
                Target::Command { program, args } => [std::slice::from_ref(program), args].concat().join(" "),
            };
            format!("  {}://{}{} -> {target}\n", config.server.scheme(), config.server.listen, upstream.path)
        });
        let store = match &config.store {
            config::Store::Memory => String::new(),
            config::Store::File(file) => {
                let sealed = if file.key.is_some() { ", sealed" } else { "" };
                format!("  tasks are kept in {}{sealed}\n", file.path.display())
            }
        };
        let summary = format!("{name}: no mistakes\n{}", (endpoints.collect::<String>() + &store).trim_end());
        let warnings = config.exposed().into_iter().chain(config.unfit_here()).collect();
        Ok(Checked { summary, warnings })
    }
}

fn lacks_upstream(mistakes: &Mistakes) -> bool {
    mistakes.iter().any(|mistake| mistake.key == "upstream" && mistake.message.starts_with("missing"))
}
