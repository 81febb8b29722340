//! `bench/run`: what Guardrail costs, each figure as a ratio to a baseline of the same run.
//!
//! **Knows**: workloads, how to run them in turns, tables. **Must not know**: how an engine works; it starts the program.

mod active;
mod checkers;
mod common;
mod cut;
mod drcheck;
mod gate;
mod guarded;
mod ids;
mod instructions;
mod kernel;
mod oracle;
mod process;
mod reports;
mod results;
mod verdicts;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures what Guardrail costs, as ratios to a baseline of the same run
#[derive(Debug, Parser)]
#[command(bin_name = "bench/run", term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Active drivers: messages beside calls, traffic and instructions beside the stock drivers
    Active(active::Arguments),
    /// The tracer and the checkers, without a gate: boot, download, small requests, disk
    Checkers(checkers::Arguments),
    /// How long it takes to cut a device off while the analysis hangs
    Cut(cut::Arguments),
    /// Servers, disk and sound behind the gate, beside the same guest without Guardrail
    Gate(gate::Arguments),
    /// Guarded drivers, as instructions of the kernel, beside the figures of BGI's paper
    Guarded(guarded::Arguments),
    /// The checks of a guarded driver, as nanoseconds of this machine's processor
    Instructions(instructions::Arguments),
    /// Clients over the whole kernel, beside plain QEMU
    Kernel(kernel::Arguments),
    /// What KFENCE reports of the zoo's memory bugs outside of drivers
    Oracle(oracle::Arguments),
    /// What each part of DRCheck takes away, on the traces of a survey
    Drcheck(drcheck::Arguments),
    /// How many fingerprints runs have in common, over runs and kernels
    Ids(ids::Arguments),
    /// What the tables of docs/results were made with, run again
    Results(results::Arguments),
    /// How often DRCheck's triage is right, by races that were judged by hand
    Verdicts(verdicts::Arguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let ended = match &arguments.benchmark {
        Benchmark::Active(arguments) => active::run(arguments),
        Benchmark::Checkers(arguments) => checkers::run(arguments),
        Benchmark::Cut(arguments) => cut::run(arguments),
        Benchmark::Gate(arguments) => gate::run(arguments),
        Benchmark::Guarded(arguments) => guarded::run(arguments),
        Benchmark::Instructions(arguments) => instructions::run(arguments),
        Benchmark::Kernel(arguments) => kernel::run(arguments),
        Benchmark::Oracle(arguments) => oracle::run(arguments),
        Benchmark::Drcheck(arguments) => drcheck::run(arguments),
        Benchmark::Ids(arguments) => ids::run(arguments),
        Benchmark::Results(arguments) => results::run(arguments),
        Benchmark::Verdicts(arguments) => verdicts::run(arguments),
    };
    ended.map_or_else(common::Failure::report, |()| ExitCode::SUCCESS)
}
