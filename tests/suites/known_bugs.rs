//! Bugs that Linux once had: each is found in the driver that has it, and not in the driver without it.
//!
//! Cases are of two sorts. In `tests/known-bugs/reverted` a fix is undone in the source of a driver. In
//! `tests/known-bugs/older` an older package has the bug, and a newer one has the fix.
//! The drivers and the reports of both runs stay in `target/known-bugs`.

#[path = "known_bugs/older.rs"]
mod older;
#[path = "known_bugs/reverted.rs"]
mod reverted;

use guardrail_tests::{check, ensure, findings, root};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The cases of a short run: two checkers, each with a driver that is built and run in little time.
const SAMPLE: [&str; 2] = ["8139cp-unchecked", "piix4-adapter-left"];
/// The page that lists all cases.
const PAGE: &str = "docs/results/drivers.md";

fn main() {
    let trials = trials().unwrap_or_else(|why| {
        vec![Trial::test("the descriptions of known bugs are read", move || Err(why.into()))]
    });
    guardrail_tests::run(Arguments::from_args(), trials)
}

fn trials() -> Result<Vec<Trial>, String> {
    let (reverted, pairs) = (reverted::all()?, older::all()?);
    if let Some(name) = SAMPLE.iter().find(|name| !reverted.contains_key(**name)) {
        return Err(format!("a short run has the case {name}, which {} lacks", reverted::FOLDER));
    }
    let rows = reverted.iter().map(|(name, case)| case.row(name));
    let rows: Vec<Row> = rows.chain(pairs.iter().map(|(name, pair)| pair.row(name))).collect();
    let mut trials = vec![Trial::test("the page of results has every known bug", move || page(&rows))];
    for (name, case) in reverted {
        let left_out = !SAMPLE.contains(&name.as_str());
        let title = format!("{name} is {}, and the fixed driver is silent", word(case.found));
        trials.push(Trial::test(title, move || case.as_described(&name)).with_ignored_flag(left_out));
    }
    for (name, pair) in pairs {
        let Some(kernels) = pair.kernels() else { continue };
        let title =
            format!("{name} is {} in the older package, and the newer one is silent", word(pair.found));
        trials.push(Trial::test(title, move || pair.as_described(&name, &kernels)).with_ignored_flag(true));
    }
    Ok(trials)
}

/// What a trial's name says of the bug.
fn word(found: bool) -> &'static str {
    if found { "found" } else { "not found" }
}

/// The descriptions among these files, by the names of their cases.
fn descriptions<T: DeserializeOwned>(
    folder: &str,
    name: impl Fn(&Path) -> Option<(String, PathBuf)>,
) -> Result<BTreeMap<String, T>, String> {
    let listed = fs::read_dir(root().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    let named = listed.flatten().filter_map(|entry| name(&entry.path()));
    named.map(|(name, path)| Ok((name, description(&path)?))).collect()
}

/// Reads a description. An error names the file, the line and the member.
fn description<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Fails unless a case has a reason just where its bug is not found.
fn reasoned(path: &str, found: bool, why: Option<&str>, member: &str) -> Result<(), String> {
    match found == why.is_none() {
        true => Ok(()),
        false => Err(format!("{path}: `{member}` gives the reason where `found` is false, and only there")),
    }
}

/// The folder with the drivers and reports of these cases.
fn results() -> PathBuf {
    root().join("target/known-bugs")
}

/// Runs `guardrail check`. The report stays in FOLDER/NAME.json, and what else the program printed in FOLDER/NAME.log.
///
/// A driver whose probe is made to fail binds no device, and a bug may end the guest. So the run counts where it
/// ended like this.
fn run(arguments: &[String], folder: &Path, name: &str, outcome: &str) -> Result<Value, Failed> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let checked = check(&arguments);
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.json")), &checked.stdout)?;
    fs::write(folder.join(format!("{name}.log")), &checked.stderr)?;
    let report = checked.report()?.clone();
    let ended = &report["run"]["outcome"];
    ensure(report["findings"].is_array(), || format!("the report has no findings; {}", checked.said()))?;
    ensure([0, 1].contains(&checked.status) || ended == outcome, || {
        let (status, detail) = (checked.status, &report["run"]["detail"]);
        format!("the run '{name}' ended with status {status} as {ended}, not as \"{outcome}\": {detail}")
    })?;
    Ok(report)
}

/// All findings of a report, a line each.
fn list(report: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let line = |finding: &Value| {
        let words = ["checker", "kind", "function"].map(|member| text(&finding[member]));
        format!("\n    {}", words.join(" "))
    };
    let lines: String = findings(report).map(line).collect();
    if lines.is_empty() { " none".to_owned() } else { lines }
}

/// What the page of results says of a case.
struct Row {
    /// The beginning of the row: its case, driver, fix and kind.
    begins: String,
    found: bool,
}

impl Row {
    fn new(case: &str, driver: &str, upstream: &str, kind: &str, found: bool) -> Row {
        Row { begins: format!("| {case} | {driver} | *{upstream}* | `{kind}`"), found }
    }
}

/// The page of results has a row for each case, and counts them.
fn page(rows: &[Row]) -> Result<(), Failed> {
    let text = fs::read_to_string(root().join(PAGE))?;
    for Row { begins, found } in rows {
        let cell = if *found { "| **yes** |" } else { "| no |" };
        let is_there = text.lines().any(|line| line.starts_with(begins.as_str()) && line.contains(cell));
        ensure(is_there, || format!("{PAGE} lacks the row '{begins} … {cell}'"))?;
    }
    let found = rows.iter().filter(|row| row.found).count();
    let sum = format!("{found} of {} are found", rows.len());
    ensure(text.contains(&sum), || format!("{PAGE} lacks the sum '{sum}'"))
}
