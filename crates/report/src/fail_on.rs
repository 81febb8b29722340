//! Which findings make a run fail.

use guardrail_finding::{BaselineState, Finding, Severity, kinds};
use std::str::FromStr;

/// The findings that make a run fail. Suppressed ones never do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// Errors and warnings of these kinds that are not known.
    Kinds(Vec<&'static str>),
}

impl FailOn {
    /// Each value that is one word, with one line for the help.
    pub const WORDS: [(FailOn, &'static str, &'static str); 5] = [
        (FailOn::Any, "any", "All findings, known ones and notes too"),
        (FailOn::New, "new", "Findings that are not known"),
        (FailOn::Error, "error", "Errors that are not known"),
        (FailOn::Warning, "warning", "Errors and warnings that are not known"),
        (FailOn::Never, "never", "None"),
    ];

    /// Whether a finding makes the run fail.
    pub fn counts(&self, finding: &Finding) -> bool {
        let new = finding.baseline != Some(BaselineState::Unchanged);
        finding.suppressed.is_none()
            && match self {
                FailOn::Any => true,
                FailOn::New => new,
                FailOn::Error => new && finding.severity == Severity::Error,
                FailOn::Warning => new && finding.severity != Severity::Note,
                FailOn::Never => false,
                FailOn::Kinds(names) => {
                    new && finding.severity != Severity::Note && names.contains(&finding.kind.as_str())
                }
            }
    }

    /// Whether a report shows the finding as a failure: it counts, or the gate cut the device off for it.
    pub fn fails(&self, finding: &Finding) -> bool {
        self.counts(finding) || finding.action.as_deref() == Some("contained")
    }
}

impl FromStr for FailOn {
    type Err = String;

    /// Reads one of the words, or kinds with commas between them. An error names the part that is neither.
    fn from_str(text: &str) -> Result<FailOn, String> {
        if let Some((word, ..)) = FailOn::WORDS.into_iter().find(|(_, word, _)| *word == text) {
            return Ok(word);
        }
        let kind = |name: &str| {
            kinds::find(name).map(|kind| kind.name).ok_or_else(|| {
                format!("'{name}' is neither a kind of finding nor one of any, new, error, warning and never")
            })
        };
        text.split(',').map(kind).collect::<Result<_, _>>().map(FailOn::Kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::Suppressed;

    #[test]
    fn known_findings_count_for_any_only_and_suppressed_ones_never() {
        let counts = |finding: &Finding| FailOn::WORDS.map(|(on, ..)| on.counts(finding));
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
    #[test]
    fn kinds_count_unless_they_are_known_or_notes() {
        let on = FailOn::from_str("leak,data-race").unwrap();
        let leak = Finding { kind: "leak".into(), severity: Severity::Warning, ..Finding::default() };
        assert!(on.counts(&leak));
        assert!(!on.counts(&Finding { kind: "use-after-free".into(), ..leak.clone() }));
        let note = Finding { severity: Severity::Note, ..leak.clone() };
        let known = Finding { baseline: Some(BaselineState::Unchanged), ..leak.clone() };
        let suppressed = Finding { suppressed: Some(Suppressed::default()), ..leak };
        assert!(![note, known, suppressed].iter().any(|finding| on.counts(finding)));
    }

    #[test]
    fn a_word_that_is_no_kind_is_named() {
        for (on, word, _) in FailOn::WORDS {
            assert_eq!(word.parse(), Ok(on));
        }
        for (text, bad) in
            [("leek", "leek"), ("leak,error", "error"), ("leak,", ""), ("", ""), ("Leak", "Leak")]
        {
            let why = FailOn::from_str(text).unwrap_err();
            assert!(
                why.starts_with(&format!("'{bad}' is neither a kind of finding nor one of any,")),
                "{why}"
            );
        }
    }

    #[test]
    fn a_contained_finding_fails_however_it_counts() {
        let contained = Finding { action: Some("contained".into()), ..Finding::default() };
        assert!(FailOn::Never.fails(&contained) && !FailOn::Never.counts(&contained));
        let passed = Finding { action: Some("passed: a note".into()), ..Finding::default() };
        assert!(!FailOn::Never.fails(&passed) && FailOn::Error.fails(&passed));
    }
}
