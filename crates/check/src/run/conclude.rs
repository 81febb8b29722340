//! The end of a run: the analysis finishes, and the report is built, kept and judged.

use crate::analysis::wire::{Analyzed, GuestEnd};
use crate::exercised::{self, NOT_EXERCISED};
use crate::gate;
use crate::on_finding::OnFinding;
use crate::plan::{Mode, Observe, RunPlan};
use crate::run::synthetic;
use crate::run::watch::failure;
use crate::run::{Ended, Ready, interruption};
use crate::{stored, trace_head};
use guardrail_host::drivers::{names, no_device, ran, seconds};
use guardrail_host::folders::RunFolder;
use guardrail_host::{Host, HostError, Status};
use guardrail_report::{Report, Run, SCHEMA};
use guardrail_trace::log::Log;
use guardrail_vm::prepare::Prepared;
use guardrail_vm::progress::Progress;
use guardrail_vm::run::{Finished, Outcome};
use guardrail_vm::without_time;
use std::fs;
use std::path::Path;
use std::time::Duration;

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
    /// Why the log was not read to its end; `None` where it was.
    cut: Option<String>,
    /// Why the trace file has less than the run; `None` where it is whole, or none was asked for.
    unrecorded: Option<String>,
    interrupted: bool,
}

/// The result of a run.
pub struct Checked {
    /// The report with all findings.
    pub report: Report,
    /// How the guest ended, where it did not end normally but the findings matter more.
    pub note: Option<String>,
    /// The exit status, or why the report is incomplete.
    pub status: Result<Status, HostError>,
    /// Why a file that the plan asks for, the trace or the kept report, is not whole. This report has all that was
    /// found nevertheless.
    pub unwritten: Option<HostError>,
}

impl<'a> Ended<'a> {
    /// Waits for the analysis, and builds the report.
    pub fn conclude(self) -> Result<Concluded<'a>, HostError> {
        let Ended { ready, log, finished, ended, analysis, outside, snapshots, on_finding } = self;
        let Ready { plan, host, prepared, folder, began, .. } = ready;
        let mut run = Run {
            gate: gate::report(plan.gate, &log, outside.as_ref(), finished.cut_took),
            min_coverage: plan.min_coverage,
            kernel_log: kept_log(&folder, &finished),
            ..describe(plan, &prepared, &finished, &log)
        };
        let cut = finished.console_cut.iter();
        run.notes.extend(cut.map(|why| format!("the kernel's log is cut: {why}; the rest was not checked")));
        run.notes.extend(interruption::of_guest(&finished));
        host.progress.step(match host.signals.interrupted() {
            false => "waiting for the analysis",
            true => "interrupted; the analysis reads what is in the log (a second signal ends it)",
        });
        let mut analyzed = match analysis.map(|analysis| analysis.finish(end(&run, &finished), &host.signals))
        {
            None => Analyzed::default(),
            Some(Err(HostError::Run(why))) => return Err(HostError::Run(failure(&log, why))),
            Some(other) => other?,
        };
        synthetic::judge(&prepared, &mut analyzed.findings);
        let interrupted = host.signals.interrupted();
        run.lag_seconds = seconds(ended.elapsed());
        if let Some(snapshots) = &snapshots {
            snapshots.thin(&host.progress);
        }
        run.wall_seconds = seconds(began.elapsed());
        host.progress.finish();
        let mut run = analyzed.complete(run);
        if interrupted {
            interruption::complete(&mut run, analyzed.cut.as_deref());
        }
        exercised::judge(&mut run);
        let report = Report {
            schema: SCHEMA.to_owned(),
            driver: names(&prepared),
            kernel: prepared.kernel.release.clone(),
            tools: plan.tools.clone(),
            mode: plan.mode.word().to_owned(),
            run,
            findings: analyzed.findings,
            ..Report::default()
        };
        let Analyzed { cut, unrecorded, .. } = analyzed;
        Ok(Concluded {
            report,
            plan,
            host,
            prepared,
            folder,
            on_finding,
            finished,
            cut,
            unrecorded,
            interrupted,
        })
    }
}

impl Concluded<'_> {
    /// True where the user has interrupted the run.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The user has interrupted what followed the run. `note` says what its report lacks.
    pub fn interrupt(&mut self, note: &str) {
        self.interrupted = true;
        self.report.run.notes.push(note.to_owned());
    }

    /// The kernel's own words about how the run ended: the first line of its report of trouble, or the last line of
    /// its log that names a driver or a watchdog.
    pub fn kernels_words(&self) -> Option<String> {
        if let Some(line) = self.finished.trouble.lines().next() {
            return Some(line.to_owned());
        }
        let log = kernel_log(&self.finished.console, None);
        let drivers: Vec<&str> = self.report.driver.split(|c: char| ", ".contains(c)).collect();
        last_words(&log, &drivers)
    }

    /// Writes the report to a run folder that is kept, waits for the on-finding commands, and judges the run.
    pub fn keep(mut self) -> Checked {
        let kept = match &self.folder {
            RunFolder::Kept(path) => stored::keep_report(path, &self.report),
            RunFolder::Own(_) => Ok(()),
        };
        let signals = &self.host.signals;
        self.on_finding.finish(&self.report.findings, &|| signals.insisted());
        let (note, status) = self.judge();
        let unwritten = kept.err().or(self.unrecorded.map(HostError::Run));
        Checked { report: self.report, note, status, unwritten }
    }

    /// The exit status, and a note on how the guest ended where one is needed.
    fn judge(&self) -> (Option<String>, Result<Status, HostError>) {
        if self.interrupted {
            return (None, Err(HostError::Interrupted));
        }
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
                None if self.plan.observe == Observe::Check && unseen(&self.finished, run) => fail(format!(
                    "the guest loaded {}, but the tracer saw nothing of it: nothing was checked, and kernel {} may be one that Guardrail does not follow",
                    self.report.driver, self.report.kernel
                )),
                None if run.outcome == NOT_EXERCISED => {
                    not_exercised(run.detail.clone().unwrap_or_default(), findings.is_empty())
                }
                None if self.contains_nothing() => fail(format!(
                    "--mode {} held no access of {} to a device, so it would have contained nothing; no PCI device \
                     is above the devices that it serves",
                    self.plan.mode.word(),
                    self.report.driver
                )),
                None if findings.is_empty() => (None, Ok(Status::Clean)),
                None => (None, Ok(Status::Findings)),
            },
            // A panic is a result, provided that the driver had begun to run.
            Outcome::GuestPanic { .. } if !findings.is_empty() => {
                (Some(outcome.to_string()), Ok(Status::Findings))
            }
            Outcome::NoDeviceBound => not_exercised(no_device(&self.prepared), findings.is_empty()),
            Outcome::QemuKilled { .. } => (None, Err(HostError::Killed(outcome.to_string()))),
            other => fail(other.to_string()),
        }
    }

    /// Whether the user asked for containment and no access was held, though the driver serves devices.
    fn contains_nothing(&self) -> bool {
        let held = self.report.run.gate.as_ref().map_or(0, |gate| gate.held);
        self.plan.mode != Mode::Permissive && held == 0 && self.prepared.wants_device()
    }
}

/// Whether the guest says that it loaded a driver, and the log of those who watched has no module.
fn unseen(finished: &Finished, run: &Run) -> bool {
    let loaded = |(_, progress): &(Duration, Progress)| matches!(progress, Progress::Loaded(_));
    run.coverage.is_empty() && finished.progress.iter().any(loaded)
}

/// The result of a run that saw too little: findings are findings nevertheless.
fn not_exercised(why: String, silent: bool) -> (Option<String>, Result<Status, HostError>) {
    match silent {
        true => (None, Err(HostError::NotExercised(why))),
        false => (Some(why), Ok(Status::Findings)),
    }
}

fn last_words(log: &str, drivers: &[&str]) -> Option<String> {
    let lines = log.lines().rev().map(|line| without_time(line).trim());
    let names = |line: &&str| {
        !line.starts_with("guardrail: ")
            && (line.contains("WATCHDOG")
                || drivers.iter().any(|name| !name.is_empty() && line.contains(name)))
    };
    lines.into_iter().find(names).map(str::to_owned)
}

/// The kernel's log up to the moment when the device was cut off: what the kernel says of a device that is gone is
/// not the driver's doing.
fn kernel_log(console: &Path, cut_at: Option<u64>) -> String {
    let mut log = fs::read(console).unwrap_or_default();
    log.truncate(cut_at.map_or(usize::MAX, |at| usize::try_from(at).unwrap_or(usize::MAX)));
    String::from_utf8_lossy(&log).into_owned()
}

/// The end of the guest, for the analysis. A log that cannot be read shows nothing, which the analysis reports.
fn end(run: &Run, finished: &Finished) -> GuestEnd {
    let read = || kernel_log(&finished.console, finished.cut_at);
    GuestEnd { run: run.clone(), kernel_log: finished.driver_began().then(read) }
}

/// The file with the kernel's log; `None` where the run folder is removed with the run.
fn kept_log(folder: &RunFolder, finished: &Finished) -> Option<String> {
    matches!(folder, RunFolder::Kept(_)).then(|| finished.console.display().to_string())
}

fn describe(plan: &RunPlan, prepared: &Prepared, finished: &Finished, log: &Log) -> Run {
    let Run { device, workload, command, modules, .. } = trace_head::subject_of_run(plan, prepared);
    Run { device, workload, command, modules, lost_events: log.stats().lost(), ..ran(finished) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_about_the_driver() {
        let log = "[    1.0] guardrail: loading e100\n[    2.0] e100 0000:00:02.0 eth0: NIC Link is Up\n\
                   [    9.0] reboot: Power down\n";
        assert_eq!(last_words(log, &["e100"]).as_deref(), Some("e100 0000:00:02.0 eth0: NIC Link is Up"));
        assert_eq!(last_words(log, &["tulip"]), None);
    }

    #[test]
    fn what_the_kernel_says_after_a_cut_off_is_not_charged() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "loading drv\nWARNING: no device\n").unwrap();
        assert_eq!(kernel_log(file.path(), Some(12)), "loading drv\n");
        assert_eq!(kernel_log(file.path(), None).lines().count(), 2);
        assert_eq!(kernel_log(file.path(), Some(u64::MAX)).lines().count(), 2);
    }
}
