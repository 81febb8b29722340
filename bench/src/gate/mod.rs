//! `bench/run gate`: what guarding costs, as ratios to the same guest without Guardrail.
//!
//! The setups of a guest take turns, so that a slow minute of the machine hits all of them.
//! Each figure is how much slower the workload was: the median of its runs against the median without
//! Guardrail. The spread (lowest and highest ratio) stands behind it.

mod load;
mod registers;
mod run;
mod setups;
mod table;
mod workloads;

use crate::common::{Common, Drivers, Failure};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::software::Software;
use setups::Setup;
use table::{Row, Table};
use workloads::Workload;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Run the guest's CPUs by turns on one thread (single), or on a thread each (multi)
    #[arg(long, default_value = "single")]
    thread: String,
    /// The workloads, separated by commas (default: all; "registers" times single accesses)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// The columns, separated by commas (default: dmcheck, drcheck, dmacheck, three, vfio-user); there are also tracer,
    /// ungated, held, vfio-user-held, polling, yielding and interrupt
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    tools: Vec<String>,
    /// Where device accesses are held
    #[arg(long, default_value = setups::GATE)]
    gate: String,
    /// How long each load lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=300))]
    seconds: u32,
    #[command(flatten)]
    drivers: Drivers,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let setups = setups::chosen(&arguments.tools).map_err(Failure::Usage)?;
    let (workloads, with_registers) = workloads::chosen(&arguments.only).map_err(Failure::Usage)?;
    Ok(measure(arguments, &setups, &workloads, with_registers)?)
}

fn measure(
    arguments: &Arguments,
    setups: &[Setup],
    workloads: &[Workload],
    with_registers: bool,
) -> Result<(), String> {
    let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
    let software = Software::find(&packages).map_err(|error| error.to_string())?;
    if arguments.common.only_try {
        return only_try(arguments, workloads, with_registers, setups.last().ok_or("no setup")?, &software);
    }
    let mut table = Table::new(arguments, setups);
    for run in 1..=arguments.common.runs {
        for workload in workloads {
            for setup in setups {
                eprintln!("run {run} of {}: {}, {}", arguments.common.runs, workload.name, setup.title);
                let sample = run::workload(arguments, workload, setup, &software)
                    .map_err(|why| format!("{}, {}: {why}", workload.name, setup.title))?;
                table.add(Row::of(workload, arguments.drivers.of(workload.device)), setup, sample);
            }
        }
        if with_registers {
            for setup in setups {
                eprintln!("run {run} of {}: registers, {}", arguments.common.runs, setup.title);
                let samples = registers::run(arguments, setup)
                    .map_err(|why| format!("registers, {}: {why}", setup.title))?;
                for (row, sample) in samples {
                    table.add(row, setup, sample);
                }
            }
        }
    }
    arguments.common.format.print(|| table.text(), || table.json());
    Ok(())
}

/// Prints for each workload whether it runs; the time of a single run means nothing.
fn only_try(
    arguments: &Arguments,
    workloads: &[Workload],
    with_registers: bool,
    setup: &Setup,
    software: &Software,
) -> Result<(), String> {
    for workload in workloads {
        let driver = arguments.drivers.of(workload.device);
        let sample = run::workload(arguments, workload, setup, software)
            .map_err(|why| format!("{} on {driver}, {}: {why}", workload.name, setup.title))?;
        println!("{} on {driver}: {:.1} {}", workload.name, sample.figure, workload.unit());
    }
    if with_registers {
        for (row, sample) in registers::run(arguments, setup)? {
            println!("{}: {:.0} ns", row.title(), sample.figure);
        }
    }
    Ok(())
}
