//! `guardrail check`.

use crate::args::CheckArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output;
use guardrail_check::known::Known;
use guardrail_host::Host;

/// Runs a driver and prints the report.
pub fn run(args: &CheckArgs) -> Result<Status, CliError> {
    output::check_format(args.format)?;
    let plan = args.plan()?;
    plan.refuse()?;
    let known = Known::open(&args.known.plan(args.policy.as_deref()))?;
    let fits = |driver: &str| known.fits(driver);
    let mut checked = guardrail_check::check_if(&plan, &Host::open()?, &fits)?;
    known.mark(&mut checked.report);
    output::report(&checked.report, args.format)?;
    if let Some(note) = &checked.note {
        print_line("guardrail", note);
    }
    known.keep(&checked.report, &checked.status)?;
    known.judge(&checked.report, checked.status?)
}
