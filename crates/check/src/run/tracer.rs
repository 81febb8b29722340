//! The tracer's configuration: what it traces, and which accesses it holds.

use crate::plan::RunPlan;
use guardrail_binfmt::image::MAX_FILE;
use guardrail_binfmt::{KernelError, KernelImage, ModuleImage, orc};
use guardrail_host::HostError;
use guardrail_host::drivers::{others, watched};
use guardrail_jail::Jail;
use guardrail_kernel::gate as gate_config;
use guardrail_kernel::{SummaryTable, hook_modules, module_tables, tracer_config};
use guardrail_trace::config::{self, Holds, Samples, TracerConfig, Unwind};
use guardrail_vm::parser::{Given, Job, Sizes, joined, pieces};
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::TcgThreads;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The name of the tracer's library; it is beside the program.
pub const LIBRARY: &str = "libguardrail_tracer.so";
/// The name of the file with the kernel's unwind tables; it is beside the log, and goes with it.
const TABLES: &str = "orc";

/// Which accesses the tracer holds, besides logging them.
#[derive(Default)]
pub struct Holding {
    /// Accesses that are held to see which others occur meanwhile.
    pub holds: Holds,
    /// How device accesses are held until they are checked; `None` where they are not.
    pub gate: Option<DeviceHolding>,
}

/// How device accesses are held.
pub struct DeviceHolding {
    /// Physical addresses of the guest's memory: start and end of each piece.
    pub memory: Vec<(u64, u64)>,
    /// The longest hold.
    pub limit: Duration,
    /// True where an access that bypassed the gate closes it.
    pub strict: bool,
    /// True where vCPUs do not wait with writes to memory.
    pub posts: bool,
}

/// Writes the tracer's configuration, with the file that it names beside the log, and returns the names of the hooks by number.
pub fn write_config(
    prepared: &Prepared,
    log: &Path,
    holding: Holding,
    file: &Path,
) -> Result<Vec<String>, HostError> {
    let (found, tables) = configured(prepared, &holding)?;
    let unwind = match found.unwind {
        Some(unwind) => Some(write_tables(unwind, &tables, &log.with_file_name(TABLES))?),
        None => None,
    };
    // Of the answer only what stems from the kernel is taken. Without a gate that was asked for there is no run.
    let gate = match (holding.gate, found.gate) {
        (None, _) => None,
        (Some(own), Some(found)) => {
            let limit_millis = own.limit.as_millis() as u64;
            Some(config::Gate {
                strict: own.strict,
                posts: own.posts,
                limit_millis,
                ram: own.memory,
                ..found
            })
        }
        (Some(_), None) => return Err(HostError::Run("the kernel's gate was not configured".into())),
    };
    let watch = watched(prepared).map(|module| module.name.clone()).collect();
    let log = log.display().to_string();
    let config = TracerConfig { log, watch, holds: holding.holds, gate, unwind, ..found };
    let text = serde_json::to_vec(&config).map_err(|error| HostError::Run(error.to_string()))?;
    fs::write(file, text).map_err(HostError::io("write", file.display()))?;
    Ok(config.hooks.into_iter().map(|hook| hook.name).collect())
}

/// The part of the configuration that the kernel and its modules give, and the kernel's unwind tables.
fn configured(prepared: &Prepared, holding: &Holding) -> Result<(TracerConfig, Vec<u8>), HostError> {
    let path = &prepared.kernel.vmlinuz;
    let image = File::open(path).map_err(HostError::io("open", path.display()))?;
    let (modules, bytes) = joined(others(prepared).map(|module| (&module.name, module.bytes.as_slice())));
    let job = Configure {
        what: path.display().to_string(),
        modules,
        memory: holding.gate.as_ref().map(|gate| gate.memory.clone()),
    };
    let found = prepared.parser.ask(&job, &[&image], &bytes);
    Ok(found.map_err(|error| error.of(path, guardrail_vm::Error::BadValue))?)
}

/// Works out the tracer's configuration for a kernel, which is a file, and for modules, whose bytes follow one another.
#[derive(Debug, Serialize, Deserialize)]
pub struct Configure {
    what: String,
    /// The modules that are not traced: their names and sizes.
    modules: Sizes,
    /// The physical addresses of the guest's memory, where device accesses are held.
    memory: Option<Vec<(u64, u64)>>,
}

impl Job for Configure {
    const NAME: &'static str = "tracer";
    type Answer = TracerConfig;

    fn run(self, mut given: Given) -> Result<(TracerConfig, Vec<u8>), String> {
        let sentence = |error: KernelError| error.to_string();
        let image = KernelImage::parse(&self.what, given.read(MAX_FILE)?).map_err(sentence)?;
        let table = SummaryTable::for_image(&image);
        let mut config = tracer_config(&image, &table, &[], "").map_err(sentence)?;
        // A module that cannot be read has no hooks.
        let modules = pieces(&self.modules, &given.bytes);
        let modules = modules.filter_map(|(name, bytes)| ModuleImage::parse(name, bytes.to_vec()).ok());
        hook_modules(&mut config, &table, &modules.collect::<Vec<_>>());
        config.gate = self.memory.map(|memory| gate_config(&image, &memory, 0));
        let Some((places_at, places, entries)) = orc::tables(&image) else { return Ok((config, Vec::new())) };
        let (tables, places_size) = (String::new(), places.len() as u64);
        config.unwind = Some(Unwind { tables, places_at, places_size, module: module_tables(&image) });
        Ok((config, [places, entries].concat()))
    }
}

/// The files beside its configuration that the tracer opens: it writes the log, and reads the tables beside it.
pub fn reach(log: &Path) -> Jail {
    Jail::new().writes(log).reads(log.with_file_name(TABLES))
}

/// Writes the tables by which the kernel unwinds its stacks, beside the log.
fn write_tables(unwind: Unwind, tables: &[u8], file: &Path) -> Result<Unwind, HostError> {
    fs::write(file, tables).map_err(HostError::io("write", file.display()))?;
    let places_size = unwind.places_size.min(tables.len() as u64);
    Ok(Unwind { tables: file.display().to_string(), places_size, ..unwind })
}

/// The samples of `datacollider`, where it is among the checkers. CPUs that take turns on one thread have turns of a tenth of a
/// second, so each hold lasts longer than that.
pub fn samples(plan: &RunPlan) -> Holds {
    if !plan.tools.iter().any(|tool| tool == "datacollider") {
        return Holds::default();
    }
    let (millis, pause_millis) = match plan.threads {
        TcgThreads::Multi => (20, 40),
        TcgThreads::Single => (220, 220),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let samples = Samples { one_in: 3, seed: now.as_nanos() as u64, millis, pause_millis };
    Holds { samples: Some(samples), ..Holds::default() }
}
