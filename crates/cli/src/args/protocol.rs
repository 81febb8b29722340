//! Arguments of `protocol`.

use super::opened::OpenArgs;
use super::{ListFormat, one_of};
use clap::{Args, Subcommand};
use guardrail_protocol::export::Form;
use std::path::PathBuf;

/// What `protocol` does.
#[derive(Debug, Subcommand)]
pub enum ProtocolCommand {
    /// Print all protocols with their numbers of states and messages
    List(ProtocolListArgs),
    /// Draw a protocol as an SVG picture
    Draw(ProtocolDrawArgs),
    /// Look for mistakes in protocols: states without a way out or in, messages that get lost
    Lint(ProtocolLintArgs),
    /// Print random runs of a protocol, or see whether a recorded run of a driver is one
    Simulate(ProtocolSimulateArgs),
    /// Take a protocol apart into rules of few states each, and check that they mean the same
    Decompose(ProtocolListArgs),
    /// Print a protocol in the language of another tool
    Export(ProtocolExportArgs),
    /// Write the C files of active drivers: numbers of messages, accessors, tables of the monitor
    Header(ProtocolHeaderArgs),
}

/// Files of charts.
#[derive(Debug, Args)]
pub struct ProtocolFiles {
    /// A file with more protocols; may be given several times
    #[arg(long = "chart", value_name = "FILE")]
    pub charts: Vec<PathBuf>,
}

/// Arguments of `protocol list` and `protocol decompose`.
#[derive(Debug, Args)]
pub struct ProtocolListArgs {
    /// The protocols, such as "pci"; all without a name
    #[arg(value_name = "PROTOCOL")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub files: ProtocolFiles,
    /// How it is printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub format: ListFormat,
}

/// Arguments of `protocol draw`.
#[derive(Debug, Args)]
pub struct ProtocolDrawArgs {
    /// The protocol, such as "pci"
    #[arg(value_name = "PROTOCOL")]
    pub name: String,
    #[command(flatten)]
    pub files: ProtocolFiles,
    /// Write the picture to FILE and not to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `protocol lint`.
#[derive(Debug, Args)]
pub struct ProtocolLintArgs {
    /// The protocols, such as "pci"; all without a name
    #[arg(value_name = "PROTOCOL")]
    pub names: Vec<String>,
    #[command(flatten)]
    pub files: ProtocolFiles,
}

/// Arguments of `protocol simulate`.
#[derive(Debug, Args)]
pub struct ProtocolSimulateArgs {
    /// The protocol, such as "pci"
    #[arg(value_name = "PROTOCOL")]
    pub name: String,
    #[command(flatten)]
    pub files: ProtocolFiles,
    /// Follow the run of an ordinary driver that this trace of "check --record" holds
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "runs", "steps"])]
    pub trace: Option<PathBuf>,
    /// Which files the trace may name.
    #[command(flatten)]
    pub open: OpenArgs,
    /// Decides the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How many runs are printed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// The most messages of a run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub steps: u32,
}

/// Arguments of `protocol export`.
#[derive(Debug, Args)]
pub struct ProtocolExportArgs {
    /// The protocol, such as "pci"
    #[arg(value_name = "PROTOCOL")]
    pub name: String,
    #[command(flatten)]
    pub files: ProtocolFiles,
    /// The language
    #[arg(long = "as", value_parser = one_of::<Form>(), default_value = "dot")]
    pub form: Form,
    /// Write to FILE and not to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Arguments of `protocol header`.
#[derive(Debug, Args)]
pub struct ProtocolHeaderArgs {
    #[command(flatten)]
    pub files: ProtocolFiles,
    /// The folder of active drivers, which has the folders include and core
    #[arg(long, value_name = "DIR", default_value = "active")]
    pub into: PathBuf,
}
