//! A driver's workload twice, with the stock driver and with the guarded one, and one verdict on both.

use crate::TryPlan;
use crate::standing::{Extras, RUNTIME, Standing};
use guardrail_finding::Finding;
use guardrail_guard::{Policy, violations};
use guardrail_host::{HostError, Progress, Signals, Status, drivers, files, zoo};
use guardrail_profile::ProfilePlan;
use guardrail_vm::modules::ModuleFile;
use guardrail_vm::packages::Packages;
use guardrail_vm::prepare::{Prepared, Request};
use guardrail_vm::run::Outcome;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// The name and version of the verdict's JSON.
const SCHEMA: &str = "guardrail-try/1";
/// The client that counts the kernel's instructions, and its column with all of them and with those of the
/// idle task.
const COUNT: &str = "count";
const ALL: &str = "all";
const IDLE: &str = "idle task";
/// The most places that the text lists.
const PLACES: usize = 20;

/// The verdict on a guarded driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It did its work without a violation.
    Works,
    /// It did its work, with violations.
    Violations,
    /// It did not do the work that the stock driver did.
    Broken,
}

/// One run of the workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// How it ended, as a fixed word.
    pub outcome: String,
    /// How it ended, in words.
    pub detail: String,
    /// Instructions of the kernel from the begin of the workload, without those of the idle task.
    pub instructions: Option<u64>,
    /// The time from the start of QEMU to its end, in seconds.
    pub seconds: f64,
}

/// Both runs, and the verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    schema: &'static str,
    driver: String,
    kernel: String,
    workload: String,
    policy: &'static str,
    /// The verdict that follows from the rest.
    pub verdict: Verdict,
    stock: Run,
    guarded: Run,
    violations: Vec<Finding>,
    /// What was done to the drivers, as text; empty unless their files are kept.
    #[serde(skip)]
    summary: String,
}

/// Runs the workload of the last of the plan's drivers, stock and guarded. The guarded ones are in the plan's folder.
pub fn run(plan: &TryPlan) -> Result<Tried, HostError> {
    let Some(driver) = plan.guard.drivers.last() else {
        return Err(HostError::Usage("no driver is named".into()));
    };
    let Some(kernel) = &plan.guard.kernel else {
        return Err(HostError::Usage("--try boots a guest; name its kernel with --kernel".into()));
    };
    let signals = Signals::install()?;
    let progress = Progress::shown();
    let packages = Packages::new(&guardrail_host::cache()?);
    let (device, workload) = (plan.device.as_deref(), plan.workload.as_deref());
    let request = Request { driver, kernel, device, workload, ..Request::default() };
    let mut stock = zoo::prepare(&packages, request, &progress)?;
    drivers::set(&mut stock, &drivers::variables(&plan.variables)?, &drivers::parameters(&plan.parameters)?)?;
    let (guarded, extras) = guarded(&stock, &plan.guard.out, plan.policy)?;
    let loglevel = extras.loglevel;
    let bare = Extras { variables: Vec::new(), files: Vec::new(), loglevel };
    let folder = tempfile::tempdir().map_err(HostError::io("create", "a folder for the runs"))?;
    progress.step("the stock driver's run");
    let (first, _) = guest(plan, &stock, bare, &folder.path().join("stock"), &signals, &progress)?;
    if first.outcome != Outcome::Completed.word() {
        let why = format!("the stock driver's own run failed, so nothing can be said: {}", first.detail);
        return Err(HostError::Run(why));
    }
    progress.step("the guarded driver's run");
    let (second, console) =
        guest(plan, &guarded, extras, &folder.path().join("guarded"), &signals, &progress)?;
    let violations = violations::findings(&console);
    let verdict = match (second.outcome == Outcome::Completed.word(), violations.is_empty()) {
        (false, _) => Verdict::Broken,
        (true, false) => Verdict::Violations,
        (true, true) => Verdict::Works,
    };
    Ok(Tried {
        schema: SCHEMA,
        driver: stock.plan.driver.name.clone(),
        kernel: stock.kernel.release.clone(),
        workload: stock.workload.name.clone(),
        policy: plan.policy.word(),
        verdict,
        stock: first,
        guarded: second,
        violations,
        summary: plan.summary.clone(),
    })
}

/// A guarded module of the folder, where it was written under this name.
fn written(out: &Path, name: &str) -> Result<Option<Vec<u8>>, HostError> {
    let path = out.join(format!("{name}.ko"));
    match path.is_file() {
        true => Ok(Some(fs::read(&path).map_err(HostError::io("read", path.display()))?)),
        false => Ok(None),
    }
}

/// The same guest with the guarded modules of a folder in place of the stock ones.
fn guarded(stock: &Prepared, out: &Path, policy: Policy) -> Result<(Prepared, Extras), HostError> {
    let absent = |name: &str| HostError::Run(format!("{name}.ko was not written"));
    let mut guest = stock.clone();
    let runtime = written(out, RUNTIME)?.ok_or_else(|| absent(RUNTIME))?;
    let driver = &mut guest.plan.driver;
    driver.bytes = written(out, &driver.name)?.ok_or_else(|| absent(&driver.name))?;
    let mut needed = Vec::new();
    for module in stock.plan.before.iter().chain(&stock.also) {
        if let Some(bytes) = written(out, &module.name)? {
            needed.push(ModuleFile { bytes, ..module.clone() });
        }
    }
    let original = guest.plan.driver.bytes.clone();
    let standing = Standing { runtime: &runtime, policy, original: &original, needed: &needed };
    let extras = standing.put(&mut guest);
    Ok((guest, extras))
}

/// One run, and the text of its console.
fn guest(
    plan: &TryPlan,
    prepared: &Prepared,
    extras: Extras,
    folder: &Path,
    signals: &Signals,
    progress: &Progress,
) -> Result<(Run, String), HostError> {
    let mut variables = plan.variables.clone();
    variables.extend(extras.variables.iter().map(|(name, value)| format!("{name}={value}")));
    let profile = ProfilePlan {
        clients: vec![COUNT.to_owned()],
        scope: "kernel".to_owned(),
        workload: None,
        drivers: Vec::new(),
        kernel: String::new(),
        device: None,
        from: Some("workload".to_owned()),
        until: None,
        detached: false,
        smp: plan.smp,
        memory: plan.memory,
        no_kaslr: false,
        append: vec![extras.loglevel.to_owned()],
        timeout: plan.timeout,
        variables,
        parameters: Vec::new(),
        files: extras.files,
        qemu: Vec::new(),
        out: Some(folder.to_path_buf()),
    };
    let ran = guardrail_profile::run_prepared(&profile, prepared.clone(), None, signals, progress)?;
    let Some(finished) = ran.finished() else {
        return Err(HostError::Run("the guest did not end".into()));
    };
    let number = |column| ran.total(COUNT, column);
    let instructions = number(ALL).zip(number(IDLE)).and_then(|(all, idle)| all.checked_sub(idle));
    let run = Run {
        outcome: finished.outcome.word().to_owned(),
        detail: finished.outcome.to_string(),
        instructions,
        seconds: (finished.wall.as_secs_f64() * 10.0).round() / 10.0,
    };
    let console = fs::read(&finished.console).map_err(HostError::io("read", finished.console.display()))?;
    Ok((run, String::from_utf8_lossy(&console).into_owned()))
}

impl Tried {
    /// The exit status that the verdict means.
    pub fn status(&self) -> Status {
        match self.verdict {
            Verdict::Works => Status::Clean,
            Verdict::Violations | Verdict::Broken => Status::Findings,
        }
    }

    /// The result as JSON.
    pub fn json(&self) -> Result<String, HostError> {
        files::json(self)
    }

    /// The result as text; the verdict is the last line.
    pub fn text(&self) -> String {
        let Tried { driver, kernel, workload, policy, stock, guarded, violations, .. } = self;
        let mut text = self.summary.clone();
        text += &format!("workload '{workload}' on {kernel}, policy {policy}, one run each:\n");
        for (name, run) in [("stock", stock), ("guarded", guarded)] {
            let count = run.instructions.map_or_else(
                || "instructions not counted".to_owned(),
                |count| format!("{:.1} million instructions of the kernel", count as f64 / 1e6),
            );
            text += &format!("  {name:<8}{}, {:.1} s, {count}\n", run.outcome, run.seconds);
        }
        for finding in violations.iter().take(PLACES) {
            let Finding { count, function, offset, message, .. } = finding;
            text += &format!("  {count} times in {function}+{offset:#x}: {message}\n");
        }
        if violations.len() > PLACES {
            text += &format!("  … and {} more places (--format json has all)\n", violations.len() - PLACES);
        }
        text + &match self.verdict {
            Verdict::Works => format!("{driver} works guarded: no violation{}\n", self.more()),
            Verdict::Violations => {
                format!(
                    "{driver} works guarded, with violations at {} places{}\n",
                    violations.len(),
                    self.more()
                )
            }
            Verdict::Broken => format!("{driver} does not do its work guarded: {}\n", guarded.detail),
        }
    }

    /// How many more instructions the guarded run took, as a part of a sentence.
    fn more(&self) -> String {
        match (self.stock.instructions, self.guarded.instructions) {
            (Some(stock @ 1..), Some(guarded)) => {
                let percent = 100.0 * (guarded as f64 / stock as f64 - 1.0);
                format!(", {percent:+.1}% instructions of the kernel (one run each is no measurement)")
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(verdict: Verdict, outcome: &str, places: usize) -> Tried {
        let run = |instructions| Run {
            outcome: outcome.to_owned(),
            detail: format!("it {outcome}"),
            instructions: Some(instructions),
            seconds: 12.5,
        };
        let finding = |offset| Finding {
            message: "write of 4 bytes".to_owned(),
            offset,
            count: 2,
            ..Finding::default()
        };
        Tried {
            schema: SCHEMA,
            driver: "e1000".to_owned(),
            kernel: "6.1".to_owned(),
            workload: "network".to_owned(),
            policy: "log",
            verdict,
            stock: run(2_000_000),
            guarded: run(2_100_000),
            violations: (0..places as u64).map(finding).collect(),
            summary: String::new(),
        }
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let last = |tried: Tried| tried.text().lines().last().unwrap_or_default().to_owned();
        let works = tried(Verdict::Works, "completed", 0);
        assert_eq!(works.status(), Status::Clean);
        assert_eq!(
            last(works),
            "e1000 works guarded: no violation, +5.0% instructions of the kernel (one run each is no measurement)"
        );
        let wrong = tried(Verdict::Violations, "completed", 25);
        assert!(wrong.text().contains("… and 5 more places"));
        assert_eq!(wrong.status(), Status::Findings);
        assert!(last(wrong).starts_with("e1000 works guarded, with violations at 25 places"));
        let broken = tried(Verdict::Broken, "panicked", 1);
        assert_eq!(broken.status(), Status::Findings);
        assert_eq!(last(broken), "e1000 does not do its work guarded: it panicked");
    }
}
