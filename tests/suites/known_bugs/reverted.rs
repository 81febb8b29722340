//! Stock drivers into which a bug that was once fixed is put back.

use crate::{Row, descriptions, list, reasoned, results, run};
use guardrail_tests::{ensure, findings, program, root};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Holds a folder for each case.
pub const FOLDER: &str = "tests/known-bugs/reverted";
/// Builds the drivers. Its head says what is in the folder of a case, and what the members of `expect.json` mean.
const MAKE: &str = "tests/known-bugs/make";

/// The `expect.json` of a case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(default = "kernel")]
    kernel: String,
    module: String,
    source: String,
    // Only the script that builds the driver needs the next two.
    #[serde(rename = "files")]
    _files: Option<Vec<String>>,
    #[serde(rename = "objects")]
    _objects: Option<Vec<String>>,
    device: Option<String>,
    workload: Option<String>,
    #[serde(default)]
    set: BTreeMap<String, String>,
    #[serde(default = "outcome")]
    outcome: String,
    tool: Option<String>,
    checker: String,
    kind: String,
    function: String,
    other_function: Option<String>,
    line_marker: Option<String>,
    what: String,
    upstream: String,
    #[serde(default = "found")]
    pub found: bool,
    why: Option<String>,
}

fn kernel() -> String {
    "6.1".to_owned()
}

fn outcome() -> String {
    "completed".to_owned()
}

fn found() -> bool {
    true
}

/// All cases by their names.
pub fn all() -> Result<BTreeMap<String, Case>, String> {
    let cases: BTreeMap<String, Case> = descriptions(FOLDER, |folder| {
        Some((folder.file_name()?.to_str()?.to_owned(), folder.join("expect.json")))
    })?;
    for (name, case) in &cases {
        reasoned(&format!("{FOLDER}/{name}/expect.json"), case.found, case.why.as_deref(), "why")?;
    }
    Ok(cases)
}

/// The two drivers of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// The driver with the bug.
    Reverted,
    /// The driver as it is.
    Fixed,
}

impl Build {
    /// The name of its folder and of its report.
    fn word(self) -> &'static str {
        match self {
            Build::Reverted => "reverted",
            Build::Fixed => "fixed",
        }
    }
}

/// A function, and a line of the source.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    function: String,
    file: String,
    line: usize,
}

impl Place {
    /// The place of a finding, or of a frame of a stack.
    fn of(frame: &Value) -> Place {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let line = frame["location"]["line"].as_u64().unwrap_or(0);
        Place {
            function: text(&frame["function"]),
            file: text(&frame["location"]["file"]),
            line: usize::try_from(line).unwrap_or(0),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.function, self.file, self.line)
    }
}

impl Case {
    /// What the page of results says of it.
    pub fn row(&self, name: &str) -> Row {
        Row::new(&format!("{name} (reverted)"), &self.module, &self.upstream, &self.kind, self.found)
    }

    /// Fails unless the bug is found or not, as it is described, and the driver without it has no such finding.
    pub fn as_described(&self, name: &str) -> Result<(), Failed> {
        let report = self.check(name, Build::Reverted)?;
        let source = results().join(name).join(Build::Reverted.word()).join("src");
        self.marker_exists(&source)?;
        let places = self.places(&report);
        let at = places.iter().find(|place| self.is_marked(&source, place));
        match (at, self.found) {
            (None, true) => {
                let elsewhere: String = places.iter().map(|place| format!("\n    {place}")).collect();
                let is = if elsewhere.is_empty() { "not found" } else { "found, but not on its line:" };
                let (what, all) = (&self.what, list(&report));
                return Err(format!("the bug is {is}{elsewhere}\n{what}\nFindings:{all}").into());
            }
            (Some(place), false) => {
                return Err(format!("{FOLDER}/{name}/expect.json says that it is not found: {place}").into());
            }
            _ => {}
        }
        let report = self.check(name, Build::Fixed)?;
        let place = self.places(&report).pop_first();
        ensure(place.is_none(), || {
            let place = place.map(|place| place.to_string()).unwrap_or_default();
            format!("the fixed driver is not silent: {} {place}", self.kind)
        })
    }

    /// Builds and runs one of the drivers.
    fn check(&self, name: &str, build: Build) -> Result<Value, Failed> {
        let module = make(name, build)?;
        let mut options = vec![module, "--kernel".to_owned(), self.kernel.clone()];
        options.extend(["--tool".to_owned(), self.tool.as_ref().unwrap_or(&self.checker).clone()]);
        if let Some(device) = &self.device {
            options.extend(["--device".to_owned(), device.clone()]);
        }
        if let Some(workload) = &self.workload {
            let script = root().join(FOLDER).join(name).join(workload);
            let path = if workload.ends_with(".sh") { script } else { PathBuf::from(workload) };
            options.extend(["--workload".to_owned(), path.display().to_string()]);
        }
        let set = |(key, value): (&String, &String)| ["--set".to_owned(), format!("{key}={value}")];
        options.extend(self.set.iter().flat_map(set));
        run(&options, &results().join(name), build.word(), &self.outcome)
    }

    /// The places of the bug in a report: the lines of its findings, also of what the compiler has inlined there. Each side
    /// of a race has such lines.
    fn places(&self, report: &Value) -> BTreeSet<Place> {
        let is_bug = |finding: &&Value| {
            let side = |frame: &Value, function: &String| frame["function"] == function.as_str();
            let other = &finding["other"]["stack"][0];
            let sides = match &self.other_function {
                None => side(finding, &self.function),
                Some(second) => {
                    side(finding, &self.function) && side(other, second)
                        || side(finding, second) && side(other, &self.function)
                }
            };
            sides && finding["checker"] == self.checker.as_str() && finding["kind"] == self.kind.as_str()
        };
        let tops = |finding: &Value| -> Vec<Place> {
            let tops = [&finding["stack"][0], &finding["other"]["stack"][0]];
            let inlined = tops.iter().flat_map(|top| top["inlined"].as_array().into_iter().flatten());
            let lines = inlined.chain(tops).filter(|line| line["location"].is_object());
            lines.chain([finding]).map(Place::of).collect()
        };
        findings(report).filter(is_bug).flat_map(tops).collect()
    }

    /// True where the line of a place has the marker. The path of a header of the kernel is absolute, and no part of the driver.
    fn is_marked(&self, source: &Path, place: &Place) -> bool {
        let Some(marker) = &self.line_marker else { return true };
        let file = Some(Path::new(&place.file)).filter(|file| file.is_relative());
        let text = file.and_then(|file| fs::read_to_string(source.join(file)).ok());
        let line = text.as_deref().zip(place.line.checked_sub(1)).and_then(|(text, at)| text.lines().nth(at));
        line.is_some_and(|line| line.contains(marker.as_str()))
    }

    /// Fails where no line has the marker: no finding could name it, so a bug would count as not found.
    fn marker_exists(&self, source: &Path) -> Result<(), Failed> {
        let Some(marker) = &self.line_marker else { return Ok(()) };
        let text = fs::read_to_string(source.join(&self.source))?;
        let is_there = text.lines().any(|line| line.contains(marker.as_str()));
        ensure(is_there, || format!("no line of {} contains the marker '{marker}'", self.source))
    }
}

/// Builds one of the drivers where it has changed, and returns the path of the module.
fn make(name: &str, build: Build) -> Result<String, Failed> {
    let mut command = Command::new(root().join(MAKE));
    command.arg("--out").arg(results()).env("GUARDRAIL", program()).stdin(Stdio::null());
    if build == Build::Fixed {
        command.arg("--fixed");
    }
    let output = command.arg(name).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last() {
        Some(module) if output.status.success() => Ok(module.to_owned()),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("the {} driver is not built: {}", build.word(), said.trim_end()).into())
        }
    }
}
