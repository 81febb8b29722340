//! Which findings make a run fail.

use guardrail_finding::{BaselineState, Finding, Severity};

/// The findings that make a run fail. Suppressed ones never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailOn {
    /// All findings, known ones too.
    Any,
    /// Findings that are not known.
    New,
    /// Errors that are not known.
    Error,
    /// Errors and warnings that are not known.
    #[default]
    Warning,
    /// No finding at all.
    Never,
}

impl FailOn {
    /// Whether a finding makes the run fail.
    pub fn counts(self, finding: &Finding) -> bool {
        let new = finding.baseline != Some(BaselineState::Unchanged);
        finding.suppressed.is_none()
            && match self {
                FailOn::Any => true,
                FailOn::New => new,
                FailOn::Error => new && finding.severity == Severity::Error,
                FailOn::Warning => new && finding.severity != Severity::Note,
                FailOn::Never => false,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::Suppressed;

    #[test]
    fn known_findings_count_for_any_only_and_suppressed_ones_never() {
        let counts = |finding: &Finding| {
            [FailOn::Any, FailOn::New, FailOn::Error, FailOn::Warning, FailOn::Never]
                .map(|on| on.counts(finding))
        };
        let new = Finding { baseline: Some(BaselineState::New), ..Finding::default() };
        assert_eq!(counts(&Finding::default()), [true, true, true, true, false]);
        assert_eq!(counts(&new), [true, true, true, true, false]);
        let of = |severity| Finding { severity, ..new.clone() };
        assert_eq!(counts(&of(Severity::Warning)), [true, true, false, true, false]);
        assert_eq!(counts(&of(Severity::Note)), [true, true, false, false, false]);
        let known = Finding { baseline: Some(BaselineState::Unchanged), ..new.clone() };
        assert_eq!(counts(&known), [true, false, false, false, false]);
        let suppressed = Finding { suppressed: Some(Suppressed::default()), ..new };
        assert_eq!(counts(&suppressed), [false; 5]);
    }
}
