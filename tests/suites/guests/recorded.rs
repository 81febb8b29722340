//! Recorded runs: what `analyze` and `view` make of them.

use guardrail_tests::{check, ensure, findings, guardrail, program};
use libtest_mimic::Failed;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

/// `analyze` of a recorded run prints what `check` printed, apart from times.
pub fn equals_live() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("run.trace");
    let trace = trace.to_str().expect("a plain path");
    let live =
        check(&["zoo/race-teardown", "zoo/oob-heap", "zoo/uaf-timer", "--tool", "all", "--record", trace]);
    let recorded = guardrail(&["analyze", trace, "--format", "json"]);
    let (mut live, mut recorded) = (live.report()?.clone(), recorded.report()?.clone());
    for report in [&mut live, &mut recorded] {
        let run = report["run"].as_object_mut().ok_or("no run")?;
        run.retain(|name, _| !name.ends_with("seconds") && name != "analysis_lag" && name != "steps");
        // An analysis of the trace does not decide about findings again.
        for finding in report["findings"].as_array_mut().into_iter().flatten() {
            finding.as_object_mut().ok_or("no finding")?.remove("action");
        }
    }
    if live["findings"].as_array().is_none_or(|findings| findings.len() < 3) {
        return Err("fewer than three findings".into());
    }
    ensure(live == recorded, || format!("live {live:#}\nrecorded {recorded:#}"))?;
    a_viewer_is_confined(trace)?;
    let view = guardrail(&["view", trace]);
    let number = live["findings"][0]["event"].as_u64().ok_or("no event")?;
    let numbered = |line: &str| line.trim_start().split(' ').next() == Some(&number.to_string());
    ensure(view.stdout.lines().any(numbered), || format!("no event {number} in the trace"))?;
    findings_are_known(trace, folder.path())
}

/// While `view` prints a trace, which nobody reads, it is confined.
fn a_viewer_is_confined(trace: &str) -> Result<(), Failed> {
    let mut viewer = Command::new(program()).args(["view", trace]).stdout(Stdio::piped()).spawn()?;
    let mut first = [0; 1];
    let started = viewer.stdout.as_mut().ok_or("no output")?.read_exact(&mut first);
    let status = fs::read_to_string(format!("/proc/{}/status", viewer.id()));
    viewer.kill()?;
    viewer.wait()?;
    started?;
    let status = status?;
    let confined = ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|line| status.contains(line));
    ensure(confined, || format!("it is not confined: {status}"))
}

/// Baselines, suppressions and earlier reports decide what `analyze` prints and how it ends.
fn findings_are_known(trace: &str, folder: &Path) -> Result<(), Failed> {
    let file = |name: &str| folder.join(name).display().to_string();
    let analyze = |more: &[&str]| guardrail(&[&["analyze", trace, "--format", "json"], more].concat());
    let (base, all) = (file("base.json"), file("all.json"));
    let first = analyze(&["--write-baseline", &base]);
    let count = findings(first.report()?).count();
    fs::write(&all, first.report()?.to_string())?;
    let ended = |name: &str, more: &[&str], status: i32| -> Result<Value, Failed> {
        let result = analyze(more);
        ensure(result.status == status, || {
            format!("{name}: exit status {}, not {status}\n{}", result.status, result.stderr)
        })?;
        Ok(result.report()?.clone())
    };
    let known = ended("all are known", &["--baseline", &base, "--fail-on", "new"], 0)?;
    ensure(findings(&known).all(|finding| finding["baseline"] == "unchanged"), || format!("{known:#}"))?;
    ended("known findings do not count by default", &["--baseline", &base], 0)?;
    ended("known findings count where all do", &["--baseline", &base, "--fail-on", "any"], 1)?;
    ended("nothing is new", &["--against", &all], 0)?;

    // Without one line the baseline still is one, and that finding is new.
    let text = fs::read_to_string(&base)?;
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("{\"id\"")).ok_or("the baseline is empty")?;
    lines.remove(at);
    fs::write(&base, lines.join("\n"))?;
    let new = ended("one is new", &["--baseline", &base, "--fail-on", "new"], 1)?;
    ensure(new["comparison"]["new"].as_array().is_some_and(|new| new.len() == 1), || format!("{new:#}"))?;

    let rows = file("accepted.toml");
    let row = |more: &str| format!("[[suppress]]\nfunction = \"*\"\nreason = \"a test\"\n{more}");
    fs::write(&rows, row("expires = 2999-12-31\n"))?;
    let accepted = ended("all are suppressed", &["--suppress", &rows], 0)?;
    ensure(accepted["suppressions"]["suppressed"] == count, || format!("{accepted:#}"))?;
    fs::write(&rows, row("expires = 2020-12-31\n"))?;
    let expired = ended("the row has expired", &["--suppress", &rows], 1)?;
    ensure(expired["suppressions"]["expired"][0]["line"] == 1, || format!("{expired:#}"))
}
