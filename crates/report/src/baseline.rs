//! The baseline: a file with the findings of a run that are known. One finding a line, sorted, so that a
//! change of one finding changes one line.

use crate::json::message;
use crate::list::FindingList;
use crate::marks::KnownFinding;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// Name and version of the format.
pub const SCHEMA: &str = "guardrail-baseline/2";
/// The most digits of a fingerprint.
pub(crate) const MAX_FINGERPRINT: usize = 64;

/// The file without its findings.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// The file as it is read.
#[derive(Deserialize)]
struct File {
    driver: String,
    kernel: String,
    #[serde(default)]
    tools: Vec<String>,
    findings: Vec<Row>,
}

/// A finding in the file.
#[derive(Deserialize)]
struct Row {
    #[serde(deserialize_with = "fingerprint")]
    id: String,
    checker: String,
    kind: String,
    #[serde(default)]
    severity: guardrail_finding::Severity,
    #[serde(default)]
    module: String,
    #[serde(default)]
    function: String,
}

/// Whether a text can be a fingerprint.
pub(crate) fn is_fingerprint(text: &str) -> bool {
    (1..=MAX_FINGERPRINT).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn fingerprint<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if is_fingerprint(&text) {
        return Ok(text);
    }
    let text: String = text.chars().take(MAX_FINGERPRINT).collect();
    Err(serde::de::Error::custom(format!("{text:?} is no fingerprint, which has hexadecimal digits only")))
}

/// Parses a baseline. An error is the rest of a sentence that begins with the file's name.
pub fn parse(bytes: &[u8]) -> Result<FindingList, String> {
    const REMEDY: &str = "a baseline of 'guardrail check --write-baseline' was expected";
    let wrong =
        |error: serde_json::Error| format!("line {}: {}; {REMEDY}", error.line().max(1), message(&error));
    let head: Head = serde_json::from_slice(bytes).map_err(wrong)?;
    if head.schema == crate::SCHEMA {
        return Err("it is a report and no baseline; name it with --against".to_owned());
    }
    match head.schema.split_once('/') {
        _ if head.schema == SCHEMA => {}
        Some(("guardrail-baseline", "1")) => {
            return Err(format!(
                "it has the schema {:?}, whose fingerprints no finding has any more; write it again with \
                 --write-baseline",
                head.schema
            ));
        }
        Some(("guardrail-baseline", _)) => {
            return Err(format!("it has the schema {:?}, but this version reads {SCHEMA:?}", head.schema));
        }
        _ => return Err(format!("it has the schema {:?}; {REMEDY}", head.schema)),
    }
    let file: File = serde_json::from_slice(bytes).map_err(wrong)?;
    let mut findings: BTreeMap<String, KnownFinding> = BTreeMap::new();
    for Row { id, checker, kind, severity, module, function } in file.findings {
        let known =
            KnownFinding { id: id.clone(), checker, kind, severity, module, function, suppressed: false };
        findings.insert(id, known);
    }
    let findings = findings.into_values().collect();
    Ok(FindingList { driver: file.driver, kernel: file.kernel, tools: file.tools, completed: true, findings })
}

/// The baseline of a run. Suppressed findings are left out. Of an earlier baseline, those findings stay that
/// the run could not find.
pub fn of(run: &FindingList, earlier: Option<&FindingList>) -> FindingList {
    let mut findings: Vec<KnownFinding> =
        run.findings.iter().filter(|finding| !finding.suppressed).cloned().collect();
    let is_decided = |finding: &KnownFinding| {
        run.could_find(finding) || run.findings.iter().any(|now| now.id == finding.id)
    };
    findings.extend(earlier.into_iter().flat_map(|list| &list.findings).filter(|f| !is_decided(f)).cloned());
    FindingList { findings, ..run.clone() }
}

/// The text of a baseline.
pub fn write(list: &FindingList) -> Result<String, serde_json::Error> {
    let mut findings: Vec<&KnownFinding> = list.findings.iter().collect();
    findings.sort_by_key(|finding| {
        let KnownFinding { module, function, kind, checker, id, .. } = finding;
        (module, function, kind, checker, id)
    });
    let rows: Result<Vec<String>, _> = findings.into_iter().map(serde_json::to_string).collect();
    let rows = rows?;
    let rows: String = if rows.is_empty() { String::new() } else { rows.join(",\n") + "\n" };
    Ok(format!(
        "{{\n\"schema\": {},\n\"driver\": {},\n\"kernel\": {},\n\"tools\": {},\n\"findings\": [\n{rows}]\n}}\n",
        serde_json::to_string(SCHEMA)?,
        serde_json::to_string(&list.driver)?,
        serde_json::to_string(&list.kernel)?,
        serde_json::to_string(&list.tools)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(id: &str, function: &str) -> KnownFinding {
        KnownFinding {
            id: id.into(),
            checker: "dmcheck".into(),
            kind: "leak".into(),
            module: "drv".into(),
            function: function.into(),
            ..KnownFinding::default()
        }
    }

    fn list(findings: Vec<KnownFinding>) -> FindingList {
        FindingList {
            driver: "drv".into(),
            kernel: "6.1".into(),
            tools: vec!["dmcheck".into()],
            completed: true,
            findings,
        }
    }

    #[test]
    fn one_finding_is_one_line_in_a_fixed_order() {
        let text =
            write(&list(vec![known("b2", "probe"), known("a1", "remove"), known("0c", "probe")])).unwrap();
        let row = |id: &str, function: &str| {
            format!(
                r#"{{"id":"{id}","checker":"dmcheck","kind":"leak","severity":"error","module":"drv","function":"{function}"}}"#
            )
        };
        let expected = format!(
            "{{\n\"schema\": \"guardrail-baseline/2\",\n\"driver\": \"drv\",\n\"kernel\": \"6.1\",\n\
             \"tools\": [\"dmcheck\"],\n\"findings\": [\n{},\n{},\n{}\n]\n}}\n",
            row("0c", "probe"),
            row("b2", "probe"),
            row("a1", "remove")
        );
        assert_eq!(text, expected);
        let read = parse(text.as_bytes()).unwrap();
        assert_eq!(write(&read).unwrap(), text);
        let empty = write(&list(vec![])).unwrap();
        assert_eq!(parse(empty.as_bytes()).unwrap(), list(vec![]));
    }

    #[test]
    fn a_new_baseline_keeps_what_the_run_could_not_find() {
        let earlier = list(vec![
            known("a1", "gone"),
            KnownFinding { checker: "drcheck".into(), ..known("b2", "race") },
        ]);
        let suppressed = KnownFinding { suppressed: true, ..known("d4", "accepted") };
        let run = list(vec![known("c3", "new"), suppressed]);
        let ids = |list: FindingList| list.findings.into_iter().map(|f| f.id).collect::<Vec<_>>();
        assert_eq!(ids(of(&run, Some(&earlier))), ["c3", "b2"]);
        let cut = FindingList { completed: false, ..run.clone() };
        assert_eq!(ids(of(&cut, Some(&earlier))), ["c3", "a1", "b2"]);
        assert_eq!(ids(of(&run, None)), ["c3"]);
    }

    #[test]
    fn faults_are_reported_with_line_and_what_was_expected() {
        let refused = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert!(refused("").starts_with("line 1: EOF"));
        assert!(
            refused("{\n\"schema\": 1}").starts_with("line 2: invalid type: integer `1`, expected a string")
        );
        assert_eq!(
            refused("{\"schema\": \"guardrail-baseline/3\", \"findings\": 3}"),
            "it has the schema \"guardrail-baseline/3\", but this version reads \"guardrail-baseline/2\""
        );
        assert_eq!(
            refused("{\"schema\": \"guardrail-baseline/1\", \"findings\": []}"),
            "it has the schema \"guardrail-baseline/1\", whose fingerprints no finding has any more; write it \
             again with --write-baseline"
        );
        assert!(refused("{\"schema\": \"guardrail/1\"}").contains("--against"));
        let text = write(&list(vec![known("a1", "f"), known("b2", "g")])).unwrap();
        assert!(refused(&text.replace("b2", "B..")).starts_with("line 8: \"B..\" is no fingerprint"));
        assert!(refused(&text.replace(",\"kind\":\"leak\"", "")).starts_with("line 7: missing field `kind`"));
        assert!(refused(&text.replace("\"driver\": \"drv\",\n", "")).contains("missing field `driver`"));
        assert!(refused(&"[".repeat(100_000)).starts_with("line 1: "));
    }
}
