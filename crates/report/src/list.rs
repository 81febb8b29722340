//! The findings of a report in short, read from the files that Guardrail writes: JSON or SARIF.
//!
//! Any bytes give a list or one sentence.

use crate::json::{self, message};
use crate::marks::KnownFinding;
use crate::model::{Report, SCHEMA};
use guardrail_finding::{KERNEL_CHECKER, Severity};
use serde_json::Value;
use std::collections::BTreeSet;

/// The largest report or baseline that is read, in bytes.
pub const MAX_FILE: u64 = 64 << 20;

/// The findings of one run in short.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingList {
    /// The drivers, as `struct module` spells them, separated by commas.
    pub driver: String,
    /// Release of the kernel.
    pub kernel: String,
    /// The tools that ran.
    pub tools: Vec<String>,
    /// True where the run completed, so that what it did not find was not there.
    pub completed: bool,
    /// The findings, each fingerprint once.
    pub findings: Vec<KnownFinding>,
}

impl FindingList {
    /// The list of a report.
    pub fn of(report: &Report) -> FindingList {
        FindingList {
            driver: report.driver.clone(),
            kernel: report.kernel.clone(),
            tools: report.tools.clone(),
            completed: report.run.outcome == "completed",
            findings: each_once(report.findings.iter().map(KnownFinding::from)),
        }
    }

    /// Parses a report. An error is the rest of a sentence that begins with the file's name.
    pub fn parse(bytes: &[u8]) -> Result<FindingList, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            format!("line {}: it is not JSON: {}; {REMEDY}", error.line(), message(&error))
        })?;
        match (value["schema"].as_str(), value["version"].as_str(), value["runs"].as_array()) {
            (Some(SCHEMA), ..) => json::read(bytes).map(|report| FindingList::of(&report)),
            (Some(schema), ..) => Err(other_schema(schema)),
            (None, Some("2.1.0"), Some(runs)) => of_sarif(runs),
            (None, Some(version), Some(_)) => Err(format!("it is SARIF {version:?}, but only 2.1.0 is read")),
            _ => Err(format!("it is neither a report nor SARIF; {REMEDY}")),
        }
    }

    /// Whether the run would have found this if it was there: it completed, and the checker ran.
    pub fn could_find(&self, finding: &KnownFinding) -> bool {
        self.completed && ran(&self.tools, &finding.checker)
    }

    /// Whether two runs had the same drivers, in any order.
    pub fn is_of(&self, driver: &str) -> bool {
        let names = |text: &str| -> BTreeSet<String> {
            text.split(',').map(|name| name.trim().replace('-', "_")).collect()
        };
        names(&self.driver) == names(driver)
    }
}

/// Whether a checker was among the tools, which may have options: `dmacheck:line=64`.
pub(crate) fn ran(tools: &[String], checker: &str) -> bool {
    checker == KERNEL_CHECKER || tools.iter().any(|tool| tool.split(':').next() == Some(checker))
}

/// What to do where a file is no report.
const REMEDY: &str = "a report of 'guardrail check --format json' or '--format sarif' was expected";

/// Why a file of another schema is no report.
fn other_schema(schema: &str) -> String {
    if schema.starts_with("guardrail-survey") {
        return "it is of a survey; compare surveys with 'guardrail survey --against DIR'".to_owned();
    }
    match schema.split_once('/') {
        Some(("guardrail", _)) => {
            format!("it has the schema {schema:?}, but this version reads {SCHEMA:?}")
        }
        _ => format!("it has the schema {schema:?}; {REMEDY}"),
    }
}

fn each_once(all: impl Iterator<Item = KnownFinding>) -> Vec<KnownFinding> {
    let mut seen = BTreeSet::new();
    all.filter(|finding| seen.insert(finding.id.clone())).collect()
}

/// The list of our own SARIF. Results of other tools have no fingerprint of ours.
fn of_sarif(runs: &[Value]) -> Result<FindingList, String> {
    let [run] = runs else { return Err(format!("it has {} runs, but one was expected", runs.len())) };
    let about = &run["invocations"][0]["properties"];
    let (Some("guardrail"), Some(driver)) =
        (run["tool"]["driver"]["name"].as_str(), about["driver"].as_str())
    else {
        return Err("it is SARIF of another tool, whose findings have no fingerprint of Guardrail".to_owned());
    };
    let results = run["results"].as_array().map_or(&[][..], Vec::as_slice);
    let mut findings = Vec::new();
    for (number, result) in results.iter().enumerate() {
        // What is absent was copied from an earlier run.
        if result["baselineState"] != "absent" {
            findings.push(of_result(result).ok_or_else(|| {
                format!("result {} of the run has no fingerprint, kind or place", number + 1)
            })?);
        }
    }
    Ok(FindingList {
        driver: driver.to_owned(),
        kernel: about["kernel"].as_str().unwrap_or_default().to_owned(),
        tools: about["tools"].as_array().into_iter().flatten().filter_map(text).collect(),
        completed: about["run"]["outcome"] == "completed",
        findings: each_once(findings.into_iter()),
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn of_result(result: &Value) -> Option<KnownFinding> {
    let place = &result["locations"][0]["logicalLocations"][0];
    let module = place["fullyQualifiedName"].as_str().and_then(|name| name.split_once("::"));
    Some(KnownFinding {
        id: text(&result["partialFingerprints"]["guardrail/1"])?,
        checker: text(&result["properties"]["checker"])?,
        kind: text(&result["ruleId"])?,
        severity: match result["level"].as_str() {
            Some("warning") => Severity::Warning,
            Some("note" | "none") => Severity::Note,
            _ => Severity::Error,
        },
        module: module.map_or(String::new(), |(module, _)| module.to_owned()),
        function: text(&place["name"])?,
        suppressed: result["suppressions"].as_array().is_some_and(|all| !all.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Run;
    use guardrail_finding::{Finding, Suppressed};

    fn report() -> Report {
        let finding = |id: &str, suppressed| Finding {
            id: id.into(),
            checker: "dmcheck".into(),
            kind: "leak".into(),
            severity: Severity::Warning,
            module: "drv".into(),
            function: "probe".into(),
            suppressed,
            ..Finding::default()
        };
        Report {
            schema: SCHEMA.into(),
            driver: "drv".into(),
            kernel: "6.1".into(),
            tools: vec!["dmcheck".into()],
            run: Run { outcome: "completed".into(), ..Run::default() },
            findings: vec![
                finding("a1", None),
                finding("b2", Some(Suppressed::default())),
                finding("a1", None),
            ],
            ..Report::default()
        }
    }

    #[test]
    fn json_and_sarif_give_the_list_of_the_report() {
        let list = FindingList::of(&report());
        assert_eq!(list.findings.len(), 2);
        assert!(!list.findings[0].suppressed && list.findings[1].suppressed);
        for write in [crate::json::write, crate::sarif::write] {
            let mut bytes = Vec::new();
            write(&report(), &mut bytes).unwrap();
            assert_eq!(FindingList::parse(&bytes).unwrap(), list);
        }
    }

    #[test]
    fn drivers_may_be_in_any_order_and_spelling() {
        let list = FindingList { driver: "uaf_timer, e1000".into(), ..FindingList::default() };
        assert!(list.is_of("e1000,uaf-timer") && !list.is_of("e1000"));
    }

    #[test]
    fn what_is_no_report_is_refused_in_one_sentence() {
        let refused = |text: &str| FindingList::parse(text.as_bytes()).unwrap_err();
        assert!(refused("{\n\"a\"").starts_with("line 2: it is not JSON: EOF"), "{}", refused("{\n\"a\""));
        assert!(refused(&"[".repeat(100_000)).contains("recursion limit"));
        assert!(refused("[1]").starts_with("it is neither a report nor SARIF"));
        assert_eq!(
            refused(r#"{"schema":"guardrail/2"}"#),
            "it has the schema \"guardrail/2\", but this version reads \"guardrail/1\""
        );
        assert!(refused(r#"{"schema":"guardrail-survey/1"}"#).contains("survey --against"));
        assert!(refused("{\"schema\":\"guardrail/1\",\n\"driver\":3}").starts_with("line 2: invalid type"));
        assert!(refused(r#"{"version":"2.0.0","runs":[]}"#).contains("only 2.1.0"));
        assert!(refused(r#"{"version":"2.1.0","runs":[]}"#).starts_with("it has 0 runs"));
        let other = r#"{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"CodeQL"}},"results":[]}]}"#;
        assert!(refused(other).starts_with("it is SARIF of another tool"));
        let own = r#"{"version":"2.1.0","runs":[{"tool":{"driver":{"name":"guardrail"}},
            "invocations":[{"properties":{"driver":"drv"}}],"results":[{"ruleId":"leak"}]}]}"#;
        assert!(refused(own).starts_with("result 1 of the run has no fingerprint"));
    }
}
