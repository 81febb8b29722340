//! What a package of Guardrail contains besides the program: `completions SHELL` and `man DIR`. Also its version.

use crate::args::{Cli, version};
use crate::errors::{CliError, Status};
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;
use guardrail_host::HostError;
use std::fs;
use std::path::Path;

/// Prints the version.
pub fn print_version() -> Result<Status, CliError> {
    output::text(&format!("guardrail {}\n", version()))?;
    Ok(Status::Clean)
}

/// Prints a script that completes the command line in a shell.
pub fn completions(shell: Shell) -> Result<Status, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible(), "guardrail", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Status::Clean)
}

/// Writes a manual page for each command.
pub fn man(folder: &Path) -> Result<Status, CliError> {
    fs::create_dir_all(folder).map_err(HostError::io("create", folder.display()))?;
    clap_mangen::generate_to(visible(), folder).map_err(HostError::io("write", folder.display()))?;
    Ok(Status::Clean)
}

/// The command line without the commands by which the program starts itself.
fn visible() -> clap::Command {
    let whole = Cli::command();
    let mut visible = clap::Command::new("guardrail").version(version());
    visible = visible.about(whole.get_about().cloned().unwrap_or_default());
    visible = visible.after_help(whole.get_after_help().cloned().unwrap_or_default());
    visible
        .disable_help_subcommand(true)
        .subcommands(whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_is_completed() {
        let folder = tempfile::tempdir().unwrap();
        man(folder.path()).unwrap();
        let mut script = Vec::new();
        clap_complete::generate(Shell::Bash, &mut visible(), "guardrail", &mut script);
        let script = String::from_utf8(script).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = folder.path().join(format!("guardrail-{}.1", command.get_name()));
            assert_eq!(page.is_file(), !command.is_hide_set(), "{}", page.display());
            let known = script.contains(&format!("guardrail,{})", command.get_name()));
            assert_eq!(known, !command.is_hide_set(), "{}", command.get_name());
        }
    }
}
