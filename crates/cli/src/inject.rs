//! `guardrail inject`: mutants of a driver's binary, and campaigns that run each in a guest of its own.

use crate::args::{InjectArgs, ListFormat};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_campaign::MutantPlan;
use guardrail_campaign::mutants::{self, Made};
use guardrail_check::confine;
use guardrail_host::files;

/// Makes mutants, and runs them if the arguments ask for it.
pub fn run(args: &InjectArgs) -> Result<Status, CliError> {
    let plan = plan(args);
    let json = args.format == ListFormat::Json;
    if !args.run {
        let made = mutants::make(&plan, &confine)?;
        output::text(&match json {
            false => mutants::of_mutants(&made),
            true => files::json(&made.iter().flat_map(Made::named).collect::<Vec<_>>())?,
        })?;
        return Ok(Status::Clean);
    }
    let ended = mutants::run(&plan)?;
    output::text(&if json { files::json(&ended.rows)? } else { mutants::text(&ended.rows) })?;
    match ended.failed {
        0 => Ok(Status::Clean),
        failed => {
            let why = format!("{failed} of {} runs failed; the same command does them again", ended.runs);
            Err(CliError::Run(why))
        }
    }
}

fn plan(args: &InjectArgs) -> MutantPlan {
    MutantPlan {
        driver: args.driver.clone(),
        kind: args.kind.clone(),
        seed: args.seed,
        count: args.count,
        bugs: args.bugs,
        kernel: args.kernel.clone(),
        out: args.out.clone(),
        guarded: args.guarded,
        with: args.with.clone(),
        escaped: args.escaped,
        mutants: args.mutants.clone(),
        device: args.device.clone(),
        workload: args.workload.clone(),
        variables: args.variables.clone(),
        smp: args.smp,
        timeout: args.timeout,
        jobs: args.jobs,
    }
}
