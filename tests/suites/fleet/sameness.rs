//! Checks by several workers.

use guardrail_tests::{ensure, findings, guardrail};
use libtest_mimic::Failed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Drivers with a bug, and one without.
const DRIVERS: &str = "zoo/leak,zoo/leak_ok,zoo/uaf-timer,zoo/oob-heap";

/// The findings of each driver, as the survey of a store has them.
fn found(store: &Path) -> Result<BTreeMap<String, Vec<String>>, Failed> {
    let store = store.display().to_string();
    let shown =
        guardrail(&["fleet", "status", "--survey", "--format", "json", "--store", &store]).with(&[1])?;
    let table: Value = serde_json::from_str(&shown.stdout)?;
    let cells = table["cells"].as_array().ok_or("a survey has cells")?;
    let cell = |cell: &Value| {
        let ids = findings(&cell["report"]).map(|finding| format!("{} {}", finding["kind"], finding["id"]));
        let mut ids: Vec<String> = ids.chain([cell["state"].to_string()]).collect();
        ids.sort();
        (cell["driver"].to_string(), ids)
    };
    Ok(cells.iter().map(cell).collect())
}

/// One worker and two find the same, each driver's bug; a job by itself returns what is stored.
pub fn two_find_what_one_finds() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let jobs = folder.path().join("jobs");
    let printed = guardrail(&["fleet", "jobs", "--driver", DRIVERS, "--kernel", "6.1"]).with(&[0])?;
    fs::write(&jobs, &printed.stdout)?;
    let jobs = jobs.display().to_string();
    let by = |workers: &str| {
        let store = folder.path().join(workers);
        let words = ["fleet", "run", &jobs, "--workers", workers, "--store", &store.display().to_string()];
        // Bugs are found, and the exit status says so.
        guardrail(&words).with(&[1])?;
        found(&store)
    };
    let (one, two) = (by("1")?, by("2")?);
    ensure(one == two, || format!("one worker finds {one:?}, two find {two:?}"))?;
    let with_findings = one.values().filter(|ids| ids.iter().any(|id| id.contains("findings"))).count();
    ensure(one.len() == 4 && with_findings == 3, || format!("{one:?}"))?;
    let spec = folder.path().join("job.json");
    fs::write(&spec, printed.stdout.lines().next().unwrap_or_default())?;
    let (spec, store) = (spec.display().to_string(), folder.path().join("2").display().to_string());
    let again = guardrail(&["job", &spec, "--store", &store]).with(&[1])?;
    let ids = findings(again.report()?).count();
    ensure(ids > 0 && !again.stderr.contains("QEMU"), || again.said())
}
