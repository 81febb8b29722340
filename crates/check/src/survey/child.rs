//! One run of a survey: a `guardrail check` in a process of its own, so that no failure of it can end the
//! survey.

use crate::analysis::policy::Decision;
use crate::plan::Mode;
use crate::survey::SurveyPlan;
use crate::survey::matrix::Planned;
use guardrail_finding::Finding;
use guardrail_host::process::{self, BEYOND, GRACE, Process};
use guardrail_host::{HostError, Status};
use guardrail_report::survey::{Skipped, State};
use guardrail_report::{Report, json};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most bytes that are read of a run's output.
const MAX_TEXT: usize = 64 << 20;

/// A running `guardrail check`.
pub struct Child {
    process: Process,
    started: Instant,
    limit: Duration,
    folder: PathBuf,
    overdue: bool,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Ended {
    /// The result in one word.
    pub state: State,
    /// Why the run failed; `None` where it did not.
    pub why: Option<String>,
    /// True where a signal of the user ended it, so that it has no result.
    pub interrupted: bool,
    /// The duration of the run.
    pub wall: Duration,
    /// The steps that the driver did not support.
    pub skipped: Vec<Skipped>,
    /// The report; `None` where the run left none.
    pub report: Option<Report>,
}

impl Ended {
    /// The result for a run that could not be started.
    pub fn failed(why: String) -> Ended {
        Ended { state: State::Failed, why: Some(why), ..Ended::default() }
    }
}

impl Child {
    /// Starts a run that leaves its files in `folder`.
    pub fn start(plan: &SurveyPlan, planned: &Planned, folder: &Path) -> Result<Child, HostError> {
        let _ = fs::remove_dir_all(folder);
        fs::create_dir_all(folder).map_err(HostError::io("create", folder.display()))?;
        let place = &planned.place;
        let mut command = Process::check()?;
        command.arg(&place.driver).arg("--kernel").arg(&place.kernel);
        match plan.mode {
            // Where nothing is contained, a gate would only take time.
            Mode::Permissive => command.args(["--gate", "off"]),
            mode => command.args(["--mode", mode.word()]),
        };
        command.arg("--tool").arg(plan.tools.join(",")).arg("--format").arg("json").arg("--out").arg(folder);
        command
            .arg("--smp")
            .arg(plan.cpus.to_string())
            .arg("--timeout")
            .arg(plan.time_limit.as_secs().to_string());
        for (name, value) in [("--device", &place.device), ("--workload", &plan.workload)] {
            command.args(value.iter().flat_map(|value| [name, value.as_str()]));
        }
        command.args(plan.variables.iter().flat_map(|pair| ["--offer", pair.as_str()]));
        if plan.record {
            command.arg("--record").arg(folder.join("run.trace"));
        }
        let process = Process::start(command, folder)?;
        Ok(Child {
            process,
            started: Instant::now(),
            limit: plan.time_limit + BEYOND,
            folder: folder.to_path_buf(),
            overdue: false,
        })
    }

    /// The result of the run, once it has ended. A run that takes too long is ended.
    pub fn look(&mut self) -> Option<Ended> {
        let status = match self.process.try_wait() {
            Ok(Some(status)) => status,
            Ok(None) => {
                let time = self.started.elapsed();
                if time > self.limit && !self.overdue {
                    self.overdue = true;
                    self.interrupt();
                }
                if time > self.limit + GRACE {
                    self.process.kill();
                }
                return None;
            }
            Err(error) => return Some(Ended::failed(format!("the run cannot be waited for: {error}"))),
        };
        let text = |name: &str| {
            let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT)]).into_owned()
        };
        let stderr = text("stderr");
        let mut ended = judge(status.code(), status.signal(), &text("stdout"), &stderr);
        if self.overdue {
            let limit = self.limit.as_secs();
            ended.state = State::Failed;
            ended.interrupted = false;
            ended.why = Some(format!("the run did not end within {limit} s"));
        }
        ended.wall = self.started.elapsed();
        Some(ended)
    }

    /// Asks the process to end.
    pub fn interrupt(&self) {
        self.process.interrupt();
    }

    /// Waits for the end of the process, and kills it where it takes too long.
    pub fn end(mut self) {
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline && matches!(self.process.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The state that follows from a run's exit status and output.
fn judge(code: Option<i32>, signal: Option<i32>, stdout: &str, stderr: &str) -> Ended {
    let mut report = json::read(stdout.as_bytes()).ok();
    if let Some(report) = &mut report {
        // The survey's table counts them, and has nothing else of them.
        report.findings.retain(|finding| finding.suppressed.is_none());
    }
    let skipped = skipped(stderr);
    let (state, why) = match (code, &report) {
        (Some(code), Some(_)) if code == Status::Clean as i32 => (State::Clean, None),
        (Some(code), Some(_)) if code == Status::Findings as i32 => (State::Findings, None),
        (Some(code), Some(report)) if code == Status::Contained as i32 => (State::CutOff, closed_by(report)),
        (Some(code), Some(_)) if code == Status::NotExercised as i32 => {
            (State::NotExercised, Some(last_words(stderr)))
        }
        (Some(_), _) => (State::Failed, Some(last_words(stderr))),
        (None, _) => {
            (State::Failed, Some(format!("the run was ended by signal {}", signal.unwrap_or_default())))
        }
    };
    let interrupted = code == Some(Status::Interrupted as i32);
    Ended { state, why, interrupted, skipped, report, wall: Duration::ZERO }
}

/// Why the gate was closed: the finding, or what the gate says.
fn closed_by(report: &Report) -> Option<String> {
    let contained = |finding: &&Finding| finding.action.as_deref() == Some(Decision::Contained.word());
    let finding = report.findings.iter().find(contained);
    let named = finding.map(|found| format!("{} in {} ({})", found.kind, found.function, found.id));
    named.or_else(|| report.run.gate.as_ref()?.closed.clone())
}

/// The error that a run ended with.
fn last_words(stderr: &str) -> String {
    process::last_words(stderr).unwrap_or("it ended without a word").to_owned()
}

/// The steps that the progress lines report as skipped.
fn skipped(stderr: &str) -> Vec<Skipped> {
    let line = |line: &str| {
        let (_, rest) = line.strip_prefix("guardrail: ")?.split_once(" s  ")?;
        let (name, why) = rest.split_once(" skipped: ")?;
        (!name.contains(' ')).then(|| Skipped { name: name.to_owned(), why: why.to_owned() })
    };
    stderr.lines().filter_map(line).take(1000).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_report::SCHEMA;

    #[test]
    fn a_run_is_judged_by_its_status_and_its_report() {
        let written = |findings: Vec<Finding>| {
            let mut text = Vec::new();
            let report = Report { schema: SCHEMA.to_owned(), findings, ..Report::default() };
            json::write(&report, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let report = written(Vec::new());
        assert_eq!(judge(Some(0), None, &report, "").state, State::Clean);
        assert_eq!(judge(Some(1), None, &report, "").state, State::Findings);
        let finding = Finding {
            kind: "leak".into(),
            function: "f".into(),
            id: "1".into(),
            action: Some("contained".into()),
            ..Finding::default()
        };
        let cut = judge(Some(4), None, &written(vec![finding]), "");
        assert_eq!((cut.state, cut.why.as_deref()), (State::CutOff, Some("leak in f (1)")));
        let hardly = judge(Some(6), None, &report, "error: e1000 was not exercised\n");
        assert_eq!(
            (hardly.state, hardly.why.as_deref()),
            (State::NotExercised, Some("e1000 was not exercised"))
        );
        // An exit status alone is not sufficient.
        assert_eq!(judge(Some(0), None, "", "").state, State::Failed);
        let failed = judge(Some(3), None, &report, "guardrail: QEMU\nerror: the guest hung\n");
        assert_eq!((failed.state, failed.why.as_deref()), (State::Failed, Some("the guest hung")));
        assert!(failed.report.is_some());
        // Also one that reports what was found so far.
        for report in ["", &report] {
            assert!(judge(Some(130), None, report, "error: interrupted\n").interrupted);
        }
        assert_eq!(judge(None, Some(9), "", "").why.as_deref(), Some("the run was ended by signal 9"));
    }

    #[test]
    fn skipped_steps_are_read_from_the_progress() {
        let text = "guardrail: QEMU\nguardrail:   12.5 s  ethtool-a skipped: not supported\n\
                    guardrail:   13.0 s  ping ok\n";
        assert_eq!(skipped(text), [Skipped { name: "ethtool-a".into(), why: "not supported".into() }]);
    }
}
