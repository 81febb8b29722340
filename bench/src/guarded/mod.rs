//! `bench/run guarded`: what a guarded driver costs, as instructions that the kernel executes for the same work, stock against guarded.
//!
//! Stock and guarded runs take turns, and each guarded run is compared with the stock one before it. Instructions are counted exactly, by
//! the client `count`; what varies between runs is what the guest does: how many interrupts and packets the same amount of data comes in.

mod run;
mod table;
mod workloads;

use crate::common::{Common, Drivers, Failure};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::software::Software;
use std::collections::BTreeMap;
use std::path::PathBuf;
use table::Table;
use workloads::Workload;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// The workloads, separated by commas (default: all)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    drivers: Drivers,
    /// Count the driver and guardrail.ko alone, not the whole kernel
    #[arg(long)]
    alone: bool,
}

impl Arguments {
    /// Whose instructions are counted, in words.
    fn what(&self) -> &'static str {
        if self.alone { "the driver and guardrail.ko" } else { "the kernel" }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let workloads = workloads::chosen(&arguments.only).map_err(Failure::Usage)?;
    Ok(measure(arguments, &workloads)?)
}

fn measure(arguments: &Arguments, workloads: &[Workload]) -> Result<(), String> {
    let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
    let software = Software::find(&packages).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder for drivers: {error}"))?;
    let mut guarded: BTreeMap<&str, PathBuf> = BTreeMap::new();
    for workload in workloads {
        let driver = arguments.drivers.of(workload.device);
        if !guarded.contains_key(driver) {
            guarded.insert(driver, run::guard(arguments, driver, folder.path())?);
        }
    }
    let sample = |workload: &Workload, setup: &str, driver: &str| {
        run::workload(arguments, workload, driver, &software)
            .map_err(|why| format!("{}, {setup}: {why}", workload.name))
    };
    let path = |workload: &Workload| guarded[arguments.drivers.of(workload.device)].display().to_string();
    if arguments.common.only_try {
        for workload in workloads {
            let sample = sample(workload, "guarded", &path(workload))?;
            println!(
                "{}: {:.1} instructions for a {}",
                workload.name,
                sample.instructions,
                workload.unit.word()
            );
        }
        return Ok(());
    }
    let mut table = Table::new(&arguments.common.kernel, arguments.common.smp, arguments.what());
    for run in 1..=arguments.common.runs {
        for workload in workloads {
            let driver = arguments.drivers.of(workload.device);
            eprintln!("run {run} of {}: {}, stock", arguments.common.runs, workload.name);
            let stock = sample(workload, "stock", driver)?;
            eprintln!("run {run} of {}: {}, guarded", arguments.common.runs, workload.name);
            let guarded = sample(workload, "guarded", &path(workload))?;
            table.add(workload, driver, stock, guarded);
        }
    }
    arguments.common.format.print(|| table.text(), || table.json());
    Ok(())
}
