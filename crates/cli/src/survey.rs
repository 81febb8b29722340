//! `guardrail survey`.

use crate::args::SurveyArgs;
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_check::survey::{judge, survey};
use guardrail_host::Host;

/// Runs a survey and prints its table.
pub fn run(args: &SurveyArgs) -> Result<Status, CliError> {
    let plan = args.plan()?;
    let summary = survey(&plan, &Host::open()?)?;
    output::survey(&summary, args.format)?;
    judge(&summary)
}
