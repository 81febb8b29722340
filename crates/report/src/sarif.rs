//! The report as SARIF 2.1.0, for code-scanning tools.
//!
//! It has what GitHub and GitLab ask for beyond the schema: a line for each result, a fingerprint by the name that GitHub
//! reads, help for each rule, and no more results than they take.

use crate::marks::{Idle, KnownFinding};
use crate::model::Report;
use crate::text::clean;
use guardrail_finding::kinds;
use guardrail_finding::{Finding, Frame, Location};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

const SCHEMA_URI: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The most results of a run that GitHub takes.
const MAX_RESULTS: usize = 25_000;
/// The name that stands for the root of the sources, in all tools.
const ROOT: &str = "%SRCROOT%";
/// The fingerprint that `guardrail diff` reads.
const FINGERPRINT: &str = "guardrail/1";
/// The fingerprint that GitHub reads.
const LINE_FINGERPRINT: &str = "primaryLocationLineHash";

/// Writes the report as a SARIF log with one run.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    write_in(report, None, out)
}

/// Writes the report as a SARIF log with one run, in which files below `root` have paths from there. `root` is an absolute
/// path.
pub fn write_in(report: &Report, root: Option<&Path>, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &log(report, root))?;
    out.write_all(b"\n")
}

fn log(report: &Report, root: Option<&Path>) -> Value {
    let gone = report.comparison.as_ref().map_or(&[][..], |comparison| &comparison.gone);
    let used = report.findings.iter().map(|finding| finding.kind.as_str());
    let used: BTreeSet<&str> = used.chain(gone.iter().map(|finding| finding.kind.as_str())).collect();
    let names: Vec<&str> = used.into_iter().collect();
    let rules: Vec<Value> = names.iter().map(|name| rule(name)).collect();
    let found = worst(&report.findings).into_iter().map(|finding| result(finding, &names));
    let found = found.chain(gone.iter().map(|finding| absent(finding, &names)));
    let results: Vec<Value> = found.take(MAX_RESULTS).collect();
    let mut log = json!({
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "guardrail",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "automationDetails": { "id": category(report) },
            "invocations": [{
                "executionSuccessful": report.run.outcome == "completed",
                "properties": {
                    "driver": report.driver, "kernel": report.kernel, "tools": report.tools, "mode": report.mode,
                    "run": report.run,
                },
            }],
            "columnKind": "utf16CodeUnits",
            "results": results,
        }],
    });
    let run = &mut log["runs"][0];
    let said = execution(report, gone.len());
    if !said.is_empty() {
        run["invocations"][0]["toolExecutionNotifications"] = said.into();
    }
    if let Some(did) = &report.suppressions {
        let unused = did.unused.iter().map(|one| notification(one, "the suppression accepts no finding"));
        let expired = did.expired.iter().map(|one| notification(one, "the suppression has expired"));
        let all: Vec<Value> = unused.chain(expired).collect();
        run["invocations"][0]["toolConfigurationNotifications"] = all.into();
    }
    if let Some(root) = root.and_then(Path::to_str) {
        let folder = format!("{}/", root.trim_end_matches('/'));
        run["originalUriBaseIds"] = json!({ ROOT: { "uri": uri(&folder) } });
        relate(&mut log, &uri(&folder));
    }
    log
}

/// What the results of other drivers and kernels are apart by: a run replaces the one before it of the same category.
fn category(report: &Report) -> String {
    let numbers: Vec<&str> = report.kernel.split(['.', '-', '+']).take(2).collect();
    format!("guardrail/{}/{}/", clean(&report.driver), clean(&numbers.join(".")))
}

/// The findings, or the worst of them where there are too many for one run; in the order of the report.
fn worst(findings: &[Finding]) -> Vec<&Finding> {
    let mut kept: Vec<(usize, &Finding)> = findings.iter().enumerate().collect();
    if kept.len() > MAX_RESULTS {
        kept.sort_by_key(|(number, finding)| (finding.suppressed.is_some(), finding.severity, *number));
        kept.truncate(MAX_RESULTS);
        kept.sort_by_key(|(number, _)| *number);
    }
    kept.into_iter().map(|(_, finding)| finding).collect()
}

/// What a reader must know of the run itself: that it did not complete, or that results are left out.
fn execution(report: &Report, gone: usize) -> Vec<Value> {
    let mut all = Vec::new();
    if report.run.outcome != "completed" {
        let outcome = clean(&report.run.outcome);
        let detail = report.run.detail.iter().map(|detail| format!(": {}", plain(detail)));
        all.push(json!({
            "level": "error",
            "message": { "text": format!("the run did not complete: {outcome}{}", detail.collect::<String>()) },
        }));
    }
    let left_out = (report.findings.len() + gone).saturating_sub(MAX_RESULTS);
    if left_out > 0 {
        all.push(json!({
            "level": "warning",
            "message": { "text": format!("{left_out} results are left out; a run has at most {MAX_RESULTS}") },
        }));
    }
    all
}

/// Text of a run or a finding as the text of a message. What would be a link or a place for an argument there is not one.
fn plain(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(clean).collect();
    let text = lines.join("\n").replace("](", "] (");
    let mut plain = String::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        plain.push(letter);
        if letter == '{' && letters.peek().is_some_and(char::is_ascii_digit) {
            plain.push(' ');
        }
    }
    if plain.is_empty() { "?".to_owned() } else { plain }
}

/// Gives every file below a folder its path from there.
fn relate(value: &mut Value, folder: &str) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| relate(one, folder)),
        Value::Object(all) => {
            for (name, one) in all.iter_mut() {
                let below = one["uri"].as_str().and_then(|uri| uri.strip_prefix(folder)).map(str::to_owned);
                match below.filter(|below| name == "artifactLocation" && !below.is_empty()) {
                    Some(below) => *one = json!({ "uri": below, "uriBaseId": ROOT }),
                    None => relate(one, folder),
                }
            }
        }
        _ => {}
    }
}

/// A suppression that does nothing.
fn notification(idle: &Idle, why: &str) -> Value {
    json!({
        "level": "warning",
        "message": { "text": plain(&format!("{why}: {}", idle.what)) },
        "locations": [{ "physicalLocation": {
            "artifactLocation": { "uri": uri(&idle.file) },
            "region": { "startLine": idle.line.max(1) },
        }}],
    })
}

/// A finding of the earlier run that is gone. Its kind `pass` keeps readers that do not know about baselines
/// from counting it.
fn absent(finding: &KnownFinding, names: &[&str]) -> Value {
    json!({
        "ruleId": finding.kind,
        "ruleIndex": names.iter().position(|name| *name == finding.kind),
        "kind": "pass",
        "level": "none",
        "baselineState": "absent",
        "message": { "text": "an earlier run had this finding, and this run does not" },
        "locations": [placed(None, &finding.function, &finding.module, 0)],
        "partialFingerprints": fingerprints(&finding.id),
        "properties": { "checker": finding.checker },
    })
}

fn rule(name: &str) -> Value {
    match kinds::find(name) {
        Some(kind) => json!({
            "id": name,
            "shortDescription": { "text": kind.short },
            "fullDescription": { "text": kind.help },
            "help": { "text": kind.help },
        }),
        None => {
            let text = json!({ "text": plain(name) });
            json!({ "id": name, "shortDescription": text, "fullDescription": text, "help": text })
        }
    }
}

fn fingerprints(id: &str) -> Value {
    json!({ FINGERPRINT: id, LINE_FINGERPRINT: format!("{id}:1") })
}

fn result(finding: &Finding, names: &[&str]) -> Value {
    let mut result = json!({
        "ruleId": finding.kind,
        "ruleIndex": names.iter().position(|name| *name == finding.kind),
        "level": finding.severity.word(),
        "message": { "text": plain(&finding.message) },
        "locations": [placed(
            finding.location.as_ref(), &finding.function, &finding.module, finding.offset,
        )],
        "partialFingerprints": fingerprints(&finding.id),
        "occurrenceCount": finding.count.max(1),
        "properties": {
            "checker": finding.checker, "context": finding.context, "event": finding.event,
            "access": finding.access, "origin": finding.origin, "triage": finding.triage, "notes": finding.notes,
            "action": finding.action,
        },
    });
    if let Some(state) = finding.baseline {
        result["baselineState"] = state.word().into();
    }
    if let Some(by) = &finding.suppressed {
        result["suppressions"] = json!([{
            "kind": "external", "status": "accepted", "justification": plain(&by.reason),
            "location": { "physicalLocation": {
                "artifactLocation": { "uri": uri(&by.file) },
                "region": { "startLine": by.line.max(1) },
            }},
        }]);
    }
    if let Some(other) = &finding.other {
        let first = other.stack.first().cloned().unwrap_or_default();
        let module = first.module.as_deref().unwrap_or_default();
        let mut related = placed(first.source(), &first.function, module, first.offset);
        related["message"] = json!({ "text": "the other access" });
        result["relatedLocations"] = json!([related]);
        result["properties"]["other"] = json!({ "context": other.context, "access": other.access });
    }
    let mut stacks = Vec::new();
    let mut add = |text: &str, frames: &[Frame]| {
        if !frames.is_empty() {
            stacks.push(stack(text, frames));
        }
    };
    add("call stack", &finding.stack);
    if let Some(other) = &finding.other {
        add("other access", &other.stack);
    }
    for related in &finding.related {
        add(&related.what, &related.stack);
    }
    if let Some(object) = &finding.object {
        result["properties"]["object"] = json!({
            "address": object.address, "size": object.size, "class": object.class, "name": object.name,
            "offset": object.offset,
        });
        add("allocated by", object.allocated.as_ref().map_or(&[], |at| &at.stack));
        add("freed by", object.freed.as_ref().map_or(&[], |at| &at.stack));
    }
    if let Some(origin) = &finding.origin {
        add("origin of the undefined value", &origin.stack);
    }
    result["stacks"] = Value::Array(stacks);
    result
}

fn stack(text: &str, frames: &[Frame]) -> Value {
    let frames: Vec<Value> = frames.iter().flat_map(expanded).collect();
    json!({ "message": { "text": plain(text) }, "frames": frames })
}

/// A frame and, before it, the functions inlined there.
fn expanded(frame: &Frame) -> Vec<Value> {
    let module = frame.module.as_deref();
    let inlined = frame.inlined.iter().map(|one| {
        let mut place = location(one.location.as_ref(), &one.function, module, 0);
        place["logicalLocations"][0]["properties"] = json!({ "inlined": true });
        place
    });
    let mut own = location(frame.location.as_ref(), &frame.function, module, frame.offset);
    if frame.switched {
        own["logicalLocations"][0]["properties"]["switched"] = true.into();
    }
    inlined.chain([own]).map(|place| json!({ "location": place })).collect()
}

/// The location of a result, which always names a file and a line: readers drop results without them. Where the source
/// line is unknown, it is the first one of the module's file.
fn placed(source: Option<&Location>, function: &str, module: &str, offset: u64) -> Value {
    let mut value = location(source, function, Some(module), offset);
    if source.is_none() {
        let file = if module.is_empty() { "vmlinux".to_owned() } else { format!("{module}.ko") };
        value["physicalLocation"] =
            json!({ "artifactLocation": { "uri": uri(&file) }, "region": { "startLine": 1 } });
    }
    value
}

/// Makes a SARIF location. Where the source line is unknown, it has only function and offset.
fn location(source: Option<&Location>, function: &str, module: Option<&str>, offset: u64) -> Value {
    let mut value = json!({
        "logicalLocations": [{
            "name": function,
            "fullyQualifiedName": module.filter(|module| !module.is_empty())
                .map_or_else(|| function.to_owned(), |module| format!("{module}::{function}")),
            "kind": "function",
            "properties": { "offset": offset },
        }],
    });
    if let Some(source) = source {
        value["physicalLocation"] = json!({
            "artifactLocation": { "uri": uri(&source.file) },
            "region": { "startLine": source.line.max(1) },
        });
    }
    value
}

/// A path as a URI reference, with characters percent-encoded that URIs do not allow.
fn uri(path: &str) -> String {
    let absolute = path.starts_with('/');
    let mut uri = String::from(if absolute { "file://" } else { "" });
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~+".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::Severity;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("zoo/a b.c"), "zoo/a%20b.c");
        assert_eq!(uri("/src/x.c"), "file:///src/x.c");
    }
    fn log_of(report: &Report, root: Option<&str>) -> Value {
        let mut bytes = Vec::new();
        write_in(report, root.map(Path::new), &mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn files_below_the_root_have_paths_from_there() {
        let at = |file: &str| Finding {
            location: Some(Location { file: file.into(), line: 7 }),
            ..Finding::default()
        };
        let files = ["/src/my drv/a.c", "/src/my drv", "/src/my drvs/a.c", "include/a.h"];
        let report = Report { findings: files.map(at).into(), ..Report::default() };
        for root in ["/src/my drv", "/src/my drv/"] {
            let run = &log_of(&report, Some(root))["runs"][0];
            let place = |number: usize| {
                run["results"][number]["locations"][0]["physicalLocation"]["artifactLocation"].clone()
            };
            assert_eq!(run["originalUriBaseIds"][ROOT]["uri"], "file:///src/my%20drv/");
            assert_eq!(place(0), json!({ "uri": "a.c", "uriBaseId": ROOT }));
            assert_eq!(place(1), json!({ "uri": "file:///src/my%20drv" }));
            assert_eq!(place(2), json!({ "uri": "file:///src/my%20drvs/a.c" }));
            assert_eq!(place(3), json!({ "uri": "include/a.h" }));
        }
        assert!(log_of(&report, None)["runs"][0].get("originalUriBaseIds").is_none());
    }

    #[test]
    fn of_too_many_results_the_worst_are_written() {
        let of = |severity| Finding { severity, ..Finding::default() };
        let mut findings = vec![of(Severity::Note); MAX_RESULTS];
        findings.extend([of(Severity::Warning), of(Severity::Error)]);
        let run = &log_of(&Report { findings, ..Report::default() }, None)["runs"][0];
        let results = run["results"].as_array().unwrap();
        let level = |number: usize| results[number]["level"].as_str().unwrap();
        assert_eq!(results.len(), MAX_RESULTS);
        let last = [MAX_RESULTS - 3, MAX_RESULTS - 2, MAX_RESULTS - 1].map(level);
        assert_eq!(last, ["note", "warning", "error"]);
        let said = &run["invocations"][0]["toolExecutionNotifications"];
        assert_eq!(said[1]["message"]["text"], "2 results are left out; a run has at most 25000");
    }

    #[test]
    fn text_of_a_message_has_no_links_and_no_places_for_arguments() {
        assert_eq!(plain("[a](b) {0} {x}\u{1b}\nc"), "[a] (b) { 0} {x}?\nc");
        assert_eq!(plain(""), "?");
    }

    #[test]
    fn drivers_and_versions_of_the_kernel_are_categories() {
        let of = |driver: &str, kernel: &str| {
            category(&Report { driver: driver.into(), kernel: kernel.into(), ..Report::default() })
        };
        assert_eq!(of("e1000", "6.1.0-56-amd64"), "guardrail/e1000/6.1/");
        assert_eq!(of("a,b", "7.2-rc1"), "guardrail/a,b/7.2/");
        assert_eq!(of("", ""), "guardrail///");
    }
}
