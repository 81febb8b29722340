//! Runs the checkers over a recorded trace.

use crate::analysis::engine::Engine;
use crate::exercised;
use crate::fetcher::Fetcher;
use crate::input::AnalysisInput;
use crate::reach::Reach;
use crate::tools::tools;
use crate::trace_head::{self, KERNEL_KEY, RUN_KEY};
use guardrail_host::drivers::seconds;
use guardrail_host::{Host, HostError, Symbols, files};
use guardrail_report::{Report, SCHEMA};
use guardrail_trace::file::Ending;
use guardrail_vm::OwnedFolder;
use guardrail_vm::parser::Parser;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The result of the checkers over a trace.
pub struct Analyzed {
    /// The report with all findings.
    pub report: Report,
    /// Where the trace was cut, and how; absent for a whole one.
    pub cut: Option<String>,
}

/// Analyzes a trace with the checkers of its run, or with those of a list. For good, the process then opens only what a
/// trace may name, writes only the cache and the `outputs`, and starts nothing.
///
/// Where symbols are fetched, another process does that.
pub fn analyze(
    file: &Path,
    tool_list: Option<&str>,
    symbols: &Symbols,
    reach: &Reach,
    host: &Host,
    outputs: &[PathBuf],
) -> Result<Analyzed, HostError> {
    let started = Instant::now();
    let folder = OwnedFolder::large("guardrail-").map_err(HostError::io("create", "a temporary folder"))?;
    let own = [host.cache.root(), folder.around()];
    let written = outputs.iter().map(|output| files::place_of_new(output)).chain(own);
    let written: Vec<PathBuf> = written.map(Path::to_path_buf).collect();
    let fetcher = symbols.fetch.then(Fetcher::start).transpose()?;
    let reach = &reach.and(&symbols.files);
    let mut trace = reach.open(file, written.into_iter())?;
    let meta = trace.meta().clone();
    let tools = tools(tool_list.unwrap_or(&meta.tools.join(",")))?;
    let subject = trace_head::subject(&meta, reach)?;
    let given = Symbols { fetch: false, files: symbols.files.clone() };
    given.provide(&Parser::here(), &subject.kernel, &subject.drivers.iter().collect::<Vec<_>>(), host)?;
    fetcher.map_or(Ok(()), |fetcher| fetcher.fetch(&subject.kernel, &subject.drivers, &host.progress))?;
    let input = AnalysisInput { tools: tools.clone(), ..trace_head::input(&meta, &subject, folder.path())? };
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
