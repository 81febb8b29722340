//! Runs the checkers over a recorded trace.

use crate::analysis::engine::Engine;
use crate::input::AnalysisInput;
use crate::tools::tools;
use crate::trace_head::{self, RUN_KEY};
use guardrail_host::drivers::seconds;
use guardrail_host::{Host, HostError};
use guardrail_report::{Report, SCHEMA};
use guardrail_trace::file::{Ending, TraceReader};
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// The result of the checkers over a trace.
pub struct Analyzed {
    /// The report with all findings.
    pub report: Report,
    /// Where the trace was cut, and how; absent for a whole one.
    pub cut: Option<String>,
}

/// Analyzes a trace with the checkers of its run, or with those of a list.
pub fn analyze(file: &Path, tool_list: Option<&str>, host: &Host) -> Result<Analyzed, HostError> {
    let started = Instant::now();
    let mut trace = TraceReader::open(file)?;
    let meta = trace.meta().clone();
    let tools = tools(tool_list.unwrap_or(&meta.tools.join(",")))?;
    let folder = TempDir::with_prefix("guardrail-").map_err(HostError::io("create", "a temporary folder"))?;
    let input = AnalysisInput { tools: tools.clone(), ..trace_head::input(&meta, folder.path())? };
    host.progress.step(&format!("reading {}", file.display()));
    let analyzed = Engine::open(&input)?.run(&mut trace, &mut |_| {}, &mut |_| {})?;
    host.progress.finish();

    let mut run = match trace.ending() {
        Some(Ending::Complete { summary, .. }) => trace_head::described(summary.more.get(RUN_KEY)),
        _ => trace_head::described(meta.more.get(RUN_KEY)),
    };
    run.wall_seconds = seconds(started.elapsed());
    let report = Report {
        schema: SCHEMA.to_owned(),
        driver: meta.driver.clone(),
        kernel: meta.kernel_release.clone(),
        tools,
        mode: "permissive".to_owned(),
        run: analyzed.complete(run),
        findings: analyzed.findings,
        ..Report::default()
    };
    let cut = match trace.ending() {
        Some(ending @ Ending::Truncated { .. }) => Some(ending.to_string()),
        _ => None,
    };
    Ok(Analyzed { report, cut })
}
