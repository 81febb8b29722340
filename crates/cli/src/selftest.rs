//! `guardrail selftest containment`: faults that harm a disk or the network when they are let through.
//! Contained, they do no harm.

use crate::args::{ContainmentArgs, ListFormat};
use crate::errors::{CliError, Status};
use crate::output;
use guardrail_campaign::{self as campaign, ContainmentPlan};
use guardrail_host::files;

/// Runs the experiment and prints its table.
pub fn containment(args: &ContainmentArgs) -> Result<Status, CliError> {
    let plan = ContainmentPlan {
        faults: args.faults,
        machinery: args.machinery,
        seed: args.seed,
        fault: args.fault.clone(),
        subject: args.subject,
        kernel: args.kernel.clone(),
        gate: args.gate.clone(),
        let_through: args.let_through,
        jobs: args.jobs,
        timeout: args.timeout,
        out: args.out.clone(),
    };
    let summary = campaign::containment::run(&plan)?;
    output::text(&match args.format {
        ListFormat::Text => summary.text(),
        ListFormat::Json => files::json(&summary)?,
    })?;
    Ok(if summary.holds { Status::Clean } else { Status::Findings })
}
