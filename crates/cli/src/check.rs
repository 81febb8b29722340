//! `guardrail check`.

use crate::args::CheckArgs;
use crate::errors::{CliError, Status, print_line, sentence};
use crate::output;
use guardrail_check::RunPlan;
use guardrail_check::known::Known;
use guardrail_host::Host;

/// Runs a driver and prints the report.
pub fn run(args: &CheckArgs) -> Result<Status, CliError> {
    let plan = args.plan()?;
    plan.refuse()?;
    args.output.refuse()?;
    let known = Known::open(&args.known.plan(args.policy.as_deref()))?;
    let fits = |driver: &str| known.fits(driver);
    let host = Host::open()?;
    if args.dry_run {
        return describe(RunPlan { out: None, ..plan }, &host);
    }
    let mut checked = guardrail_check::check_if(&plan, &host, &fits)?;
    known.mark(&mut checked.report);
    output::keep_last(&checked.report, &host.cache);
    output::all(&checked.report, &args.output, known.fail_on())?;
    if let Some(note) = &checked.note {
        print_line("guardrail", note);
    }
    known.keep(&checked.report, &checked.status)?;
    let status = checked.status.and_then(|status| known.judge(&checked.report, status));
    judge(status, checked.unwritten)
}

/// Prints what a run would do.
fn describe(plan: RunPlan, host: &Host) -> Result<Status, CliError> {
    let text = guardrail_check::run::prepare(&plan, host)?.describe();
    host.progress.finish();
    output::text(&text)?;
    Ok(Status::Clean)
}

/// The exit status, in which a file that is not whole counts where nothing else does.
fn judge(status: Result<Status, CliError>, unwritten: Option<CliError>) -> Result<Status, CliError> {
    match (status, unwritten) {
        (Ok(Status::Clean), Some(error)) => Err(error),
        (status, unwritten) => {
            if let Some(error) = unwritten {
                print_line("guardrail", &sentence(&error));
            }
            status
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_whole_fails_a_clean_run_alone() {
        let unwritten = || Some(CliError::Run("the disk is full".into()));
        let status = |of| judge(of, unwritten()).unwrap_or_else(|error| error.status());
        assert_eq!(status(Ok(Status::Clean)), Status::RunFailed);
        assert_eq!(status(Ok(Status::Findings)), Status::Findings);
        assert_eq!(status(Ok(Status::Contained)), Status::Contained);
        assert_eq!(status(Err(CliError::NotExercised("no device".into()))), Status::NotExercised);
        assert_eq!(status(Err(CliError::Interrupted)), Status::Interrupted);
        assert_eq!(judge(Ok(Status::Clean), None).unwrap(), Status::Clean);
    }
}
