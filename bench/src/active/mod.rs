//! `bench/run active`: what active drivers cost, beside the stock drivers of the same devices and beside calls.
//!
//! Messages are measured in the kernel, by `active/tests/bench.c`, with calls in the same run. Traffic is measured in one guest, whose device
//! the stock and the active driver have by turns: each figure has its base beside it. Instructions of the kernel are counted in runs of their
//! own, which take turns. A ratio is the median of those of all pairs, with the interval of 95% by resampling.

mod guest;
mod instructions;
mod loads;
mod messages;
mod table;

use crate::common::{Failure, Format};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use loads::Load;
use table::Table;

/// The options.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Pairs of each load, and runs of messages
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=1000))]
    pairs: u32,
    /// Pairs of counted runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    counts: u32,
    /// The kernel
    #[arg(long, default_value = guardrail_vm::kernels::DEFAULT)]
    kernel: String,
    /// Number of guest CPUs; instructions are counted on one
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=4))]
    smp: u8,
    /// What is measured, separated by commas: messages, disk, network, sound, instructions (default: all)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// The guest's time is that of the instructions that it executes, one by one, and no other
    #[arg(long)]
    icount: bool,
    /// Only show that all of it runs, with two pairs of a hundredth of each load
    #[arg(long = "try")]
    only_try: bool,
    /// How the tables are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Arguments {
    fn pairs(&self) -> u32 {
        if self.only_try { 2 } else { self.pairs }
    }

    /// The guest, for the head of a table.
    fn guest(&self) -> String {
        format!("{}, {} vCPUs{}", self.kernel, self.smp, if self.icount { " by instructions" } else { "" })
    }
}

/// Something to measure.
#[derive(Clone, Copy, Debug)]
enum Part {
    Messages,
    Load(&'static Load),
    Instructions,
}

impl Part {
    fn name(&self) -> &'static str {
        match self {
            Part::Messages => "messages",
            Part::Load(load) => load.class,
            Part::Instructions => "instructions",
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut parts = vec![Part::Messages];
    parts.extend(loads::LOADS.iter().map(Part::Load));
    parts.push(Part::Instructions);
    let parts = crate::common::chosen("--only", &parts, |part| part.name(), &arguments.only)
        .map_err(Failure::Usage)?;
    Ok(measure(arguments, &parts)?)
}

fn measure(arguments: &Arguments, parts: &[Part]) -> Result<(), String> {
    let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
    let modules = guest::modules(&packages, &arguments.kernel, folder.path())?;
    let mut tables: Vec<Table> = Vec::new();
    for part in parts {
        eprintln!("{} on {}", part.name(), arguments.kernel);
        let table = match part {
            Part::Messages => messages::measure(&packages, arguments, &modules),
            Part::Load(load) => load.measure(&packages, arguments, &modules),
            Part::Instructions => instructions::measure(arguments, &modules),
        };
        tables.push(table.map_err(|why| format!("{}: {why}", part.name()))?);
    }
    let json = || serde_json::json!({ "schema": "guardrail-bench-active/1", "tables": tables.iter().map(Table::json).collect::<Vec<_>>() });
    arguments.format.print(|| tables.iter().map(Table::text).collect(), json);
    Ok(())
}
