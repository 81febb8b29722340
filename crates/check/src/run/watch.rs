//! The guest's run, and the ends of it that leave no result.

use crate::analysis::supervisor::Analysis;
use crate::gate::outside::Outside;
use crate::on_finding::OnFinding;
use crate::run::guest::Guest;
use crate::run::synthetic::Synthetic;
use crate::run::{Ready, Started};
use crate::snapshots::Snapshots;
use guardrail_gate::process::State;
use guardrail_host::HostError;
use guardrail_trace::log::{Closed, FailReason, Log};
use guardrail_vm::run::{Finished, Outcome};
use std::time::Instant;

/// A run whose guest has ended with a result; the analysis may still read.
pub struct Ended<'a> {
    pub(super) ready: Ready<'a>,
    pub(super) log: Log,
    pub(super) finished: Finished,
    pub(super) ended: Instant,
    pub(super) analysis: Option<Analysis>,
    /// The last state of the gate outside the driver VM.
    pub(super) outside: Option<State>,
    pub(super) snapshots: Option<Snapshots>,
    pub(super) on_finding: OnFinding,
}

impl<'a> Started<'a> {
    /// Runs the guest to its end.
    pub fn watch(self) -> Result<Ended<'a>, HostError> {
        let Started {
            ready,
            shared,
            log,
            options,
            mut analysis,
            outside,
            synthetic,
            snapshots,
            mut on_finding,
            mut until,
        } = self;
        let guest = Guest {
            log: &log,
            shared: &shared,
            host: ready.host,
            analysis: analysis.as_mut(),
            outside: outside.as_ref(),
            synthetic: synthetic.as_ref(),
            snapshots: snapshots.as_ref(),
            on_finding: Some(&mut on_finding),
            until: until.as_mut().map(|until| &mut **until as &mut dyn FnMut() -> Option<String>),
        };
        let finished = guest.run(&ready.prepared, &options);
        // This precedes the end of the log, which would close this gate, too.
        let outside = outside.map(Outside::stop);
        let synthetic = synthetic.map(Synthetic::stop);
        log.mark_producer_dead();
        let finished = finished?;
        let ended = Instant::now();
        // Also where the run ends without a result below.
        if let Some(took) = finished.cut_took {
            let how = if finished.cut_by_force { "; QEMU was ended for it" } else { "" };
            let took = took.as_secs_f64() * 1e3;
            ready.host.progress.note(&format!("the device was cut off in {took:.1} ms{how}"));
        }
        refuse(&finished, &log)?;
        if let Some(used) = synthetic.transpose()? {
            ready.host.progress.note(&used);
        }
        let outside = outside.transpose()?;
        Ok(Ended { ready, log, finished, ended, analysis, outside, snapshots, on_finding })
    }
}

/// Ends without a result: a reader that let an access wait too long, or left the log full, is not waited for.
fn refuse(finished: &Finished, log: &Log) -> Result<(), HostError> {
    if let (Outcome::Contained { .. }, Some(Closed::TimeOut)) = (&finished.outcome, log.gate_closed()) {
        return Err(HostError::Run(finished.outcome.to_string()));
    }
    match log.failed() {
        Some(FailReason::ReaderStalled | FailReason::UrgentOverflow) => {
            Err(HostError::Run(failure(log, String::new())))
        }
        _ => Ok(()),
    }
}

/// Why there is no result. A reason in the log explains more than the analysis, which only sees that the log
/// failed.
pub(super) fn failure(log: &Log, why: String) -> String {
    match log.failed() {
        None | Some(FailReason::Stopped | FailReason::ReaderDied | FailReason::ReadersGone) => why,
        Some(reason) => format!("the trace is not whole: {reason}"),
    }
}
