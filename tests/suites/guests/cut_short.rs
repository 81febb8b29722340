//! Runs that are cut short: by the user, by a full disk, or by a panic. They have their reports nevertheless.

use guardrail_tests::{SHORT, check, ensure, findings, guardrail, keeps_the_rules, program, root};
use libtest_mimic::Failed;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for what happens within two minutes.
fn until<T>(what: &str, mut look: impl FnMut() -> Result<Option<T>, Failed>) -> Result<T, Failed> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while Instant::now() < deadline {
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(format!("not within two minutes: {what}").into())
}

/// Runs a check in this folder, and sends it a signal once its progress has this line. Returns the exit status; the
/// output is in the files `stdout` and `stderr` of the folder.
fn interrupted(arguments: &[&str], at: &str, signal: i32, folder: &Path) -> Result<Option<i32>, Failed> {
    let file = |name: &str| std::fs::File::create(folder.join(name));
    let mut command = Command::new(program());
    command.arg("check").args(arguments).current_dir(root()).stdin(Stdio::null());
    let mut running = Running(command.stdout(file("stdout")?).stderr(file("stderr")?).spawn()?);
    until(at, || {
        let text = std::fs::read_to_string(folder.join("stderr"))?;
        match running.0.try_wait()? {
            Some(status) => Err(format!("the run ended before, {status}\n{text}").into()),
            None => Ok(text.contains(at).then_some(())),
        }
    })?;
    // SAFETY: a plain system call; the child has not been waited for.
    unsafe { libc::kill(running.0.id() as i32, signal) };
    let status = until("the interrupted run ends", || Ok(running.0.try_wait()?))?;
    Ok(status.code())
}

/// The notes of a report, one a line.
fn notes(report: &Value) -> String {
    let notes = report["run"]["notes"].as_array().into_iter().flatten();
    notes.filter_map(Value::as_str).map(|note| format!("{note}\n")).collect()
}

fn has_the_bug(report: &Value) -> bool {
    findings(report).any(|one| one["kind"] == "use-after-free" && one["function"] == "uaf_timer_report")
}

/// A run that is interrupted reports what was found so far, on standard output, in its folder and by its trace.
pub fn by_the_user() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("wait.sh"), "step wait sleep 100\n")?;
    let (workload, out, trace) = (path("wait.sh"), path("run"), path("run.trace"));
    let run = ["zoo/uaf-timer", "--workload", &workload, "--out", &out];
    let json = ["--format", "json", "--record", &trace];
    let status = interrupted(&[&run[..], &json].concat(), "wait …", libc::SIGINT, folder.path())?;
    let said = std::fs::read_to_string(path("stderr"))?;
    ensure(status == Some(130) && said.ends_with("\nerror: interrupted\n"), || {
        format!("{status:?}\n{said}")
    })?;
    for name in ["stdout", "run/report.json"] {
        let report: Value = serde_json::from_str(&std::fs::read_to_string(path(name))?)?;
        let said = notes(&report);
        let right = report["run"]["outcome"] == "interrupted"
            && has_the_bug(&report)
            && said.contains("the run was interrupted after ")
            && said.contains("in 'wait'; what would have followed was not checked");
        ensure(right, || format!("{name}: {report:#}"))?;
    }
    let again = guardrail(&["analyze", &trace, "--format", "json"]).with(&[1])?;
    let report = again.report()?;
    ensure(report["run"]["outcome"] == "interrupted" && has_the_bug(report), || format!("{report:#}"))?;

    // As text, by another signal, and without a gate.
    let status =
        interrupted(&[&run[..], &["--gate", "off"]].concat(), "wait …", libc::SIGTERM, folder.path())?;
    let text = std::fs::read_to_string(path("stdout"))?;
    let right =
        text.contains("use-after-free in uaf_timer_report") && text.contains("Outcome: interrupted\n");
    ensure(status == Some(130) && right, || format!("{status:?}\n{text}"))
}

/// A file system in memory, which is full soon.
struct Small(PathBuf);

impl Small {
    fn mount(folder: &Path, size: &str) -> Result<Small, Failed> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "guardrail-test"]).arg(folder);
        ensure(mount.status()?.success(), || "a small file system cannot be mounted".into())?;
        Ok(Small(folder.to_path_buf()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Where the trace's disk is full, the run is checked to its end, and the trace can be read up to the cut.
pub fn by_a_full_disk() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let _small = Small::mount(folder.path(), "1m")?;
    let trace = folder.path().join("run.trace").display().to_string();
    let result = check(&[&["e1000", "--tool", "quiet", "--record", &trace], &SHORT[..]].concat());
    let report = result.report()?;
    let why = format!("the recording ended early: the disk is full: the trace {trace} ends at byte ");
    let errors: Vec<&str> = result.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    let whole = report["run"]["outcome"] == "completed" && report["run"]["lost_events"] == 0;
    let right = whole
        && findings(report).next().is_none()
        && notes(report).contains(&why)
        && result.status == 3
        && errors.len() == 1
        && errors[0].contains(&why);
    ensure(right, || result.said())?;

    keeps_the_rules(&trace)?;
    let again = guardrail(&["analyze", &trace, "--format", "json"]).with(&[6])?;
    let cut = again.report()?;
    let blocks = |report: &Value| report["run"]["blocks"].as_u64();
    let part = Some(0) < blocks(cut) && blocks(cut) < blocks(report);
    ensure(cut["run"]["outcome"] == "truncated" && part, || again.said())
}

/// Where the kernel stops, its report is a finding, with the whole log beside it.
pub fn by_a_panic() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let out = folder.path().join("run").display().to_string();
    let result = check(&["zoo/kernel-list", "--out", &out]);
    let report = result.report()?;
    let bug = crate::Bug::all()
        .into_iter()
        .find(|bug| bug.folder == "kernel-list")
        .ok_or("the zoo has no kernel-list")?;
    crate::named(&result, &bug)?;
    let log = format!("{out}/console.log");
    if report["run"]["outcome"] != "guest-panic"
        || report["run"]["kernel_log"] != log.as_str()
        || result.status != 1
    {
        return Err(format!("{report:#} exit status {}\n{}", result.status, result.stderr).into());
    }
    let text = std::fs::read(log)?;
    let text = String::from_utf8_lossy(&text);
    // The first line of the boot, below the level that the console usually shows, and the last of the panic.
    ensure(text.contains("Linux version ") && text.contains("Kernel panic - not syncing"), || {
        text.to_string()
    })
}
