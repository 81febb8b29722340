//! The end of a run: the analysis finishes, and the report is built, kept and judged.

use crate::analysis::wire::Analyzed;
use crate::gate;
use crate::on_finding::OnFinding;
use crate::plan::RunPlan;
use crate::run::watch::failure;
use crate::run::{Ended, Ready};
use crate::{stored, trace_head};
use guardrail_host::drivers::{names, no_device, ran, seconds};
use guardrail_host::folders::RunFolder;
use guardrail_host::{Host, HostError, Status};
use guardrail_report::{Report, Run, SCHEMA};
use guardrail_trace::log::Log;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::run::{Finished, Outcome};

/// A run with its report.
pub struct Concluded<'a> {
    /// The report with all findings. The caller may change findings before it is kept.
    pub report: Report,
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The services of this machine.
    pub host: &'a Host,
    /// The prepared kernel, drivers and workload.
    pub prepared: Prepared,
    folder: RunFolder,
    on_finding: OnFinding,
    finished: Finished,
    cut: Option<String>,
}

/// The result of a run.
pub struct Checked {
    /// The report with all findings.
    pub report: Report,
    /// How the guest ended, where it did not end normally but the findings matter more.
    pub note: Option<String>,
    /// The exit status, or why the report is incomplete.
    pub status: Result<Status, HostError>,
}

impl<'a> Ended<'a> {
    /// Waits for the analysis, and builds the report.
    pub fn conclude(self) -> Result<Concluded<'a>, HostError> {
        let Ended { ready, log, finished, ended, analysis, outside, snapshots, on_finding } = self;
        let Ready { plan, host, prepared, folder, began, .. } = ready;
        let mut run = Run {
            gate: gate::report(plan.gate, &log, outside.as_ref()),
            ..describe(&prepared, &finished, &log)
        };
        host.progress.step("waiting for the analysis");
        let analyzed = match analysis.map(|analysis| analysis.finish(&run, &|| host.signals.interrupted())) {
            None => Analyzed::default(),
            Some(Err(HostError::Run(why))) => return Err(HostError::Run(failure(&log, why))),
            Some(other) => other?,
        };
        run.lag_seconds = seconds(ended.elapsed());
        if let Some(snapshots) = &snapshots {
            snapshots.thin(&host.progress);
        }
        run.wall_seconds = seconds(began.elapsed());
        host.progress.finish();
        let report = Report {
            schema: SCHEMA.to_owned(),
            driver: names(&prepared),
            kernel: prepared.kernel.release.clone(),
            tools: plan.tools.clone(),
            mode: plan.mode.word().to_owned(),
            run: analyzed.complete(run),
            findings: analyzed.findings,
            ..Report::default()
        };
        Ok(Concluded { report, plan, host, prepared, folder, on_finding, finished, cut: analyzed.cut })
    }
}

impl Concluded<'_> {
    /// Writes the report to a run folder that is kept, waits for the on-finding commands, and judges the run.
    pub fn keep(mut self) -> Result<Checked, HostError> {
        if let RunFolder::Kept(path) = &self.folder {
            stored::keep_report(path, &self.report)?;
        }
        self.on_finding.finish(&self.report.findings);
        let (note, status) = self.judge();
        Ok(Checked { report: self.report, note, status })
    }

    /// The exit status, and a note on how the guest ended where one is needed.
    fn judge(&self) -> (Option<String>, Result<Status, HostError>) {
        let fail = |why: String| (None, Err(HostError::Run(why)));
        let Report { run, findings, .. } = &self.report;
        if run.lost_events > 0 {
            return fail(format!("{} events were lost; the report is not whole", run.lost_events));
        }
        if run.gate.as_ref().is_some_and(|gate| gate.ungated > 0) {
            return fail("accesses reached the device without being held; the report is in doubt".into());
        }
        let outcome = &self.finished.outcome;
        if findings.iter().any(|finding| finding.action.as_deref() == Some("contained")) {
            return (Some(outcome.to_string()), Ok(Status::Contained));
        }
        match outcome {
            Outcome::Completed => match &self.cut {
                Some(why) => fail(format!("the trace is not whole: {why}")),
                None if findings.is_empty() => (None, Ok(Status::Clean)),
                None => (None, Ok(Status::Findings)),
            },
            // A panic is a result, provided that the driver had begun to run.
            Outcome::GuestPanic { .. } if !findings.is_empty() => {
                (Some(outcome.to_string()), Ok(Status::Findings))
            }
            Outcome::NoDeviceBound => fail(no_device(&self.prepared)),
            other => fail(other.to_string()),
        }
    }
}

fn describe(prepared: &Prepared, finished: &Finished, log: &Log) -> Run {
    let Run { device, workload, .. } = trace_head::subject_of_run(prepared);
    Run { device, workload, lost_events: log.stats().lost(), ..ran(finished) }
}
