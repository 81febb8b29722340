//! `guardrail analyze`.

use crate::args::AnalyzeArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::known::Known;
use guardrail_host::Host;

/// Analyzes a trace and prints the report.
pub fn run(args: &AnalyzeArgs) -> Result<Status, CliError> {
    output::check_format(args.format)?;
    let known = Known::open(&args.known.plan(None))?;
    let mut analyzed = guardrail_check::analyze(&args.file, args.tool.as_deref(), &Host::open()?)?;
    known.fits(&analyzed.report.driver)?;
    known.mark(&mut analyzed.report);
    output::report(&analyzed.report, args.format)?;
    if let Some(cut) = &analyzed.cut {
        print_line("guardrail", &format!("{}: {cut}", args.file.display()));
    }
    let status = if analyzed.report.findings.is_empty() { Status::Clean } else { Status::Findings };
    known.keep(&analyzed.report, &Ok(status))?;
    known.judge(&analyzed.report, status)
}
