//! `bench/guarded`: what a guarded driver costs, as instructions that the kernel executes for the same work, stock against guarded.
//!
//! Stock and guarded runs take turns. Instructions are counted exactly, by the client `count`; what varies between runs is what the guest
//! does: how many interrupts and packets the same amount of data comes in.

mod run;
mod table;
mod workloads;

use clap::Parser;
use guardrail_bench::{Format, arguments, failed};
use guardrail_vm::Cache;
use guardrail_vm::packages::Packages;
use guardrail_vm::software::Software;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use table::Table;
use workloads::{Device, Workload};

/// Prints what guarded drivers cost in instructions of the kernel, beside the figures of BGI's paper.
#[derive(Debug, Parser)]
#[command(name = "bench/guarded", term_width = 100)]
struct Arguments {
    /// How often each workload is run in each way
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The kernel
    #[arg(long, default_value = guardrail_vm::kernels::DEFAULT)]
    kernel: String,
    /// Number of guest CPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=4))]
    smp: u8,
    /// The workloads, separated by commas (default: all)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// The network driver
    #[arg(long, value_name = "DRIVER", default_value = "e1000")]
    network: String,
    /// The disk driver
    #[arg(long, value_name = "DRIVER", default_value = "sym53c8xx")]
    disk: String,
    /// The sound driver
    #[arg(long, value_name = "DRIVER", default_value = "snd_ens1370")]
    sound: String,
    /// Only try each workload once, guarded
    #[arg(long = "try")]
    only_try: bool,
    /// How the tables are printed
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

impl Arguments {
    /// The driver that a workload is run on.
    fn driver(&self, workload: &Workload) -> &str {
        match workload.device {
            Device::Network => &self.network,
            Device::Disk => &self.disk,
            Device::Sound => &self.sound,
        }
    }
}

fn main() -> ExitCode {
    let arguments = match arguments::<Arguments>() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match workloads::chosen(&arguments.only) {
        Err(why) => failed(why, 2),
        Ok(workloads) => match measure(&arguments, &workloads) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => failed(why, 3),
        },
    }
}

fn measure(arguments: &Arguments, workloads: &[Workload]) -> Result<(), String> {
    let packages = Packages::new(&Cache::open().map_err(|error| error.to_string())?);
    let software = Software::find(&packages).map_err(|error| error.to_string())?;
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder for drivers: {error}"))?;
    let mut guarded: BTreeMap<&str, PathBuf> = BTreeMap::new();
    for workload in workloads {
        let driver = arguments.driver(workload);
        if !guarded.contains_key(driver) {
            guarded.insert(driver, run::guard(arguments, driver, folder.path())?);
        }
    }
    let sample = |workload: &Workload, way: &str, driver: &str| {
        run::workload(arguments, workload, driver, &software)
            .map_err(|why| format!("{}, {way}: {why}", workload.name))
    };
    let path = |workload: &Workload| guarded[arguments.driver(workload)].display().to_string();
    if arguments.only_try {
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
    let mut table = Table::new(&arguments.kernel, arguments.smp);
    for run in 1..=arguments.runs {
        for workload in workloads {
            let driver = arguments.driver(workload);
            eprintln!("run {run} of {}: {}, stock", arguments.runs, workload.name);
            let stock = sample(workload, "stock", driver)?;
            eprintln!("run {run} of {}: {}, guarded", arguments.runs, workload.name);
            let guarded = sample(workload, "guarded", &path(workload))?;
            table.add(workload, driver, stock, guarded);
        }
    }
    match arguments.format {
        Format::Text => print!("{}", table.text()),
        Format::Json => println!("{:#}", table.json()),
    }
    Ok(())
}
