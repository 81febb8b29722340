//! The report as SARIF 2.1.0, for code-scanning tools.

use crate::marks::{Idle, KnownFinding};
use crate::model::Report;
use guardrail_finding::kinds;
use guardrail_finding::{Finding, Frame, Location};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};

const SCHEMA_URI: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// Writes the report as a SARIF log with one run.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &log(report))?;
    out.write_all(b"\n")
}

fn log(report: &Report) -> Value {
    let gone = report.comparison.as_ref().map_or(&[][..], |comparison| &comparison.gone);
    let used = report.findings.iter().map(|finding| finding.kind.as_str());
    let used: BTreeSet<&str> = used.chain(gone.iter().map(|finding| finding.kind.as_str())).collect();
    let names: Vec<&str> = used.into_iter().collect();
    let rules: Vec<Value> = names.iter().map(|name| rule(name)).collect();
    let found = report.findings.iter().map(|finding| result(finding, &names));
    let results: Vec<Value> = found.chain(gone.iter().map(|finding| absent(finding, &names))).collect();
    let mut log = json!({
        "$schema": SCHEMA_URI,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "guardrail",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
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
    if let Some(did) = &report.suppressions {
        let unused = did.unused.iter().map(|one| notification(one, "the suppression accepts no finding"));
        let expired = did.expired.iter().map(|one| notification(one, "the suppression has expired"));
        let all: Vec<Value> = unused.chain(expired).collect();
        log["runs"][0]["invocations"][0]["toolConfigurationNotifications"] = all.into();
    }
    log
}

/// A suppression that does nothing.
fn notification(idle: &Idle, why: &str) -> Value {
    json!({
        "level": "warning",
        "message": { "text": format!("{why}: {}", idle.what) },
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
        "partialFingerprints": { "guardrail/1": finding.id },
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
        None => json!({ "id": name, "shortDescription": { "text": name } }),
    }
}

fn result(finding: &Finding, names: &[&str]) -> Value {
    let mut result = json!({
        "ruleId": finding.kind,
        "ruleIndex": names.iter().position(|name| *name == finding.kind),
        "level": finding.severity.word(),
        "message": { "text": finding.message },
        "locations": [placed(
            finding.location.as_ref(), &finding.function, &finding.module, finding.offset,
        )],
        "partialFingerprints": { "guardrail/1": finding.id },
        "occurrenceCount": finding.count.max(1),
        "properties": {
            "checker": finding.checker, "context": finding.context, "event": finding.event,
            "access": finding.access, "origin": finding.origin, "triage": finding.triage, "notes": finding.notes,
        },
    });
    if let Some(state) = finding.baseline {
        result["baselineState"] = state.word().into();
    }
    if let Some(by) = &finding.suppressed {
        result["suppressions"] = json!([{
            "kind": "external", "status": "accepted", "justification": by.reason,
            "location": { "physicalLocation": {
                "artifactLocation": { "uri": uri(&by.file) },
                "region": { "startLine": by.line.max(1) },
            }},
        }]);
    }
    if let Some(other) = &finding.other {
        let first = other.stack.first().cloned().unwrap_or_default();
        let mut related = location(first.source(), &first.function, first.module.as_deref(), first.offset);
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
    json!({ "message": { "text": text }, "frames": frames })
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

/// The location of a result, which always names a file: readers drop results without one. Where the source
/// line is unknown, it is the module's file.
fn placed(source: Option<&Location>, function: &str, module: &str, offset: u64) -> Value {
    let mut value = location(source, function, Some(module), offset);
    if source.is_none() {
        let file = if module.is_empty() { "vmlinux".to_owned() } else { format!("{module}.ko") };
        value["physicalLocation"] = json!({ "artifactLocation": { "uri": uri(&file) } });
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

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("zoo/a b.c"), "zoo/a%20b.c");
        assert_eq!(uri("/src/x.c"), "file:///src/x.c");
    }
}
