//! Arguments of `config`.

use clap::Subcommand;

/// What `config` does.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the values of a command's options, and where each comes from
    Show {
        /// The command, such as survey, or 'vm start'
        #[arg(default_value = "check")]
        command: String,
    },
}
