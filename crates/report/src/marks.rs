//! What a report says about its findings beside an earlier run's, and about suppressions.

use guardrail_finding::{Finding, Severity};
use serde::{Deserialize, Serialize};

/// A finding in short: what a baseline and a comparison keep of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFinding {
    /// The fingerprint.
    pub id: String,
    /// Name of the checker.
    pub checker: String,
    /// Kind of the fault.
    pub kind: String,
    /// How severe the fault is.
    #[serde(default)]
    pub severity: Severity,
    /// The module at fault; empty where it is not known.
    #[serde(default)]
    pub module: String,
    /// The function at fault; `?` where it is not known.
    #[serde(default)]
    pub function: String,
    /// True where a suppression accepts it. A baseline has no such findings.
    #[serde(skip)]
    pub suppressed: bool,
}

impl From<&Finding> for KnownFinding {
    fn from(finding: &Finding) -> KnownFinding {
        KnownFinding {
            id: finding.id.clone(),
            checker: finding.checker.clone(),
            kind: finding.kind.clone(),
            severity: finding.severity,
            module: finding.module.clone(),
            function: finding.function.clone(),
            suppressed: finding.suppressed.is_some(),
        }
    }
}

/// The sort of file that a report was compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A baseline, whose findings are known.
    #[default]
    Baseline,
    /// An earlier report.
    Report,
}

/// What changed since an earlier run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The file of the earlier run, as the user named it.
    pub against: String,
    /// The sort of the file.
    pub source: Source,
    /// Release of the earlier run's kernel.
    pub kernel: String,
    /// Findings that the earlier run does not have. Suppressed ones are left out.
    pub new: Vec<KnownFinding>,
    /// Findings of the earlier run that are no longer found, although this run could have found them.
    pub gone: Vec<KnownFinding>,
    /// Findings of both runs.
    pub same: Vec<KnownFinding>,
    /// Findings of the earlier run that this run could not find: it did not complete, or the checker did not
    /// run.
    pub unknown: Vec<KnownFinding>,
}

/// What suppression files did to a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suppressions {
    /// The files, as the user named them.
    pub files: Vec<String>,
    /// Number of findings that are suppressed.
    pub suppressed: u64,
    /// Suppressions that concern this run and accept none of its findings. Empty where it did not complete.
    pub unused: Vec<Idle>,
    /// Suppressions whose date has passed.
    pub expired: Vec<Idle>,
}

/// A suppression that does nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// The file of the suppression, as the user named it.
    pub file: String,
    /// The line at which it begins, from 1.
    pub line: u32,
    /// What it accepts, in the words of the file.
    pub what: String,
    /// The reason in the words of its author.
    pub reason: String,
    /// The last day on which it holds, as `YYYY-MM-DD`; absent for one without an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}
