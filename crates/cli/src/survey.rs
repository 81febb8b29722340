//! `guardrail survey`.

use crate::args::{SurveyArgs, TableFormat};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_check::survey::{judge, survey};
use guardrail_host::Host;

/// Runs a survey and prints its table.
pub fn run(args: &SurveyArgs) -> Result<Status, CliError> {
    let plan = args.plan()?;
    let summary = survey(&plan, &Host::open()?)?;
    let mut out = Vec::new();
    match args.format {
        TableFormat::Text => summary.write_text(&mut out),
        TableFormat::Json => summary.write_json(&mut out),
        TableFormat::Html => summary.write_html(&mut out),
    }
    .map_err(CliError::io("write", "the table"))?;
    output::text(&String::from_utf8_lossy(&out))?;
    judge(&summary)
}
