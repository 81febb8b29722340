//! `guardrail check`.

use crate::args::CheckArgs;
use crate::errors::{CliError, Status, print_line};
use crate::output::{self, Extent};
use guardrail_check::known::Known;
use guardrail_host::Host;

/// Runs a driver and prints the report.
pub fn run(args: &CheckArgs) -> Result<Status, CliError> {
    let plan = args.plan()?;
    plan.refuse()?;
    let known = Known::open(&args.known.plan(args.policy.as_deref()))?;
    let fits = |driver: &str| known.fits(driver);
    let host = Host::open()?;
    let mut checked = guardrail_check::check_if(&plan, &host, &fits)?;
    known.mark(&mut checked.report);
    output::keep_last(&checked.report, &host.cache);
    output::report(&checked.report, args.format, Extent::of(args.full))?;
    if let Some(note) = &checked.note {
        print_line("guardrail", note);
    }
    known.keep(&checked.report, &checked.status)?;
    known.judge(&checked.report, checked.status?)
}
