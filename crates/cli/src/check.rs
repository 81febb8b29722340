//! `guardrail check`.

use crate::args::CheckArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_host::Host;

/// Runs a driver and prints the report.
pub fn run(args: &CheckArgs) -> Result<Status, CliError> {
    output::check_format(args.format)?;
    let plan = args.plan()?;
    plan.refuse()?;
    let checked = guardrail_check::check(&plan, &Host::open()?)?;
    output::report(&checked.report, args.format)?;
    if let Some(note) = &checked.note {
        print_line("guardrail", note);
    }
    checked.status
}
