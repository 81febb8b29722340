//! The `guardrail` program: arguments, wiring, exit statuses.
//!
//! Knows: the command line, the processes of a run and the messages between them, exit statuses.
//!
//! Must not know: what events mean, how a checker decides, how a guest is built. It has no logic of its own.

mod analyze;
mod args;
mod build;
mod cache;
mod check;
mod client;
mod config;
mod confirm;
mod debug;
mod diff;
mod doctor;
mod errors;
mod fleet;
mod guard;
mod headers;
mod inject;
mod install;
mod learn;
mod list;
mod machines;
mod output;
mod profile;
mod protocol;
mod report;
mod selftest;
mod serve;
mod survey;
mod transact;
mod verify;
mod view;
mod watch;

use args::{Cli, Command};
use clap::Parser;
use errors::{CliError, Status};
use guardrail_host::{files, process, progress};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words = match config::expand(std::env::args_os().collect()) {
        Ok(words) => words,
        Err(error) => return failed(&error),
    };
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return args::explain(&error),
    };
    // The gate's process uses its own protocol to the end.
    if let Command::InternalGate = cli.command {
        return guardrail_check::gate::process::serve();
    }
    // So does the process of synthetic devices.
    if let Command::InternalDevice = cli.command {
        return guardrail_synthetic::process::serve();
    }
    match dispatch(cli) {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => failed(&error),
    }
}

fn failed(error: &CliError) -> ExitCode {
    errors::print(error);
    ExitCode::from(process::status(error) as u8)
}

fn dispatch(cli: Cli) -> Result<Status, CliError> {
    progress::choose(cli.loudness());
    let Cli { command, profile, .. } = cli;
    match command {
        Command::Check(args) => check::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Watch(args) => watch::run(&args, profile.as_deref()),
        Command::Analyze(args) => analyze::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Confirm(args) => confirm::run(&args),
        Command::Debug(args) => debug::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::View(args) => view::run(&args),
        Command::Survey(args) => survey::run(&args),
        Command::Job(args) => fleet::job(&args),
        Command::Fleet(command) => fleet::run(&command),
        Command::Guard(args) => guard::run(&args),
        Command::Learn(args) => learn::run(&args),
        Command::Transact(command) => transact::run(&command),
        Command::Protocol(command) => protocol::run(&command),
        Command::Verify(args) => verify::run(&args),
        Command::Inject(args) => inject::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor => doctor::run(),
        Command::Cache(command) => cache::run(&command),
        Command::Config(command) => config::run(&command, profile.as_deref()),
        Command::Version => install::print_version(),
        Command::Completions { shell } => install::completions(shell),
        Command::Man { folder } => install::man(&folder),
        Command::Selftest(args::Selftest::Containment(args)) => selftest::containment(&args),
        Command::InternalAnalysis => guardrail_check::analysis::process::run(),
        Command::Client(command) => client::run(&command),
        Command::Vm(command) => machines::run(&command),
        Command::InternalVm(args) => machines::live(&args),
        Command::InternalDevice | Command::InternalGate => {
            Err(CliError::Run("a process of a run has its own entry".into()))
        }
        Command::InternalHeaders(args) => headers::run(&args),
        Command::InternalSymbols => {
            guardrail_check::fetcher::serve()?;
            Ok(Status::Clean)
        }
        Command::InternalParser => {
            guardrail_check::parsing::serve(guardrail_campaign::mutants::jobs())?;
            Ok(Status::Clean)
        }
        Command::InternalSource(args) => headers::source(&args),
    }
}
