//! What is said of arguments that cannot be read.

use clap::{
    Command, Error,
    builder::StyledStr,
    error::{ContextKind, ContextValue, ErrorKind},
};
use taskgate::config::text_without_secrets;

use crate::environment;

/// Prints help to stdout, or what is wrong with the arguments to stderr, and ends the process.
#[expect(clippy::exit, reason = "nothing has begun yet")]
pub(super) fn end(error: &Error) -> ! {
    // If the reader is gone, the process still ends with the same code.
    let _ = error.print();
    std::process::exit(if error.use_stderr() { i32::from(crate::USAGE) } else { 0 })
}

/// Ends the process because of an error, in the words that help most.
pub(super) fn explain_and_end(command: &mut Command, mut error: Error) -> ! {
    // So far only the arguments of the subcommand that was called know their names.
    command.build();
    if let Some(wrong) = environment::wrong_in_error(command, &error) {
        end(&command.error(ErrorKind::InvalidValue, wrong));
    }
    if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
        let shown = ContextValue::String(text_without_secrets(value));
        error.insert(ContextKind::InvalidValue, shown);
    }
    if is_command_without_dashes(&error) {
        let tip = StyledStr::from("put `--` before the command that starts the server");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    end(&error)
}

/// Returns whether a word was given to a subcommand that takes a server's command, and not behind `--`.
fn is_command_without_dashes(error: &Error) -> bool {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    error.kind() == ErrorKind::UnknownArgument
        && !text(ContextKind::InvalidArg).starts_with('-')
        && text(ContextKind::Usage).contains("-- <COMMAND>")
}
