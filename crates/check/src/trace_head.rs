//! The head of a trace file. It is written at the start of a run, and read to find kernel and modules again.

use crate::input::{AnalysisInput, ModuleFile, asks_for_redzones};
use crate::plan::{Observe, RunPlan};
use crate::reach::Reach;
use guardrail_finding::{Finding, KERNEL_CHECKER};
use guardrail_host::HostError;
use guardrail_host::drivers::{digest, names, others as other_modules, watched};
use guardrail_report::{ModuleIdentity, Run};
use guardrail_trace::file::TraceMeta;
use guardrail_vm::Cache;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::{Facts, ModuleFile as Driver, Modules};
use guardrail_vm::parser::Parser;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::symbols;
use serde::de::DeserializeOwned;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The key under which a trace keeps the description of its run.
pub const RUN_KEY: &str = "run";
/// The key under which a trace keeps the findings of its kernel's log.
pub const KERNEL_KEY: &str = "kernel_findings";
/// The key for names, files and digests of the modules that are not checked.
const OTHERS_KEY: &str = "other_modules";
/// The key for the digests of the watched modules, in the order of their names.
const DIGESTS_KEY: &str = "module_digests";
/// The key for the folder of the kernel's modules.
const KERNEL_MODULES_KEY: &str = "kernel_modules";
/// The key that says whether the kernel keeps redzones around all objects of its slab caches.
const REDZONES_KEY: &str = "redzones";
/// The most other modules that are read.
const MAX_OTHERS: usize = 512;

/// The head for the trace of a new run, without the hooks, which are known later.
pub fn new(plan: &RunPlan, prepared: &Prepared) -> TraceMeta {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut meta = TraceMeta {
        guardrail: env!("CARGO_PKG_VERSION").to_owned(),
        driver: names(prepared),
        kernel_release: prepared.kernel.release.clone(),
        kernel_image: prepared.kernel.vmlinuz.display().to_string(),
        modules: watched(prepared).map(|module| (module.name.clone(), resolved(&module.path))).collect(),
        workload: prepared.workload.name.clone(),
        tools: plan.tools.clone(),
        vcpus: plan.cpus.into(),
        started: now.as_secs(),
        ..TraceMeta::default()
    };
    let digests: Vec<String> = watched(prepared).map(|module| digest(&module.bytes)).collect();
    let others: Vec<_> = other_modules(prepared)
        .map(|other| (&other.name, resolved(&other.path), digest(&other.bytes)))
        .collect();
    // A trace that is cut has no end with the outcome of its run.
    let outcome = "truncated".to_owned();
    let run = Run { outcome, min_coverage: plan.min_coverage, ..subject_of_run(plan, prepared) };
    for (key, value) in [
        (RUN_KEY, serde_json::to_value(run)),
        (KERNEL_MODULES_KEY, serde_json::to_value(resolved(&prepared.kernel.modules))),
        (DIGESTS_KEY, serde_json::to_value(digests)),
        (OTHERS_KEY, serde_json::to_value(others)),
        (REDZONES_KEY, serde_json::to_value(asks_for_redzones(&plan.kernel_arguments))),
    ] {
        if let Ok(value) = value {
            meta.more.insert(key.to_owned(), value);
        }
    }
    meta
}

fn resolved(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// The part of a run's description that is known before it starts.
pub fn subject_of_run(plan: &RunPlan, prepared: &Prepared) -> Run {
    let checked = plan.observe == Observe::Check;
    Run {
        command: plan.command(&prepared.kernel.release),
        modules: if checked { watched(prepared).map(identity).collect() } else { Vec::new() },
        device: prepared.choice.device.as_ref().map(|device| device.name.clone()),
        workload: Some(prepared.workload.name.clone()),
        ..Run::default()
    }
}

/// What identifies the build of a driver.
fn identity(driver: &guardrail_vm::modules::ModuleFile) -> ModuleIdentity {
    let Facts { info, build_id, .. } = driver.facts.clone();
    let (version, srcversion) = (info.version, info.srcversion);
    ModuleIdentity { name: driver.name.clone(), version, srcversion, build_id }
}

/// The description of the run in a trace. A trace is not trusted: invalid parts are left out.
pub fn described(value: Option<&serde_json::Value>) -> Run {
    value.and_then(parsed).unwrap_or_default()
}

/// A part of a trace's head; `None` where it is invalid. It is read from its text as what comes from the
/// analysis is, so that one reader of findings is compiled, not two.
fn parsed<T: DeserializeOwned>(value: &serde_json::Value) -> Option<T> {
    serde_json::from_slice(value.to_string().as_bytes()).ok()
}

/// The findings of the kernel's log in a trace, which is not trusted.
pub fn kernel_findings(value: Option<&serde_json::Value>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = value.and_then(parsed).unwrap_or_default();
    findings.retain(|finding| finding.checker == KERNEL_CHECKER);
    findings
}

/// The kernel and the modules that a trace is of.
pub struct Subject {
    /// The kernel.
    pub kernel: Kernel,
    /// The drivers that were watched.
    pub drivers: Vec<Driver>,
    /// Other modules, as far as they are found. Without them some addresses have no names.
    pub others: Vec<(String, Vec<u8>)>,
}

/// Finds the kernel and the modules that a trace names, among those that it may name.
pub fn subject(meta: &TraceMeta, reach: &Reach) -> Result<Subject, HostError> {
    let text = |key: &str| meta.more.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let kernel = Kernel {
        release: meta.kernel_release.clone(),
        vmlinuz: PathBuf::from(&meta.kernel_image),
        modules: PathBuf::from(text(KERNEL_MODULES_KEY)),
    };
    if !kernel.vmlinuz.is_file() {
        return Err(HostError::Usage(format!(
            "the trace is of kernel {}, whose image is no longer at {}; fetch it again with a run of 'guardrail check'",
            meta.kernel_release,
            kernel.vmlinuz.display()
        )));
    }
    reach.refuse(&kernel.vmlinuz)?;
    reach.refuse(&kernel.modules)?;
    let modules = Modules::of(&kernel, &Parser::here())?;
    let digests = meta.more.get(DIGESTS_KEY).and_then(|value| value.as_array());
    let mut drivers = Vec::new();
    for (i, (_, path)) in meta.modules.iter().enumerate() {
        reach.refuse(Path::new(path))?;
        let driver = modules.plan(path)?.driver;
        if digests.and_then(|all| all.get(i)).and_then(|value| value.as_str())
            != Some(digest(&driver.bytes).as_str())
        {
            return Err(HostError::Usage(format!(
                "{path} is not the module that the trace is of: it has changed"
            )));
        }
        drivers.push(driver);
    }
    let others = others(meta, &modules, reach);
    Ok(Subject { kernel, drivers, others })
}

/// Unpacks the modules of a trace into `folder`, as an analysis reads them.
pub fn input(meta: &TraceMeta, subject: &Subject, folder: &Path) -> Result<AnalysisInput, HostError> {
    let cache = Cache::open().ok();
    // Names are read from the trace and must not lead out of the folder.
    let unpack = |file: String, bytes: &[u8]| {
        let file = folder.join(file);
        fs::write(&file, bytes).map_err(HostError::io("write", file.display()))?;
        Ok::<_, HostError>(file)
    };
    let mut modules = Vec::new();
    for (i, ((name, _), driver)) in meta.modules.iter().zip(&subject.drivers).enumerate() {
        let path = unpack(format!("{i}.ko"), &driver.bytes)?;
        let debug = cache.as_ref().and_then(|cache| symbols::cached(cache, driver));
        modules.push(ModuleFile { name: name.clone(), path, debug });
    }
    let mut others = Vec::new();
    for (i, (name, bytes)) in subject.others.iter().enumerate() {
        let path = unpack(format!("other-{i}.ko"), bytes)?;
        others.push(ModuleFile { name: name.clone(), path, debug: None });
    }
    let kernel_debug = cache.as_ref().and_then(|cache| symbols::cached_kernel(cache, &subject.kernel));
    let (kernel, hooks) = (subject.kernel.vmlinuz.clone(), meta.hooks.clone());
    let redzones = meta.more.get(REDZONES_KEY).and_then(serde_json::Value::as_bool).unwrap_or(false);
    let tools = Vec::new();
    Ok(AnalysisInput { kernel, kernel_debug, modules, others, tools, hooks, redzones })
}

/// The modules that are not checked, as far as their digests are the same.
fn others(meta: &TraceMeta, modules: &Modules, reach: &Reach) -> Vec<(String, Vec<u8>)> {
    let recorded: Vec<(String, String, String)> =
        meta.more.get(OTHERS_KEY).and_then(parsed).unwrap_or_default();
    let mut found: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, path, expected) in recorded.into_iter().take(MAX_OTHERS) {
        let permitted = reach.refuse(Path::new(&path)).is_ok();
        let Some(plan) = permitted.then(|| modules.plan(&path).ok()).flatten() else { continue };
        if found.iter().all(|(other, _)| *other != name) && digest(&plan.driver.bytes) == expected {
            found.push((name, plan.driver.bytes));
        }
    }
    found
}
