//! `guardrail analyze`.

use crate::args::AnalyzeArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::known::Known;
use guardrail_host::Host;
use std::path::PathBuf;

/// Analyzes a trace and prints the report.
pub fn run(args: &AnalyzeArgs) -> Result<Status, CliError> {
    args.output.refuse()?;
    let known = Known::open(&args.known.plan(None))?;
    let host = Host::open()?;
    let outputs: Vec<PathBuf> = args.output.files().chain(&args.known.write_baseline).cloned().collect();
    let (tools, symbols, reach) = (args.tool.as_deref(), args.symbols.plan(), args.open.reach(&host.cache)?);
    let mut analyzed = guardrail_check::analyze(&args.file, tools, &symbols, &reach, &host, &outputs)?;
    known.fits(&analyzed.report.driver)?;
    known.mark(&mut analyzed.report);
    output::keep_last(&analyzed.report, &host.cache);
    output::all(&analyzed.report, &args.output, known.fail_on())?;
    if let Some(cut) = &analyzed.cut {
        print_line("guardrail", &format!("{}: {cut}", args.file.display()));
    }
    let silent = analyzed.report.findings.is_empty();
    let run = &analyzed.report.run;
    let status = match run.outcome.as_str() {
        _ if !silent => Ok(Status::Findings),
        "truncated" => {
            Err(CliError::NotExercised("the trace was cut, so the end of the run is not known".into()))
        }
        "interrupted" => Err(CliError::NotExercised("the run was interrupted before its end".into())),
        "not-exercised" | "no-device-bound" => {
            let why = run.detail.clone().unwrap_or_else(|| run.outcome.clone());
            Err(CliError::NotExercised(why))
        }
        _ => Ok(Status::Clean),
    };
    known.keep(&analyzed.report, &status)?;
    known.judge(&analyzed.report, status?)
}
