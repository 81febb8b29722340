//! Measures how reliably the order of a race can be forced. Each run of the guest holds its two accesses alone, with
//! the scheduling of the run in which they met, and ends when they meet in the same order.

use super::consequence::Met;
use super::held_run;
use crate::plan::{Effort, RunPlan};
use guardrail_finding::Repeated;
use guardrail_host::error::sentence;
use guardrail_host::{Host, HostError};
use guardrail_trace::config::Holds;
use guardrail_trace::meet::{Meet, MeetOutcome};
use guardrail_vm::prepare::Prepared;

/// Forces the order of a race again, in as many runs as the effort says.
pub fn repeat(
    (plan, prepared, host): (&RunPlan, &Prepared, &Host),
    effort: Effort,
    met: &Met,
) -> Result<Repeated, HostError> {
    let mut repeated = Repeated { runs: u64::from(effort.repeat), ..Repeated::default() };
    let mut times = Vec::new();
    for run in 1..=effort.repeat {
        let so_far =
            format!("forcing the order again, run {run} of {}, {} forced", effort.repeat, times.len());
        host.progress.step(&so_far);
        let holds = Holds { points: met.points.clone(), tries: effort.tries, ..Holds::default() };
        let holds = met.scheduling.times(1, holds);
        let held = met.held;
        let wanted = move |meet: &Meet| meet.outcome == MeetOutcome::Met && meet.held.role & 1 == held;
        let failed = match held_run((plan, prepared, host), holds, met.scheduling, wanted) {
            Err(HostError::Interrupted) => return Err(HostError::Interrupted),
            Err(error) => Some(sentence(&error)),
            Ok((meets, ended)) => {
                if meets.iter().any(wanted) {
                    times.push(ended.guest_seconds);
                    continue;
                }
                ended.failed
            }
        };
        repeated.failed += u64::from(failed.is_some());
        repeated.failure = repeated.failure.or(failed);
    }
    repeated.forced = times.len() as u64;
    times.sort_by(f64::total_cmp);
    repeated.seconds = times.get(times.len() / 2).copied().unwrap_or_default();
    Ok(repeated)
}
