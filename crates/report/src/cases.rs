//! A report as the cases of a test run: the run itself, each checker that found nothing to fail for, each finding.

use crate::fail_on::FailOn;
use crate::model::Report;
use crate::text::{self, clean};
use guardrail_finding::Finding;

/// A case and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// The driver, and the checker where there is one.
    pub class: String,
    pub name: String,
    pub end: End,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Passed,
    /// A finding that does not make a run fail, and why.
    Skipped(String),
    /// A finding: its kind, its message and all of it as text.
    Failed {
        kind: String,
        message: String,
        text: String,
    },
    /// The run did not complete: its outcome, and the details.
    Broken {
        outcome: String,
        detail: String,
    },
}

/// The cases of a report, in which the findings that count fail.
pub(crate) fn of(report: &Report, fail_on: &FailOn) -> Vec<Case> {
    let driver = clean(&report.driver);
    let run = match report.run.outcome.as_str() {
        "completed" => End::Passed,
        outcome => End::Broken {
            outcome: clean(outcome),
            detail: report
                .run
                .detail
                .iter()
                .flat_map(|text| text.lines())
                .map(clean)
                .collect::<Vec<_>>()
                .join("\n"),
        },
    };
    let mut cases = vec![Case { class: driver.clone(), name: "run".to_owned(), end: run }];
    // A tool may have options: `dmacheck:line=64`.
    let fails = |tool: &String| {
        let checker = tool.split(':').next().unwrap_or_default();
        report.findings.iter().any(|finding| finding.checker == checker && fail_on.fails(finding))
    };
    let silent = report.tools.iter().filter(|tool| !fails(tool));
    cases.extend(silent.map(|tool| Case {
        class: format!("{driver}.{}", clean(tool)),
        name: "nothing to fail for".to_owned(),
        end: End::Passed,
    }));
    cases.extend(report.findings.iter().map(|finding| Case {
        class: format!("{}.{}", clean(&finding.module), clean(&finding.checker)),
        name: clean(&format!("{} in {} ({})", finding.kind, finding.function, finding.id)),
        end: end(finding, fail_on),
    }));
    cases
}

fn end(finding: &Finding, fail_on: &FailOn) -> End {
    if fail_on.fails(finding) {
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = text::finding(finding, &mut text);
        return End::Failed {
            kind: clean(&finding.kind),
            message: clean(&finding.message),
            text: String::from_utf8_lossy(&text).into_owned(),
        };
    }
    let why = match (&finding.suppressed, finding.baseline) {
        (Some(by), _) => format!("accepted: {}", by.reason),
        (None, Some(guardrail_finding::BaselineState::Unchanged)) => "known".to_owned(),
        _ => format!("{}: {}", finding.severity.word(), finding.message),
    };
    End::Skipped(clean(&why))
}
