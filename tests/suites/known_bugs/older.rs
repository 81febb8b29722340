//! Pairs of an older kernel package, which has a bug, and a newer one, which has the fix.

use crate::{Row, descriptions, list, reasoned, results, run};
use guardrail_tests::{ensure, findings, root};
use libtest_mimic::Failed;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Holds NAME.json for each pair, and scripts for guests.
const FOLDER: &str = "tests/known-bugs/older";

/// The description of a pair.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    driver: String,
    device: String,
    /// The name of a workload, or of a script beside the description.
    workload: Option<String>,
    /// The release of the package with the bug; `None` where no package has it.
    kernel_with: Option<String>,
    kernel_without: Option<String>,
    pub found: bool,
    checker: String,
    kind: String,
    /// The function of the finding, without what compilers add behind a dot.
    function: String,
    /// A function that is also on the finding's stack.
    frame: Option<String>,
    what: String,
    /// Why the bug is not found.
    why_not: Option<String>,
    /// The title of the commit that fixed it.
    upstream: String,
}

/// The releases of the two packages.
pub struct Kernels {
    with: String,
    without: String,
}

/// All pairs by their names.
pub fn all() -> Result<BTreeMap<String, Pair>, String> {
    let pairs: BTreeMap<String, Pair> = descriptions(FOLDER, |path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".json")?;
        Some((name.to_owned(), path.to_owned()))
    })?;
    for (name, pair) in &pairs {
        reasoned(&format!("{FOLDER}/{name}.json"), pair.found, pair.why_not.as_deref(), "why_not")?;
    }
    Ok(pairs)
}

impl Pair {
    /// What the page of results says of it.
    pub fn row(&self, name: &str) -> Row {
        Row::new(&format!("{name} (older)"), &self.driver, &self.upstream, &self.kind, self.found)
    }

    /// The two packages, where both exist.
    pub fn kernels(&self) -> Option<Kernels> {
        Some(Kernels { with: self.kernel_with.clone()?, without: self.kernel_without.clone()? })
    }

    /// Fails unless the bug is found or not, as it is described, and the newer package has no such finding.
    pub fn as_described(&self, name: &str, kernels: &Kernels) -> Result<(), Failed> {
        let report = self.check(name, "with", &kernels.with)?;
        let places = self.places(&report);
        ensure(places.is_empty() != self.found, || match self.found {
            true => format!("the bug is not found\n{}\nFindings:{}", self.what, list(&report)),
            false => format!("{FOLDER}/{name}.json says that it is not found: {places:?}"),
        })?;
        let report = self.check(name, "without", &kernels.without)?;
        let places = self.places(&report);
        ensure(places.is_empty(), || format!("the newer package is not silent: {} {places:?}", self.kind))
    }

    /// Runs the driver of a package.
    fn check(&self, name: &str, sort: &str, kernel: &str) -> Result<Value, Failed> {
        let options = ["--kernel", kernel, "--device", &self.device, "--tool", &self.checker];
        let mut options: Vec<String> =
            [&[self.driver.as_str()], &options[..]].concat().into_iter().map(str::to_owned).collect();
        if let Some(workload) = &self.workload {
            let script = root().join(FOLDER).join(workload);
            let workload = if script.is_file() { script.display().to_string() } else { workload.clone() };
            options.extend(["--workload".to_owned(), workload]);
        }
        run(&options, &results().join("older").join(name), sort, "completed")
    }

    /// The places of the bug in a report, as FUNCTION+OFFSET: these packages come without lines.
    fn places(&self, report: &Value) -> BTreeSet<String> {
        let is_bug = |finding: &&Value| {
            let function = finding["function"].as_str().unwrap_or_default();
            let mut stack = finding["stack"].as_array().into_iter().flatten();
            finding["checker"] == self.checker.as_str()
                && finding["kind"] == self.kind.as_str()
                && function.split('.').next() == Some(self.function.as_str())
                && self.frame.as_ref().is_none_or(|frame| stack.any(|one| one["function"] == frame.as_str()))
        };
        let place = |finding: &Value| {
            let function = finding["function"].as_str().unwrap_or_default();
            format!("{function}+{}", finding["offset"].as_u64().unwrap_or(0))
        };
        findings(report).filter(is_bug).map(place).collect()
    }
}
