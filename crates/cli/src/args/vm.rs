//! Arguments of `vm`.

use crate::args::ProfileArgs;
use crate::args::choice::one_of;
use clap::{Args, Subcommand};

/// What `vm` does.
#[derive(Debug, Subcommand)]
pub enum VmCommand {
    /// Start a guest; its clients are attached as --from says, unless --detached is given
    Start(Box<VmStartArgs>),
    /// List the guests that run
    List,
    /// Instrument from now on
    Attach(VmNameArgs),
    /// Take all instrumentation away
    Detach(VmNameArgs),
    /// Run a shell command in the guest
    Exec(ExecArgs),
    /// Print what the clients have until now
    Results(VmResultsArgs),
    /// End a guest, and print what its clients have
    Stop(VmResultsArgs),
}

/// Arguments of `vm start`.
#[derive(Debug, Args)]
pub struct VmStartArgs {
    /// A name for it
    #[arg(value_name = "VM")]
    pub name: String,
    /// What it runs.
    #[command(flatten)]
    pub profile: ProfileArgs,
}

/// Arguments of `vm attach` and `vm detach`.
#[derive(Debug, Args)]
pub struct VmNameArgs {
    /// The guest
    #[arg(value_name = "VM")]
    pub name: String,
}

/// Arguments of `vm results` and `vm stop`.
#[derive(Debug, Args)]
pub struct VmResultsArgs {
    /// The guest
    #[arg(value_name = "VM")]
    pub name: String,
    /// How the results are printed
    #[arg(long, value_parser = one_of::<guardrail_profile::Format>(), default_value = "text")]
    pub format: guardrail_profile::Format,
}

/// Arguments of `vm exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The guest
    #[arg(value_name = "VM")]
    pub name: String,
    /// Longest time that the command may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// The command, for the guest's shell
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<String>,
}
