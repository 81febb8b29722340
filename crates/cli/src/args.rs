//! The command line: one module for each group of commands.

mod build;
mod cache;
mod check;
mod choice;
mod config;
pub mod fleet;
mod guard;
mod known;
mod opened;
mod output;
mod protocol;
mod report;
mod runs;
mod serve;
mod symbols;
mod transact;
mod verify;
mod version;
mod vm;

use crate::errors::Status;
pub use build::{BuildArgs, WatchArgs};
pub use cache::CacheCommand;
pub use check::{AnalyzeArgs, CheckArgs, ConfirmArgs, DebugArgs, SurveyArgs, ViewArgs};
use choice::one_of;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub use config::ConfigCommand;
pub use guard::GuardArgs;
use guardrail_campaign::Harmed;
use guardrail_guard::Policy;
use guardrail_host::progress::Loudness;
pub use known::{DiffArgs, DiffFormat};
pub use output::{Format, OutputArgs};
pub use protocol::*;
pub use report::ReportArgs;
pub use serve::ServeArgs;
use std::path::PathBuf;
use std::process::ExitCode;
pub use transact::*;
pub use verify::VerifyArgs;
pub use version::version;
pub use vm::{ExecArgs, VmCommand, VmResultsArgs, VmStartArgs};

/// Runs a Linux driver, unmodified, in a stock kernel under QEMU and reports its memory faults.
#[derive(Debug, Parser)]
#[command(name = "guardrail", version = version(), term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Exit status: 0 nothing found, 1 findings, 2 bad usage or input, 3 the run failed, \
                        4 a finding was contained, 5 not decided, 6 not exercised, 130 interrupted.")]
pub struct Cli {
    /// A profile of guardrail.toml, whose values of options come before those of the command's table
    #[arg(long, value_name = "NAME", global = true, display_order = 900)]
    pub profile: Option<String>,
    /// Print results and errors alone
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 901)]
    pub quiet: bool,
    /// Say what is fetched, started and waited for
    #[arg(short, long, global = true, display_order = 902)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// How much the command says besides its results.
    pub fn loudness(&self) -> Loudness {
        match (self.quiet, self.verbose) {
            (true, _) => Loudness::Quiet,
            (_, true) => Loudness::Verbose,
            _ => Loudness::Usual,
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a driver in a guest, and report what is found
    Check(Box<CheckArgs>),
    /// Build a driver from its C sources for a kernel
    Build(BuildArgs),
    /// Check a driver again whenever its C sources change
    Watch(WatchArgs),
    /// Run the same checkers over a recorded trace
    Analyze(AnalyzeArgs),
    /// Print the last report again, or findings of it in full
    Report(ReportArgs),
    /// Compare two reports: which findings are new, gone, or the same
    Diff(DiffArgs),
    /// Show runs and surveys to a browser on this machine, or write them as web pages
    Serve(ServeArgs),
    /// Try to make the races that a run found happen, with one access held for the other
    Confirm(ConfirmArgs),
    /// Open gdb on the guest as it was at a finding
    Debug(DebugArgs),
    /// Run clients over the whole kernel or parts of it: counts, profiles, memory faults, your own
    Profile(Box<ProfileArgs>),
    /// Make clients of your own
    #[command(subcommand)]
    Client(ClientCommand),
    /// A guest that lives on, to attach clients to and detach them from by hand
    #[command(subcommand)]
    Vm(VmCommand),
    /// Print the events of a recorded trace
    View(ViewArgs),
    /// Run many drivers with many kernels, and print one table
    Survey(SurveyArgs),
    /// Compute one job, or return its result where it is stored
    Job(fleet::JobArgs),
    /// Run many jobs on many workers: processes, Slurm, or machines beside a NATS server
    #[command(subcommand)]
    Fleet(fleet::FleetCommand),
    /// Give drivers checks of their own, so that they write only where they may, and load them in place of the stock ones
    Guard(GuardArgs),
    /// Derive what kernel functions do with a driver's memory, from the kernel's code
    Learn(LearnArgs),
    /// Say which drivers can restore their devices, on which transactions will rely
    #[command(subcommand)]
    Transact(TransactCommand),
    /// Verify an active driver's C code against its protocols, for all runs
    Verify(VerifyArgs),
    /// Draw, check, simulate and export the protocols of messages between the kernel and active drivers
    #[command(subcommand)]
    Protocol(ProtocolCommand),
    /// Make mutants of a driver, and run them in guests
    Inject(InjectArgs),
    /// List what is known by name
    List(ListArgs),
    /// Show what this machine has, what is missing, and how to get it; verbose, also the functions that checkers know and
    /// the kernels in the cache lack
    Doctor,
    /// Plant faults in drivers of the zoo, and show whether they are contained
    #[command(subcommand)]
    Selftest(Selftest),
    /// Carry what was fetched to a machine without network
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Show what guardrail.toml sets
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version, with the commit that it was built from
    Version,
    /// Print a script that completes the command line in a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages, one for each command
    Man {
        /// The folder that gets them
        folder: PathBuf,
    },
    /// The analysis process of a run
    #[command(hide = true)]
    InternalAnalysis,
    /// The process of a run's synthetic devices
    #[command(hide = true)]
    InternalDevice,
    /// The gate's process of a run
    #[command(hide = true)]
    InternalGate,
    /// The process of a VM that lives on
    #[command(hide = true)]
    InternalVm(VmStartArgs),
    /// Print the folder with a kernel's headers
    #[command(hide = true)]
    InternalHeaders(HeadersArgs),
    /// Print the folder with a kernel's source
    #[command(hide = true)]
    InternalSource(HeadersArgs),
    /// Fetch debug files for an analysis
    #[command(hide = true)]
    InternalSymbols,
    /// Parse what others wrote, without rights
    #[command(hide = true)]
    InternalParser,
}

/// What `client` does.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Make a folder with a client that works, to begin with
    New {
        /// Its name, and that of the folder
        name: String,
    },
}

/// Arguments of `profile`.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    /// The clients, separated by commas: NAME or FILE.so, with options behind (NAME:KEY=VALUE)
    #[arg(long = "client", value_name = "NAME,...", required = true)]
    pub clients: Vec<String>,
    /// What is instrumented: kernel, driver, module:NAME,... or function:GLOB,...
    #[arg(long, value_name = "SCOPE", default_value = "kernel")]
    pub scope: String,
    /// What the guest runs: a workload by name, or a script
    #[arg(long, value_name = "NAME|SCRIPT")]
    pub workload: Option<String>,
    /// A module that the guest loads: a name, the path of a .ko, or zoo/NAME; several take turns
    #[arg(long = "driver", value_name = "DRIVER", default_value = "e1000")]
    pub drivers: Vec<String>,
    /// The kernel: 6.1, 6.12, 7.2 (also 6.1-cloud, 6.1-rt, …), a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// The QEMU device that the driver serves, instead of the usual one
    #[arg(long, value_name = "QEMU-DEVICE")]
    pub device: Option<String>,
    /// Attach at boot, where the workload begins, or at one of its steps [default: workload; boot with scopes of modules and with
    /// clients that must see what comes before: code, coverage, kaddrcheck, stackcheck]
    #[arg(long, value_name = "boot|workload|STEP")]
    pub from: Option<String>,
    /// Detach where this step of the workload begins
    #[arg(long, value_name = "STEP")]
    pub until: Option<String>,
    /// Load the clients and leave them detached
    #[arg(long)]
    pub detached: bool,
    /// Number of guest CPUs, 1 to 4, each on a thread of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub smp: u8,
    /// Memory of the guest, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(128..=2048))]
    pub memory: u32,
    /// Boot the kernel at its link-time address
    #[arg(long)]
    pub no_kaslr: bool,
    /// Words for the guest kernel's command line; may be given several times
    #[arg(long, value_name = "WORDS")]
    pub append: Vec<String>,
    /// Longest time that the run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// A variable of the workload, such as DOWNLOAD_MB=200; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub variables: Vec<String>,
    /// A parameter of the driver's module, such as debug=3; may be given several times
    #[arg(long = "param", value_name = "[MODULE.]NAME=VALUE")]
    pub parameters: Vec<String>,
    /// A word for QEMU's command line; may be given several times
    #[arg(long = "qemu-arg", value_name = "WORD", allow_hyphen_values = true)]
    pub qemu_arg: Vec<String>,
    /// Keep the run folder (console, configuration, results) as DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How the results are printed
    #[arg(long, value_parser = one_of::<guardrail_profile::Format>(), default_value = "text")]
    pub format: guardrail_profile::Format,
}

/// Arguments of `learn`.
#[derive(Debug, Args)]
pub struct LearnArgs {
    /// The kernel: 6.1, 6.12, 7.2, a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE of this machine
    #[arg(value_name = "KERNEL", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// Write the rows to FILE instead of printing them
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only the functions of this module, of those that it needs, and of the kernel; may be given several times
    #[arg(long = "module", value_name = "DRIVER")]
    pub modules: Vec<String>,
    /// Print the share of modules that have a row for each function that they call, instead of the rows
    #[arg(long)]
    pub complete: bool,
}

/// Arguments of `inject`.
#[derive(Debug, Args)]
pub struct InjectArgs {
    /// A module of the kernel (e1000), the path of a .ko, or zoo/NAME
    pub driver: String,
    /// The kinds of bugs, separated by commas; "all" is all
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "all")]
    pub kind: Vec<String>,
    /// Decides where the bugs are
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of mutants of each kind
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub count: u32,
    /// Number of bugs in each mutant, all of one kind
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub bugs: u32,
    /// The kernel: 6.1, 6.12, 7.2 (also 6.1-cloud, 6.1-rt, …), a release, a .deb, a folder of packages, or /boot/vmlinuz-RELEASE
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// The folder of the mutants and of the campaign; one that was interrupted goes on
    #[arg(short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Also run each mutant in a guest of its own
    #[arg(long)]
    pub run: bool,
    /// Also run each mutant guarded; POLICY says what a violation does (oops if none is given)
    #[arg(long, value_name = "POLICY", num_args = 0..=1, require_equals = true, default_missing_value = "oops", requires = "run", value_parser = one_of::<Policy>())]
    pub guarded: Option<Policy>,
    /// Take these modules that the driver needs into its domain: what harms only them has not escaped, and they are guarded as well
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', requires = "run")]
    pub with: Vec<String>,
    /// Run guarded only those mutants that escape as they are
    #[arg(long, requires = "guarded")]
    pub escaped: bool,
    /// Run this module in the driver's place instead of making mutants; may be given several times
    #[arg(long = "mutant", value_name = "FILE", requires = "run")]
    pub mutants: Vec<PathBuf>,
    /// The QEMU device that the driver serves, instead of the usual one
    #[arg(long, value_name = "QEMU-DEVICE", requires = "run")]
    pub device: Option<String>,
    /// What exercises the driver, instead of the workload of its class
    #[arg(long, value_name = "NAME|SCRIPT", requires = "run")]
    pub workload: Option<String>,
    /// A variable of the workload, such as DOWNLOAD_MB=1; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", requires = "run")]
    pub variables: Vec<String>,
    /// Number of guest CPUs, 1 to 4, each on a thread of its own
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub smp: u8,
    /// Longest time that each guest may take; a workload that takes longer hangs
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// How the result is printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub format: ListFormat,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list
    #[arg(value_enum)]
    pub what: Listed,
    /// How the list is printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub format: ListFormat,
}

/// What `selftest` tries.
#[derive(Debug, Subcommand)]
pub enum Selftest {
    /// Let faults through that harm a disk or the network, and contain the same faults
    Containment(ContainmentArgs),
}

/// Arguments of `selftest containment`.
#[derive(Debug, Args)]
pub struct ContainmentArgs {
    /// How many faults are planted, by turns of all kinds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub faults: u32,
    /// How many times the machinery itself fails at random: a process dies or stops, the guest resets itself
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub machinery: u32,
    /// Decides when and how each fault happens; each has the next number
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u32,
    /// Only these faults, separated by commas
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub fault: Vec<String>,
    /// What the faults can harm
    #[arg(long = "harm", value_parser = one_of::<Harmed>(), default_value = "all")]
    pub subject: Harmed,
    /// The kernel
    #[arg(long, value_name = "NAME|PATH", default_value = guardrail_vm::kernels::DEFAULT)]
    pub kernel: String,
    /// The gate that contains, instead of the usual one
    #[arg(long, value_name = "NAME")]
    pub gate: Option<String>,
    /// Only let the faults through
    #[arg(long)]
    pub let_through: bool,
    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// Longest time that each guest may take
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=86400))]
    pub timeout: u64,
    /// Keep what all runs left as DIR
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How the table is printed
    #[arg(long, value_enum, default_value_t = ListFormat::Text)]
    pub format: ListFormat,
}

/// Arguments of `internal-headers` and `internal-source`.
#[derive(Debug, Args)]
pub struct HeadersArgs {
    /// The kernel
    pub kernel: String,
}

/// How a list is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// A table
    Text,
    /// An array of objects with a name
    Json,
}

/// How the table of a survey is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// For people
    Text,
    /// One object, schema guardrail-survey/1
    Json,
    /// A page
    Html,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Listed {
    /// Drivers that were tried
    Drivers,
    /// Devices that they bind
    Devices,
    /// Kernels by short name
    Kernels,
    /// Checkers of 'check' and 'analyze'
    Tools,
    /// Clients of 'profile'
    Clients,
    /// Workloads of 'check'
    Workloads,
}

/// Prints what clap has to say: help on standard output, an error as one sentence.
pub fn explain(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::from(Status::Clean as u8)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(Status::Usage as u8)
        }
        _ => {
            crate::errors::print_line("error", &one_sentence(&error.to_string()));
            ExitCode::from(Status::Usage as u8)
        }
    }
}

/// Clap's message without its usage lines, on one line, values' placeholders left out.
fn one_sentence(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<&str> =
        lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    let mut sentence = lines.join(" ").replace(" tip: ", "; ");
    if sentence.contains("cannot be used multiple times")
        && let Some(start) = sentence.find(" <")
        && let Some(end) = sentence[start..].find('\'')
    {
        sentence.replace_range(start..start + end, "");
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
