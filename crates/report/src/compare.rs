//! Compares the findings of two runs.

use crate::list::FindingList;
use crate::marks::{Comparison, KnownFinding, Source};
use crate::model::Report;
use guardrail_finding::BaselineState;
use std::collections::BTreeSet;

/// Name and version of the format that `guardrail diff --format json` prints.
pub const SCHEMA: &str = "guardrail-diff/1";

/// Compares a run with an earlier one that `file` holds.
pub fn compare(earlier: &FindingList, now: &FindingList, file: &str, source: Source) -> Comparison {
    let ids = |list: &FindingList| -> BTreeSet<String> {
        list.findings.iter().map(|finding| finding.id.clone()).collect()
    };
    let (before, after) = (ids(earlier), ids(now));
    let of = |list: &FindingList, wanted: &dyn Fn(&KnownFinding) -> bool| -> Vec<KnownFinding> {
        list.findings.iter().filter(|finding| wanted(finding)).cloned().collect()
    };
    Comparison {
        against: file.to_owned(),
        source,
        kernel: earlier.kernel.clone(),
        new: of(now, &|finding| !before.contains(&finding.id) && !finding.suppressed),
        same: of(now, &|finding| before.contains(&finding.id)),
        gone: of(earlier, &|finding| !after.contains(&finding.id) && now.could_find(finding)),
        unknown: of(earlier, &|finding| !after.contains(&finding.id) && !now.could_find(finding)),
    }
}

/// Marks each finding of a report as known or new, and keeps the comparison in the report.
pub fn mark(report: &mut Report, earlier: &FindingList, file: &str, source: Source) {
    let comparison = compare(earlier, &FindingList::of(report), file, source);
    let known: BTreeSet<&str> = comparison.same.iter().map(|finding| finding.id.as_str()).collect();
    for finding in &mut report.findings {
        let state = match known.contains(finding.id.as_str()) {
            true => BaselineState::Unchanged,
            false => BaselineState::New,
        };
        finding.baseline = Some(state);
    }
    report.comparison = Some(comparison);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Run;
    use guardrail_finding::{Finding, Suppressed};

    fn finding(id: &str, checker: &str) -> Finding {
        Finding { id: id.into(), checker: checker.into(), ..Finding::default() }
    }

    fn report(findings: Vec<Finding>) -> Report {
        Report {
            tools: vec!["dmcheck".into(), "dmacheck:line=64".into()],
            run: Run { outcome: "completed".into(), ..Run::default() },
            findings,
            ..Report::default()
        }
    }

    fn ids(findings: &[KnownFinding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.id.as_str()).collect()
    }

    #[test]
    fn findings_are_new_gone_the_same_or_unknown() {
        let before = [finding("a", "dmcheck"), finding("b", "dmacheck"), finding("c", "drcheck")];
        let earlier = FindingList::of(&report(before.to_vec()));
        let mut now = report(vec![finding("n", "dmcheck"), finding("a", "dmcheck")]);
        mark(&mut now, &earlier, "old.json", Source::Report);
        let states: Vec<_> = now.findings.iter().map(|finding| finding.baseline).collect();
        assert_eq!(states, [Some(BaselineState::New), Some(BaselineState::Unchanged)]);
        let comparison = now.comparison.unwrap();
        assert_eq!((ids(&comparison.new), ids(&comparison.same)), (vec!["n"], vec!["a"]));
        // DRCheck did not run, so nothing is known of its finding.
        assert_eq!((ids(&comparison.gone), ids(&comparison.unknown)), (vec!["b"], vec!["c"]));
    }

    #[test]
    fn nothing_is_gone_after_a_run_that_did_not_complete() {
        let earlier = FindingList::of(&report(vec![finding("a", "dmcheck")]));
        let mut now = report(vec![]);
        now.run.outcome = "guest-panic".into();
        let comparison = compare(&earlier, &FindingList::of(&now), "x", Source::Baseline);
        assert_eq!((ids(&comparison.gone), ids(&comparison.unknown)), (vec![], vec!["a"]));
    }

    #[test]
    fn suppressed_findings_are_not_new() {
        let suppressed = Finding { suppressed: Some(Suppressed::default()), ..finding("a", "dmcheck") };
        let now = FindingList::of(&report(vec![suppressed]));
        let comparison = compare(&FindingList::default(), &now, "x", Source::Report);
        assert_eq!(comparison.new, []);
    }
}
