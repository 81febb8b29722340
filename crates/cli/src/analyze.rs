//! `guardrail analyze`: the same checkers over a recorded trace.

use crate::analysis_process::RUN_KEY;
use crate::args::AnalyzeArgs;
use crate::drivers::{debug_file, digest};
use crate::engine::Engine;
use crate::errors::{CliError, Status, tell};
use crate::output;
use crate::progress::Progress;
use crate::wire::{ModuleFile, Subject};
use guardrail_report::{Report, Run, SCHEMA};
use guardrail_trace::file::{Ending, TraceMeta, TraceReader};
use guardrail_vm::Cache;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::Modules;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

/// The key under which a trace keeps the names, files and digests of the modules that are not checked.
pub const OTHERS_KEY: &str = "other_modules";
/// The most of them that are read.
const MAX_OTHERS: usize = 512;

/// Analyzes a trace and prints the report.
pub fn run(args: &AnalyzeArgs) -> Result<Status, CliError> {
    let started = Instant::now();
    output::check_format(args.format)?;
    let mut trace = TraceReader::open(&args.file)?;
    let meta = trace.meta().clone();
    let tools = crate::engine::tools(args.tool.as_ref().unwrap_or(&meta.tools.join(",")))?;
    let folder = TempDir::with_prefix("guardrail-").map_err(CliError::io("create", "a temporary folder"))?;
    let subject = Subject { tools: tools.clone(), ..subject(&meta, folder.path())? };
    let progress = Progress::shown();
    progress.step(&format!("reading {}", args.file.display()));
    let analyzed = Engine::open(&subject)?.run(&mut trace, &mut |_| {}, &mut |_| {})?;
    progress.finish();

    let mut run = match trace.ending() {
        Some(Ending::Complete { summary, .. }) => described(summary.more.get(RUN_KEY)),
        _ => described(meta.more.get(RUN_KEY)),
    };
    run.wall_seconds = (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    let report = Report {
        schema: SCHEMA.to_owned(),
        driver: meta.driver.clone(),
        kernel: meta.kernel_release.clone(),
        tools,
        mode: "permissive".to_owned(),
        run: analyzed.complete(run),
        findings: analyzed.findings,
    };
    output::report(&report, args.format)?;
    if let Some(ending @ Ending::Truncated { .. }) = trace.ending() {
        tell("guardrail", &format!("{}: {ending}", args.file.display()));
    }
    Ok(if report.findings.is_empty() { Status::Clean } else { Status::Findings })
}

/// What a trace says of its run. A trace is not to be trusted: what does not fit is left out.
fn described(value: Option<&serde_json::Value>) -> Run {
    value.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
}

/// Finds the kernel and the modules that a trace is of, and unpacks the modules into `folder`.
pub fn subject(meta: &TraceMeta, folder: &Path) -> Result<Subject, CliError> {
    let text = |key: &str| meta.more.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    let kernel = Kernel {
        release: meta.kernel_release.clone(),
        vmlinuz: PathBuf::from(&meta.kernel_image),
        modules: PathBuf::from(text("kernel_modules")),
    };
    if !kernel.vmlinuz.is_file() {
        return Err(CliError::Usage(format!(
            "the trace is of kernel {}, whose image is no longer at {}; fetch it again with a run of 'guardrail check'",
            meta.kernel_release,
            kernel.vmlinuz.display()
        )));
    }
    let modules = Modules::of(&kernel)?;
    let cache = Cache::open().ok();
    let digests = meta.more.get("module_digests").and_then(|value| value.as_array());
    let mut found = Vec::new();
    for (i, (name, path)) in meta.modules.iter().enumerate() {
        let driver = modules.plan(path)?.driver;
        if digests.and_then(|all| all.get(i)).and_then(|value| value.as_str())
            != Some(digest(&driver.bytes).as_str())
        {
            return Err(CliError::Usage(format!(
                "{path} is not the module that the trace is of: it has changed"
            )));
        }
        // The name comes from the trace and must not lead out of the folder.
        let file = folder.join(format!("{i}.ko"));
        fs::write(&file, &driver.bytes).map_err(CliError::io("write", file.display()))?;
        let debug = cache.as_ref().and_then(|cache| debug_file(cache, &kernel, name));
        found.push(ModuleFile { name: name.clone(), path: file, debug });
    }
    let others = others(meta, &modules, folder)?;
    let (kernel, hooks) = (kernel.vmlinuz, meta.hooks.clone());
    Ok(Subject { kernel, modules: found, others, tools: Vec::new(), hooks })
}

/// The modules that are not checked, as far as they are still what they were: without them some addresses have no names.
fn others(meta: &TraceMeta, modules: &Modules, folder: &Path) -> Result<Vec<ModuleFile>, CliError> {
    let told = meta.more.get(OTHERS_KEY).cloned().unwrap_or_default();
    let told: Vec<(String, String, String)> = serde_json::from_value(told).unwrap_or_default();
    let mut found: Vec<ModuleFile> = Vec::new();
    for (i, (name, path, recorded)) in told.into_iter().take(MAX_OTHERS).enumerate() {
        let Ok(plan) = modules.plan(&path) else { continue };
        if found.iter().any(|other| other.name == name) || digest(&plan.driver.bytes) != recorded {
            continue;
        }
        let file = folder.join(format!("other-{i}.ko"));
        fs::write(&file, &plan.driver.bytes).map_err(CliError::io("write", file.display()))?;
        found.push(ModuleFile { name, path: file, debug: None });
    }
    Ok(found)
}
