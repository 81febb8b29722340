//! `bench/run kernel`: what it costs to instrument the whole kernel, as ratios to plain QEMU.
//!
//! The setups of a guest take turns, so that a slow minute of the machine hits all of them. The guest
//! measures the time, around the benchmark alone.
//! Each figure is the median of a setup's runs against the median of plain QEMU. The spread (lowest and highest
//! ratio) stands behind it.

mod loads;
mod run;
mod setups;
mod table;

use crate::common::{Common, Failure};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use loads::Load;
use setups::Setup;
use table::Table;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// The guest's memory in MiB
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(256..=2048))]
    memory: u32,
    /// The workloads, separated by commas (default: all)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    workload: Vec<String>,
    /// The columns beside plain QEMU, separated by commas: detached, null, count, blocks, kaddrcheck, stackcheck, and the
    /// names of --plugin (default: all)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    ways: Vec<String>,
    /// A further column: any plugin for QEMU
    #[arg(long, value_name = "NAME=FILE[,OPTION=VALUE]")]
    plugin: Vec<Setup>,
    /// The part of each benchmark's usual operations
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10000))]
    scale: u32,
}

/// Percent of a benchmark that is enough to show that it runs.
const TRY_PERCENT: u32 = 2;

impl Arguments {
    fn percent(&self) -> u32 {
        if self.common.only_try { self.scale.min(TRY_PERCENT) } else { self.scale }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let setups = setups::chosen(&arguments.plugin, &arguments.ways).map_err(Failure::Usage)?;
    let loads = loads::chosen(&arguments.workload).map_err(Failure::Usage)?;
    Ok(measure(arguments, &setups, &loads)?)
}

fn measure(arguments: &Arguments, setups: &[Setup], loads: &[Load]) -> Result<(), String> {
    let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
    let sample = |load: &Load, setup: &Setup| {
        run::load(&packages, arguments, load, setup)
            .map_err(|why| format!("{}, {}: {why}", load.name, setup.name))
    };
    if arguments.common.only_try {
        let setup = setups.last().ok_or("no setup")?;
        for load in loads {
            for (name, seconds) in sample(load, setup)?.seconds {
                println!("{name}, {}: {seconds:.3} s", setup.name);
            }
        }
        return Ok(());
    }
    let mut table = Table::new(&arguments.common.kernel, arguments.common.smp, arguments.memory, setups);
    for run in 1..=arguments.common.runs {
        for load in loads {
            for setup in setups {
                eprintln!("run {run} of {}: {}, {}", arguments.common.runs, load.name, setup.name);
                table.add(load, setup, sample(load, setup)?);
            }
        }
    }
    arguments.common.format.print(|| table.text(), || table.json());
    Ok(())
}
