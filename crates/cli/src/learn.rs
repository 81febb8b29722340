//! `guardrail learn`: what the kernel's functions do with a driver's memory, derived from binaries.

use crate::args::LearnArgs;
use crate::errors::{CliError, Status};
use crate::output;
use crate::progress::Progress;
use guardrail_check::confine;
use guardrail_guard::learn::{LearnPlan, learn};

/// Derives rows, and prints them or how complete they are.
pub fn run(args: &LearnArgs) -> Result<Status, CliError> {
    let plan = LearnPlan {
        kernel: args.kernel.clone(),
        modules: args.modules.clone(),
        out: args.out.clone(),
        complete: args.complete,
    };
    let learnt = learn(&plan, &Progress::shown(), &confine)?;
    if let Some(text) = learnt.completeness() {
        output::text(&text)?;
    } else if args.out.is_none() {
        output::text(&learnt.text())?;
    }
    Ok(Status::Clean)
}
