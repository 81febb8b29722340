//! The tracer's configuration: what it traces, and which accesses it holds.

use crate::plan::RunPlan;
use guardrail_binfmt::{KernelImage, ModuleImage, orc};
use guardrail_host::HostError;
use guardrail_host::drivers::{drivers, others};
use guardrail_jail::Jail;
use guardrail_kernel::gate as gate_config;
use guardrail_kernel::{SummaryTable, hook_modules, module_tables, tracer_config};
use guardrail_trace::config::{self, Holds, Samples, TracerConfig, Unwind};
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::TcgThreads;
use std::fs;
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
}

/// Writes the tracer's configuration, with the file that it names beside the log, and returns the names of the hooks by number.
pub fn write_config(
    prepared: &Prepared,
    log: &Path,
    holding: Holding,
    file: &Path,
) -> Result<Vec<String>, HostError> {
    let image = KernelImage::open(&prepared.kernel.vmlinuz)?;
    let unwind = write_tables(&image, &log.with_file_name(TABLES))?;
    let log = log.display().to_string();
    let watch: Vec<String> = drivers(prepared).map(|driver| driver.name.clone()).collect();
    let table = SummaryTable::for_image(&image);
    let mut config = tracer_config(&image, &table, &watch, &log)?;
    // A module that cannot be read has no hooks.
    let modules = others(prepared).filter_map(|file| ModuleImage::parse(&file.name, file.bytes.clone()).ok());
    hook_modules(&mut config, &table, &modules.collect::<Vec<_>>());
    let gate = holding.gate.map(|gate| config::Gate {
        strict: gate.strict,
        ..gate_config(&image, &gate.memory, gate.limit.as_millis() as u64)
    });
    let config = TracerConfig { holds: holding.holds, gate, unwind, ..config };
    let text = serde_json::to_vec(&config).map_err(|error| HostError::Run(error.to_string()))?;
    fs::write(file, text).map_err(HostError::io("write", file.display()))?;
    Ok(config.hooks.into_iter().map(|hook| hook.name).collect())
}

/// The files beside its configuration that the tracer opens: it writes the log, and reads the tables beside it.
pub fn reach(log: &Path) -> Jail {
    Jail::new().writes(log).reads(log.with_file_name(TABLES))
}

/// Writes the tables by which the kernel unwinds its stacks, beside the log. `None` for a kernel without them.
fn write_tables(image: &KernelImage, file: &Path) -> Result<Option<Unwind>, HostError> {
    let Some((places_at, places, entries)) = orc::tables(image) else { return Ok(None) };
    fs::write(file, [places, entries].concat()).map_err(HostError::io("write", file.display()))?;
    let tables = file.display().to_string();
    Ok(Some(Unwind { tables, places_at, places_size: places.len() as u64, module: module_tables(image) }))
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
