//! Runs the checkers over a recorded trace.

use crate::analysis::engine::Engine;
use crate::analysis::sandbox;
use crate::exercised;
use crate::input::AnalysisInput;
use crate::tools::tools;
use crate::trace_head::{self, KERNEL_KEY, RUN_KEY};
use guardrail_host::drivers::seconds;
use guardrail_host::{Host, HostError, Symbols};
use guardrail_jail::Jail;
use guardrail_report::{Report, SCHEMA};
use guardrail_trace::file::{Ending, TraceReader};
use guardrail_vm::OwnedFolder;
use guardrail_vm::kernels::Kernel;
use guardrail_vm::modules::ModuleFile;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The result of the checkers over a trace.
pub struct Analyzed {
    /// The report with all findings.
    pub report: Report,
    /// Where the trace was cut, and how; absent for a whole one.
    pub cut: Option<String>,
}

/// Analyzes a trace with the checkers of its run, or with those of a list. For good, the process then writes only the
/// cache and the `outputs`, and starts nothing.
///
/// Where symbols are fetched, which takes programs and a network, that begins behind the trace's head.
pub fn analyze(
    file: &Path,
    tool_list: Option<&str>,
    symbols: &Symbols,
    host: &Host,
    outputs: &[PathBuf],
) -> Result<Analyzed, HostError> {
    let started = Instant::now();
    let folder = OwnedFolder::large("guardrail-").map_err(HostError::io("create", "a temporary folder"))?;
    let confine = || {
        // To remove a folder takes the right to write to the one around it.
        let own = [host.cache.root(), folder.path().parent().unwrap_or(folder.path())];
        let written = outputs.iter().map(|output| sandbox::place_of_new(output)).chain(own);
        sandbox::confine(&written.fold(Jail::new().reads("/"), Jail::writes))
            .map_err(HostError::io("confine", "this process"))
    };
    if !symbols.fetch {
        confine()?;
    }
    let mut trace = TraceReader::open(file)?;
    let meta = trace.meta().clone();
    let tools = tools(tool_list.unwrap_or(&meta.tools.join(",")))?;
    let provide = |kernel: &Kernel, modules: &[&ModuleFile]| symbols.provide(kernel, modules, host);
    let input = AnalysisInput { tools: tools.clone(), ..trace_head::input(&meta, folder.path(), &provide)? };
    if symbols.fetch {
        confine()?;
    }
    host.progress.step(&format!("reading {}", file.display()));
    let mut analyzed = Engine::open(&input)?.run(&mut trace, &mut |_| {}, &mut |_, _| false)?;
    host.progress.finish();

    let mut run = match trace.ending() {
        Some(Ending::Complete { summary, .. }) => {
            analyzed.findings.extend(trace_head::kernel_findings(summary.more.get(KERNEL_KEY)));
            trace_head::described(summary.more.get(RUN_KEY))
        }
        _ => trace_head::described(meta.more.get(RUN_KEY)),
    };
    run = analyzed.complete(run);
    exercised::judge(&mut run);
    run.wall_seconds = seconds(started.elapsed());
    let report = Report {
        schema: SCHEMA.to_owned(),
        driver: meta.driver.clone(),
        kernel: meta.kernel_release.clone(),
        tools,
        mode: "permissive".to_owned(),
        run,
        findings: analyzed.findings,
        ..Report::default()
    };
    let cut = match trace.ending() {
        Some(ending @ Ending::Truncated { .. }) => Some(ending.to_string()),
        _ => None,
    };
    Ok(Analyzed { report, cut })
}
