//! One run of the experiment: a `guardrail check` of its own.

use super::faults::Fault;
use super::machinery::{Upset, Watch};
use super::outcome::{Mode, Outcome};
use super::zoo_driver::ZooDriver;
use crate::ContainmentPlan;
use guardrail_host::HostError;
use guardrail_host::process::Process;
use guardrail_report::json;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The time for fetches and analysis, beyond the guest's own limit.
const BEYOND: Duration = Duration::from_secs(600);
/// How often a run is tried in which the fault does not happen.
const TRIES: u32 = 3;
/// The policy of runs that contain. No chart knows these drivers, so their races are judged `undecided` and would pass.
const POLICY: &str = "[kinds]\ndata-race = \"contain\"\n";
/// How long a run may take to end in order after a signal.
const GRACE: Duration = Duration::from_secs(20);

/// One run of the experiment.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The driver of the zoo.
    pub subject: ZooDriver,
    /// The fault to plant; `None` for a run without one.
    pub fault: Option<Fault>,
    /// Decides at which request the fault happens, and how.
    pub seed: u32,
    /// The treatment of the finding.
    pub mode: Mode,
    /// The failure of the machinery to cause, if any.
    pub upset: Option<Upset>,
}

impl Trial {
    /// Runs it, and again where the driver found no request for its fault: that depends on timing.
    pub fn run_planted(
        &self,
        wanted: &ContainmentPlan,
        zoo: &Path,
        folder: &Path,
        number: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, HostError> {
        let mut outcome = self.run(wanted, zoo, folder, number, stop)?;
        for _ in 1..TRIES {
            if outcome.planted || self.upset.is_some() {
                break;
            }
            outcome = self.run(wanted, zoo, folder, number, stop)?;
        }
        Ok(outcome)
    }

    /// Runs it in a folder of its own below `folder`.
    fn run(
        &self,
        wanted: &ContainmentPlan,
        zoo: &Path,
        folder: &Path,
        number: usize,
        stop: &dyn Fn() -> bool,
    ) -> Result<Outcome, HostError> {
        let name = self.fault.as_ref().map_or("none", |fault| &fault.fault);
        let how = self.upset.map_or(self.mode.name(), Upset::name);
        let folder = folder.join(format!("{number:04}-{}-{name}-{how}", self.subject.driver()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(HostError::io("create", folder.display()))?;
        let mut variables = self.subject.begin(&folder)?;
        if let Some(fault) = &self.fault {
            variables.push(("FAULT".to_owned(), fault.fault.clone()));
            variables.push(("SEED".to_owned(), self.seed.to_string()));
        }
        let moment = Upset::moment(self.seed, self.subject);
        if self.upset == Some(Upset::GuestReset) {
            variables.push(("RESET_AFTER".to_owned(), moment.as_micros().to_string()));
        }
        let command = self.command(wanted, zoo, &folder, &variables)?;
        let started = Instant::now();
        let limit = Duration::from_secs(wanted.timeout) + BEYOND;
        let mut child = Process::start(command, &folder)?;
        let mut watch = Watch::new(child.id(), self.upset, moment);
        let status = wait(&mut child, limit, stop, &mut || watch.look(|| stderr_of(&folder)))?;
        let outcome = self.judge(number, status, &watch, &folder, started)?;
        // Files of a run without surprises need not be kept.
        if wanted.out.is_none() {
            let _ = fs::remove_dir_all(&folder);
        }
        Ok(outcome)
    }

    /// Judges the run that ended with `status`, by the files in its folder and what it left behind.
    fn judge(
        &self,
        number: usize,
        status: ExitStatus,
        watch: &Watch,
        folder: &Path,
        started: Instant,
    ) -> Result<Outcome, HostError> {
        let (late, left) = (watch.is_late(), watch.left(folder));
        let report = fs::read(folder.join("stdout")).ok().and_then(|bytes| json::read(&bytes).ok());
        let stderr = stderr_of(folder);
        let fault = self.fault.as_ref();
        let findings = report.iter().flat_map(|report| &report.findings);
        Ok(Outcome {
            number,
            subject: self.subject,
            fault: fault.map(|fault| fault.fault.clone()),
            seed: self.seed,
            mode: self.mode,
            status: status.code().or(status.signal().map(|signal| 128 + signal)),
            ended: report.as_ref().map(|report| report.run.outcome.clone()),
            named: fault.zip(report.as_ref()).is_some_and(|(fault, report)| fault.is_named_by(report)),
            findings: findings
                .map(|finding| {
                    let line = finding.location.as_ref().map_or(0, |at| at.line);
                    format!("{} {} {}:{line}", finding.checker, finding.kind, finding.function)
                })
                .collect(),
            harm: self.subject.harm(folder)?,
            planted: !stderr.contains(" planted skipped"),
            upset: self.upset,
            when: watch.when(),
            found: stderr.contains("(contained)"),
            error: stderr.lines().rev().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned),
            late,
            left,
            wall_seconds: (started.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
        })
    }

    fn command(
        &self,
        wanted: &ContainmentPlan,
        zoo: &Path,
        folder: &Path,
        variables: &[(String, String)],
    ) -> Result<Command, HostError> {
        let driver = self.subject.driver();
        let mut command = Process::check()?;
        command.arg(format!("zoo/{driver}")).args(["--kernel", &wanted.kernel]);
        command.args(["--device", self.subject.device(), "--tool", "all", "--format", "json"]);
        command.arg("--workload").arg(zoo.join("gate").join(driver).join("containment.sh"));
        command.args(["--mode", self.mode.name(), "--timeout", &wanted.timeout.to_string()]);
        command.arg("--out").arg(folder).current_dir(folder).env("GUARDRAIL_ZOO", zoo);
        if self.mode == Mode::Stringent {
            let file = folder.join("policy.toml");
            fs::write(&file, POLICY).map_err(HostError::io("write", file.display()))?;
            command.arg("--policy").arg(file);
        }
        let upset = self.upset.map_or(&[][..], Upset::arguments);
        let is_free = self.mode == Mode::Stringent && !upset.contains(&"--gate");
        if let Some(gate) = wanted.gate.as_ref().filter(|_| is_free) {
            command.args(["--gate", gate]);
        }
        command.args(upset);
        command
            .args(variables.iter().flat_map(|(name, value)| ["--set".to_owned(), format!("{name}={value}")]));
        Ok(command)
    }
}

/// The progress and errors that a run has written so far.
fn stderr_of(folder: &Path) -> String {
    String::from_utf8_lossy(&fs::read(folder.join("stderr")).unwrap_or_default()).into_owned()
}

/// Waits for the end of a run. Ends it where it takes too long or the user interrupts.
fn wait(
    process: &mut Process,
    limit: Duration,
    stop: &dyn Fn() -> bool,
    look: &mut dyn FnMut() -> Duration,
) -> Result<ExitStatus, HostError> {
    let started = Instant::now();
    let mut asked: Option<Instant> = None;
    loop {
        let status = process.try_wait().map_err(HostError::io("wait for", "the guardrail program"))?;
        let pause = match status {
            Some(_) if stop() => return Err(HostError::Interrupted),
            Some(status) => return Ok(status),
            None => look(),
        };
        if asked.is_none() && (stop() || started.elapsed() > limit) {
            asked = Some(Instant::now());
            process.interrupt();
        }
        if asked.is_some_and(|asked| asked.elapsed() > GRACE) {
            process.kill();
        }
        std::thread::sleep(pause);
    }
}
