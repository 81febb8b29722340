//! Findings that are known or accepted: baselines, suppression files and earlier reports. They are applied
//! to the report of a run, and decide its exit status.
//!
//! They change neither what the gate does nor which on-finding commands run, and the report in a kept run
//! folder has all findings unmarked.

use crate::analysis::policy::Policy;
use guardrail_host::{HostError, Status, files};
use guardrail_report::fail_on::FailOn;
use guardrail_report::list::{FindingList, MAX_FILE};
use guardrail_report::marks::Source;
use guardrail_report::suppress::{Date, Rules};
use guardrail_report::{Report, RunEnd, baseline, compare, suppress};
use std::path::{Path, PathBuf};

/// Which findings are known or accepted, as the user named them.
#[derive(Clone, Debug, Default)]
pub struct KnownPlan {
    /// The baseline; `None` without one.
    pub baseline: Option<PathBuf>,
    /// The file that gets a new baseline; `None` to write none.
    pub write_baseline: Option<PathBuf>,
    /// The earlier report to compare with; `None` without one. There is no baseline beside it.
    pub against: Option<PathBuf>,
    /// Suppression files, besides those that the policy file names.
    pub suppress: Vec<PathBuf>,
    /// The findings that make the run fail; `None` for the default of [`FailOn`].
    pub fail_on: Option<FailOn>,
    /// The policy file; `None` for `guardrail.toml` of the current folder, if there is one.
    pub policy: Option<PathBuf>,
}

/// The contents of the files, read before the run.
pub struct Known {
    earlier: Option<Earlier>,
    rules: Rules,
    fail_on: FailOn,
    write: Option<PathBuf>,
}

/// A baseline or an earlier report.
struct Earlier {
    file: String,
    source: Source,
    list: FindingList,
}

/// Reads a report of Guardrail.
pub fn report(path: &Path) -> Result<FindingList, HostError> {
    FindingList::parse(&files::input(path, MAX_FILE)?).map_err(|why| bad(path, &why))
}

fn bad(path: &Path, why: &str) -> HostError {
    HostError::Usage(format!("{}: {why}", path.display()))
}

impl Known {
    /// Reads all files that the plan names. What is wrong in them is refused.
    pub fn open(plan: &KnownPlan) -> Result<Known, HostError> {
        let earlier = match (&plan.baseline, &plan.against) {
            (Some(path), _) => {
                let bytes = files::input(path, MAX_FILE)?;
                let list = baseline::parse(&bytes).map_err(|why| bad(path, &why))?;
                Some((path, Source::Baseline, list))
            }
            (None, Some(path)) => Some((path, Source::Report, report(path)?)),
            (None, None) => None,
        };
        let earlier =
            earlier.map(|(path, source, list)| Earlier { file: path.display().to_string(), source, list });
        if plan.fail_on == Some(FailOn::New) && earlier.is_none() {
            return Err(HostError::Usage(
                "--fail-on new needs to know which findings are not new; add --baseline or --against".into(),
            ));
        }
        if let Some(file) = &plan.write_baseline {
            files::refuse_without_folder("--write-baseline", file)?;
        }
        let mut rules = Rules::default();
        for path in Policy::suppressions(plan.policy.as_deref())?.iter().chain(&plan.suppress) {
            let bytes = files::input(path, suppress::MAX_FILE)?;
            let text = std::str::from_utf8(&bytes).map_err(|_| bad(path, "it is not text (UTF-8)"))?;
            rules.add(&path.display().to_string(), text).map_err(|why| bad(path, &why))?;
        }
        let fail_on = plan.fail_on.clone().unwrap_or_default();
        Ok(Known { earlier, rules, fail_on, write: plan.write_baseline.clone() })
    }

    /// Refuses a baseline or a report of other drivers.
    pub fn fits(&self, driver: &str) -> Result<(), HostError> {
        match &self.earlier {
            Some(Earlier { file, list, .. }) if !list.is_of(driver) => Err(HostError::Usage(format!(
                "{file} is of the driver {}, and this run is of {driver}; only runs of the same driver are compared",
                list.driver
            ))),
            _ => Ok(()),
        }
    }

    /// Which findings make the run fail.
    pub fn fail_on(&self) -> &FailOn {
        &self.fail_on
    }

    /// Marks what is known or accepted in a report of the same drivers.
    pub fn mark(&self, report: &mut Report) {
        self.rules.apply(report, Date::today());
        if let Some(Earlier { file, source, list }) = &self.earlier {
            compare::mark(report, list, file, *source);
        }
    }

    /// Writes the new baseline, where one is wanted and the run did not fail. It is complete or not written.
    pub fn keep(&self, report: &Report, status: &Result<Status, HostError>) -> Result<(), HostError> {
        let Some(path) = self.write.as_ref().filter(|_| status.is_ok()) else { return Ok(()) };
        let earlier = self.earlier.as_ref().filter(|earlier| earlier.source == Source::Baseline);
        let list = baseline::of(&FindingList::of(report), earlier.map(|earlier| &earlier.list));
        let text = baseline::write(&list).map_err(|error| HostError::Run(error.to_string()))?;
        files::write(path, text)
    }

    /// The exit status, of which only that for findings can change. A run that did not complete fails where no
    /// finding counts, since nothing explains its end.
    pub fn judge(&self, report: &Report, status: Status) -> Result<Status, HostError> {
        if status != Status::Findings || report.findings.iter().any(|finding| self.fail_on.counts(finding)) {
            return Ok(status);
        }
        let outcome = &report.run.outcome;
        match report.run.end() {
            RunEnd::Complete => Ok(Status::Clean),
            RunEnd::TooLittle => Err(HostError::NotExercised(format!(
                "the run did not see enough ({outcome}), and no finding counts"
            ))),
            RunEnd::Failed => Err(HostError::Run(format!(
                "the run did not complete ({outcome}), and no finding that counts explains it"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::{Finding, Severity};
    use guardrail_report::{Run, SCHEMA};
    use std::fs;

    fn report(ids: &[&str]) -> Report {
        let finding = |id: &&str| Finding {
            id: (*id).to_owned(),
            checker: "dmcheck".into(),
            kind: "leak".into(),
            severity: Severity::Warning,
            ..Finding::default()
        };
        Report {
            schema: SCHEMA.into(),
            driver: "drv".into(),
            tools: vec!["dmcheck".into()],
            run: Run { outcome: "completed".into(), ..Run::default() },
            findings: ids.iter().map(finding).collect(),
            ..Report::default()
        }
    }

    fn judged(plan: &KnownPlan, mut report: Report) -> Result<Status, HostError> {
        let known = Known::open(plan).unwrap();
        known.mark(&mut report);
        known.judge(&report, Status::Findings)
    }

    #[test]
    fn a_baseline_makes_its_findings_known() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().join("base.json");
        let write = KnownPlan { write_baseline: Some(base.clone()), ..KnownPlan::default() };
        let known = Known::open(&write).unwrap();
        known.keep(&report(&["a1"]), &Err(HostError::Interrupted)).unwrap();
        assert!(!base.exists());
        known.keep(&report(&["a1"]), &Ok(Status::Findings)).unwrap();

        let plan = |fail_on| KnownPlan { baseline: Some(base.clone()), fail_on, ..KnownPlan::default() };
        assert_eq!(judged(&plan(None), report(&["a1"])).unwrap(), Status::Clean);
        assert_eq!(judged(&plan(None), report(&["b2"])).unwrap(), Status::Findings);
        assert_eq!(judged(&plan(Some(FailOn::Any)), report(&["a1"])).unwrap(), Status::Findings);
        assert_eq!(judged(&plan(Some(FailOn::New)), report(&["a1"])).unwrap(), Status::Clean);
        assert_eq!(judged(&plan(Some(FailOn::New)), report(&["a1", "b2"])).unwrap(), Status::Findings);
        assert_eq!(judged(&plan(Some(FailOn::Error)), report(&["b2"])).unwrap(), Status::Clean);
        assert_eq!(judged(&plan(Some(FailOn::Warning)), report(&["b2"])).unwrap(), Status::Findings);
        let mut panic = report(&["a1"]);
        panic.run.outcome = "guest-panic".into();
        assert_eq!(judged(&plan(Some(FailOn::New)), panic).unwrap_err().status(), Status::RunFailed);
        let mut interrupted = report(&["a1"]);
        interrupted.run.outcome = "interrupted".into();
        let status = judged(&plan(Some(FailOn::New)), interrupted).unwrap_err().status();
        assert_eq!(status, Status::NotExercised);
        // A contained finding ended the run, whatever is known of it.
        let known = Known::open(&plan(Some(FailOn::Never))).unwrap();
        assert_eq!(known.judge(&report(&["a1"]), Status::Contained).unwrap(), Status::Contained);
        let other = known.fits("e1000").unwrap_err();
        assert!(other.to_string().ends_with(
            "is of the driver drv, and this run is of e1000; only runs of the same driver are compared"
        ));
    }

    #[test]
    fn new_findings_count_against_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("old.json");
        let mut text = Vec::new();
        guardrail_report::json::write(&report(&["a1"]), &mut text).unwrap();
        fs::write(&file, text).unwrap();
        let plan = KnownPlan { against: Some(file), ..KnownPlan::default() };
        assert_eq!(judged(&plan, report(&["a1"])).unwrap(), Status::Clean);
        assert_eq!(judged(&plan, report(&["b2"])).unwrap(), Status::Findings);
    }
}
