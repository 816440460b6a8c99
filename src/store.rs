//! `taskgate store`: checks, exports and copies the file of a store.

use std::{
    fmt::Display,
    io::{self, BufWriter, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Subcommand};
use taskgate::{disk, task::store::file};

use crate::log::Log;

const EXAMPLES: &str = "\
Examples:
  taskgate store check /var/lib/taskgate/taskgate.db
  taskgate store export /var/lib/taskgate/taskgate.db > tasks.jsonl
  taskgate store backup /var/lib/taskgate/taskgate.db /backup/taskgate.db";

/// The arguments of `store`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Store {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read everything in the file and say what is damaged
    Check(Read),
    /// Write a line of JSON for each task that can be read, with its result
    Export(Read),
    /// Write a copy of the file, which may be in use
    Backup {
        /// The file of the store
        file: PathBuf,
        /// The copy, which must not exist
        target: PathBuf,
    },
}

/// What to read.
#[derive(Debug, Args)]
struct Read {
    /// The file of the store
    file: PathBuf,
    /// File with a key that may have sealed the store; may be given more than once
    #[arg(long = "key-file", value_name = "KEY")]
    key_files: Vec<PathBuf>,
}

impl Read {
    fn keys(&self) -> Result<Vec<String>, String> {
        let read = |path: &PathBuf| {
            // Opening a pipe would wait for its other end.
            let is_file = std::fs::metadata(path).map(|found| found.is_file());
            let text = is_file.and_then(|is_file| {
                if is_file { std::fs::read_to_string(path) } else { Err(io::Error::other("it is not a file")) }
            });
            let text = text.map_err(|error| format!("the key in \"{}\" cannot be read: {error}", path.display()))?;
            Ok(text.trim_end_matches(['\r', '\n']).to_owned())
        };
        self.key_files.iter().map(read).collect()
    }
}

/// Runs the command.
pub(crate) fn run(log: &Log, store: &Store) -> ExitCode {
    let failed = |why: &dyn Display| {
        log.say(&format!("taskgate: {why}"));
        ExitCode::FAILURE
    };
    let unwritten = |error: &io::Error| failed(&format!("what was read could not be written to stdout: {error}"));
    match &store.command {
        Command::Check(read) => {
            let checked = read.keys().map(|keys| file::check(&read.file, &keys, |what| log.say(what)));
            match checked {
                Ok(Ok(found)) => {
                    let report = format!(
                        "{}: {}, {}, {}\n",
                        read.file.display(),
                        count(found.tasks, "task"),
                        count(found.results, "result"),
                        count(found.damages, "damaged place")
                    );
                    let mut out = io::stdout().lock();
                    match out.write_all(report.as_bytes()).and_then(|()| out.flush()) {
                        Ok(()) if found.refused => ExitCode::FAILURE,
                        Ok(()) => code(found.damages),
                        Err(error) => unwritten(&error),
                    }
                }
                Ok(Err(why)) => failed(&why),
                Err(why) => failed(&why),
            }
        }
        Command::Export(read) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let exported = read.keys().map(|keys| file::export(&read.file, &keys, &mut out, |what| log.say(what)));
            match exported {
                Ok(Ok(Ok(found))) => match out.flush() {
                    Ok(()) => code(found.damages),
                    Err(error) => unwritten(&error),
                },
                Ok(Ok(Err(error))) => unwritten(&error),
                Ok(Err(why)) => failed(&why),
                Err(why) => failed(&why),
            }
        }
        // Not a failure of the store, whose file an error of the copy names.
        Command::Backup { target, .. } if target.symlink_metadata().is_ok() => {
            failed(&format!("no copy was made at \"{}\": it exists, and nothing is overwritten", target.display()))
        }
        Command::Backup { file, target } => match disk::backup(file, target) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(&why),
        },
    }
}

/// Returns a number with what is counted.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the exit code for a file in which so much is damaged.
fn code(damages: usize) -> ExitCode {
    if damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
