//! Before a run: everything that can be refused or fetched without a guest.

use crate::analysis::policy::Policy;
use crate::gate::outside;
use crate::plan::RunPlan;
use crate::run::{synthetic, tracer};
use crate::stored;
use guardrail_host::folders::{RunFolder, library};
use guardrail_host::{Host, HostError, drivers as host_drivers, zoo};
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Own, Prepared};
use std::path::PathBuf;
use std::time::Instant;

/// A run that can start: kernel, drivers, QEMU and tracer exist, and the run folder is created.
pub struct Ready<'a> {
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The services of this machine.
    pub host: &'a Host,
    /// The prepared kernel, drivers and workload.
    pub prepared: Prepared,
    pub(super) policy: Option<Policy>,
    pub(super) tracer: PathBuf,
    pub(super) folder: RunFolder,
    pub(super) began: Instant,
}

/// Fetches and checks what a run needs.
pub fn prepare<'a>(plan: &'a RunPlan, host: &'a Host) -> Result<Ready<'a>, HostError> {
    let began = Instant::now();
    plan.refuse()?;
    let policy = Policy::of_plan(plan)?;
    let prepared = drivers(plan, host)?;
    prepared.refuse_unread(plan.variables.iter().map(|(name, _)| name.as_str()))?;
    synthetic::refuse(plan, &prepared)?;
    outside::refuse(plan, &prepared)?;
    let of_run: Vec<_> = host_drivers::watched(&prepared).collect();
    plan.symbols.provide(&prepared.parser, &prepared.kernel, &of_run, host)?;
    let tracer = library(tracer::LIBRARY)?;
    let folder = RunFolder::new(plan.out.as_deref())?;
    if let RunFolder::Kept(path) = &folder {
        stored::store(path, plan, &prepared)?;
    }
    Ok(Ready { plan, host, prepared, policy, tracer, folder, began })
}

/// Fetches kernel and drivers of a plan, with their parameters.
pub fn drivers(plan: &RunPlan, host: &Host) -> Result<Prepared, HostError> {
    let mut prepared = zoo::prepare(&Packages::new(&host.cache), plan.request(), &host.progress)?;
    prepared.set_parameters(&plan.parameters)?;
    let names = plan.variables.iter().map(|(name, _)| name.as_str());
    let RunPlan { files, program, root, memory_mib, .. } = plan;
    let own = Own { files, program: program.as_ref(), root: root.as_ref(), memory_mib: *memory_mib };
    prepared.bring(own, names)?;
    if plan.rerun.is_some() && prepared.has_image() {
        return Err(HostError::Usage(
            "the image of --rootfs would not be recorded; give the root as a folder or an archive".into(),
        ));
    }
    Ok(prepared)
}
