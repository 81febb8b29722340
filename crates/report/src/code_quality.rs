//! The report as Code Quality JSON, for the merge requests of GitLab: one array, with an object for each finding that is not
//! accepted.

use crate::model::Report;
use crate::text::clean;
use guardrail_finding::{Finding, Severity, kinds};
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Writes the report. Files below `root`, an absolute path, have paths from there, as GitLab needs them.
pub fn write(report: &Report, root: Option<&Path>, out: &mut dyn Write) -> io::Result<()> {
    let findings = report.findings.iter().filter(|finding| finding.suppressed.is_none());
    let all: Vec<Value> = findings.map(|finding| issue(finding, root)).collect();
    serde_json::to_writer_pretty(&mut *out, &all)?;
    out.write_all(b"\n")
}

fn issue(finding: &Finding, root: Option<&Path>) -> Value {
    let (path, line) = match &finding.location {
        Some(at) => (below(&at.file, root), at.line.max(1)),
        // GitLab drops an issue without a place.
        None => (format!("{}.ko", finding.module), 1),
    };
    let what = kinds::find(&finding.kind).map_or(finding.kind.as_str(), |kind| kind.short);
    json!({
        "description": clean(&format!("{what} in {}: {}", finding.function, finding.message)),
        "check_name": clean(&finding.kind),
        "fingerprint": clean(&finding.id),
        "severity": severity(finding),
        "location": { "path": clean(&path), "lines": { "begin": line } },
    })
}

/// The path of a file as seen from the root, without a leading `./`.
fn below(file: &str, root: Option<&Path>) -> String {
    let path = Path::new(file);
    let path = root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path);
    path.strip_prefix("./").unwrap_or(path).display().to_string()
}

fn severity(finding: &Finding) -> &'static str {
    match finding.severity {
        Severity::Error if kinds::endangers_memory(&finding.kind) => "critical",
        Severity::Error => "major",
        Severity::Warning => "minor",
        Severity::Note => "info",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::{Location, Suppressed};

    #[test]
    fn each_finding_that_is_not_accepted_is_an_issue_at_a_path_from_the_root() {
        let leak = Finding {
            id: "a1".into(),
            kind: "leak".into(),
            severity: Severity::Warning,
            module: "drv".into(),
            function: "probe".into(),
            message: "never\u{1b} freed".into(),
            location: Some(Location { file: "/src/drv/main.c".into(), line: 0 }),
            ..Finding::default()
        };
        let accepted = Finding { suppressed: Some(Suppressed::default()), ..leak.clone() };
        let nowhere = Finding {
            location: None,
            kind: "use-after-free".into(),
            severity: Severity::Error,
            ..leak.clone()
        };
        let report = Report { findings: vec![leak, accepted, nowhere], ..Report::default() };
        let mut bytes = Vec::new();
        write(&report, Some(Path::new("/src")), &mut bytes).unwrap();
        let all: Value = serde_json::from_slice(&bytes).unwrap();
        let text = all[0]["description"].as_str().unwrap();
        assert!(text.ends_with(" in probe: never? freed"), "{text}");
        assert_eq!(all[0]["location"], json!({ "path": "drv/main.c", "lines": { "begin": 1 } }));
        assert_eq!((&all[0]["severity"], &all[1]["severity"]), (&json!("minor"), &json!("critical")));
        assert_eq!((&all[1]["location"]["path"], all.as_array().unwrap().len()), (&json!("drv.ko"), 2));
    }

    #[test]
    fn a_file_elsewhere_keeps_its_path() {
        let root = Some(Path::new("/src"));
        assert_eq!(
            ["/srcs/a.c", "./a.c", "drivers/a.c"].map(|file| below(file, root)),
            ["/srcs/a.c", "a.c", "drivers/a.c"]
        );
    }
}
