//! The faults that can be planted in a driver, and the report that each must cause.

use guardrail_finding::{Finding, Frame};
use guardrail_host::HostError;
use guardrail_report::Report;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// A fault, as `faults.json` beside the driver describes it.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Fault {
    /// The driver's name for the fault.
    pub fault: String,
    /// The checker that finds it.
    pub checker: String,
    /// The finding's kind.
    pub kind: String,
    /// The function that contains it.
    pub function: String,
    /// A text that occurs in the line of the fault.
    line_marker: String,
    /// The number of that line, from 1.
    #[serde(skip)]
    line: u32,
}

/// The faults of a driver of the zoo.
pub fn of(zoo: &Path, driver: &str) -> Result<Vec<Fault>, HostError> {
    let folder = zoo.join("gate").join(driver);
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(HostError::io("read", path.display()))
    };
    // A fault is in the driver, or in what the drivers share.
    let sources = [read(&format!("{}.c", driver.replace('-', "_")))?, read("../../lib/gate.h")?];
    let bad = |why: String| HostError::Run(format!("{}/faults.json: {why}", folder.display()));
    let mut faults: Vec<Fault> =
        serde_json::from_str(&read("faults.json")?).map_err(|error| bad(error.to_string()))?;
    for fault in &mut faults {
        let mut lines = sources
            .iter()
            .filter_map(|source| source.lines().position(|line| line.contains(&fault.line_marker)));
        let line = lines.next().ok_or_else(|| bad(format!("no line holds '{}'", fault.line_marker)))?;
        fault.line = line as u32 + 1;
    }
    Ok(faults)
}

impl Fault {
    /// True where a report names this fault: checker, kind, function and line.
    pub fn is_named_by(&self, report: &Report) -> bool {
        report.findings.iter().any(|finding| self.is(finding))
    }

    fn is(&self, finding: &Finding) -> bool {
        // A report may list the two sides of a race in either order.
        let there = finding.other.as_ref().map_or(&[][..], |other| &other.stack);
        finding.checker == self.checker
            && finding.kind == self.kind
            && (self.is_at(&finding.stack) || self.is_at(there))
    }

    /// True where the stack's innermost frame, or its caller, is at the fault: a planted call performs the
    /// fault with the driver's own functions.
    fn is_at(&self, stack: &[Frame]) -> bool {
        stack.iter().take(2).any(|frame| {
            let line = frame.location.as_ref().map(|at| at.line);
            frame.function == self.function && line == Some(self.line)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_of_the_experiment_names_the_lines_of_its_faults() {
        let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo");
        for subject in super::super::ZooDriver::ALL {
            let faults = of(&zoo, subject.driver()).unwrap();
            assert!(faults.len() >= 5, "{} has {} faults", subject.driver(), faults.len());
            assert!(faults.iter().all(|fault| fault.line > 0));
        }
    }
}
