//! What a package has besides the binary: shell completions and man pages, both made from the definition of the command
//! line.

use std::{io, path::Path};

use clap::Command;
use clap_complete::Shell;

/// Returns the completion script for a shell, without the subcommands that the help hides.
pub(crate) fn completions(command: &Command, shell: Shell) -> String {
    let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    let visible = Command::new("taskgate").version(env!("VERSION_AND_COMMIT")).args(command.get_arguments());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible.subcommands(shown), "taskgate", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes `taskgate.1` into the folder, and a page for each subcommand.
pub(crate) fn man(command: Command, folder: &Path) -> io::Result<()> {
    clap_mangen::generate_to(command, folder)
}
