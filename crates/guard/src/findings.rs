//! Reads which functions the findings of a report name: a report of schema `guardrail/1`, or a SARIF 2.1.0 file of any tool.

use guardrail_finding::{Finding, Frame};
use guardrail_host::HostError;
use guardrail_report::{Report, SCHEMA, json};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The largest file that is read, in bytes.
const MAX_FILE: u64 = 32 << 20;
/// What to do where a file cannot be used.
const REMEDY: &str = "name a report of 'guardrail check --format json', or a SARIF 2.1.0 file";
/// What other values of a SARIF result's `kind` say is no finding.
const FOUND: [&str; 3] = ["fail", "open", "review"];

/// The functions that the findings of one file name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The file, for messages.
    pub file: String,
    /// The drivers that it is about; empty where it does not say.
    pub drivers: Vec<String>,
    /// How many findings it has.
    pub count: usize,
    /// The module, `None` for any, and the name of each function.
    pub functions: BTreeSet<(Option<String>, String)>,
}

impl Findings {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Findings, HostError> {
        let file = path.display().to_string();
        let bad = |why: String| HostError::Usage(format!("--transact @{file}: {why}; {REMEDY}"));
        let mut text = Vec::new();
        File::open(path)
            .and_then(|opened| opened.take(MAX_FILE + 1).read_to_end(&mut text))
            .map_err(|error| bad(format!("it cannot be read: {error}")))?;
        if text.len() as u64 > MAX_FILE {
            return Err(bad(format!("it has more than {} MiB", MAX_FILE >> 20)));
        }
        let found = Findings::parse(&text).map_err(bad)?;
        Ok(Findings { file, ..found })
    }

    /// Parses the text of a file. An error says why it is of no use.
    fn parse(text: &[u8]) -> Result<Findings, String> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| format!("it is not JSON: {error}"))?;
        let version = value["version"].as_str();
        if value["schema"] == SCHEMA {
            return Ok(of_report(&json::read(text)?));
        }
        match (value["runs"].as_array(), version) {
            (Some(runs), Some("2.1.0")) => Ok(of_sarif(runs)),
            (Some(_), Some(other)) => Err(format!("it is SARIF {other:?}, which is not read")),
            _ => Err("it is neither a report with findings nor SARIF".to_owned()),
        }
    }

    /// Names of functions that may be a driver's.
    pub fn of_driver<'a>(&'a self, driver: &'a str) -> impl Iterator<Item = &'a str> {
        let own =
            move |module: &Option<String>| module.as_deref().is_none_or(|module| is_same(module, driver));
        self.functions.iter().filter(move |(module, _)| own(module)).map(|(_, function)| function.as_str())
    }

    /// Whether the file is about other drivers than one.
    pub fn is_of_other_than(&self, driver: &str) -> bool {
        !self.drivers.is_empty() && !self.drivers.iter().any(|name| is_same(name, driver))
    }

    fn add(&mut self, module: Option<&str>, function: &str) {
        if !function.is_empty() && function != "?" {
            self.functions.insert((module.map(str::to_owned), function.to_owned()));
        }
    }
}

/// Whether two names are those of one module: files may have dashes where `struct module` has underscores.
fn is_same(one: &str, other: &str) -> bool {
    one.replace('-', "_") == other.replace('-', "_")
}

fn of_report(report: &Report) -> Findings {
    let drivers = report.driver.split(", ").map(str::to_owned).collect();
    let mut found = Findings { drivers, count: report.findings.len(), ..Findings::default() };
    for finding in &report.findings {
        if !finding.module.is_empty() {
            found.add(Some(&finding.module), &finding.function);
        }
        for frame in frames(finding) {
            if let Some(module) = &frame.module {
                found.add(Some(module), &frame.function);
            }
        }
    }
    found
}

/// All frames of a finding.
fn frames(finding: &Finding) -> impl Iterator<Item = &Frame> {
    let contexts = [Some(&finding.context), finding.other.as_ref().map(|other| &other.context)];
    let locks = contexts.into_iter().flatten().flat_map(|context| &context.locks).map(|lock| &lock.stack);
    let object = finding.object.iter().flat_map(|object| [&object.allocated, &object.freed]).flatten();
    [&finding.stack]
        .into_iter()
        .chain(finding.other.as_ref().map(|other| &other.stack))
        .chain(finding.related.iter().map(|related| &related.stack))
        .chain(finding.origin.as_ref().map(|origin| &origin.stack))
        .chain(object.map(|at| &at.stack))
        .chain(locks)
        .flatten()
}

fn of_sarif(runs: &[Value]) -> Findings {
    let mut found = Findings::default();
    for run in runs {
        let is_own = run["tool"]["driver"]["name"] == "guardrail";
        for invocation in run["invocations"].as_array().into_iter().flatten().filter(|_| is_own) {
            let driver = invocation["properties"]["driver"].as_str().unwrap_or_default();
            found.drivers.extend(driver.split(", ").filter(|name| !name.is_empty()).map(str::to_owned));
        }
        for result in run["results"].as_array().into_iter().flatten() {
            let kind = result["kind"].as_str().unwrap_or("fail");
            if FOUND.contains(&kind) {
                found.count += 1;
                walk(&mut found, &Run { logical: &run["logicalLocations"], is_own }, result);
            }
        }
    }
    found
}

/// A run of a SARIF file.
struct Run<'a> {
    /// The locations that others name by their number.
    logical: &'a Value,
    /// Whether Guardrail wrote it, which names the module of each function that has one.
    is_own: bool,
}

/// Finds logical locations wherever they are in a result. The parser has limited how deep that can be.
fn walk(found: &mut Findings, run: &Run<'_>, value: &Value) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| walk(found, run, one)),
        Value::Object(members) => {
            for (name, member) in members.iter().filter(|(name, _)| *name != "properties") {
                match member.as_array().filter(|_| name == "logicalLocations") {
                    Some(places) => places.iter().for_each(|place| logical(found, run, place)),
                    None => walk(found, run, member),
                }
            }
        }
        _ => {}
    }
}

/// Adds the function of a logical location.
fn logical(found: &mut Findings, run: &Run<'_>, place: &Value) {
    let at = place["index"].as_u64().and_then(|at| run.logical.get(usize::try_from(at).ok()?));
    let member = |name: &str| place[name].as_str().or_else(|| at?[name].as_str());
    // The compiler has left no function of this name at the place.
    if run.is_own && place["properties"]["inlined"] == true {
        return;
    }
    if !["function", "member"].contains(&member("kind").unwrap_or("function")) {
        return;
    }
    let full = member("fullyQualifiedName");
    if run.is_own {
        if let Some((module, function)) = full.and_then(|full| full.split_once("::")) {
            found.add(Some(module), function);
        }
        return;
    }
    let last = full.map(|full| full.rsplit("::").next().unwrap_or_default());
    for name in [member("name"), last].into_iter().flatten() {
        // Some tools write the arguments as well.
        found.add(None, name.split('(').next().unwrap_or_default().trim());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_finding::{CallStack, Inlined, ObjectInfo, Related};

    fn names(found: &Findings, driver: &str) -> Vec<String> {
        found.of_driver(driver).map(str::to_owned).collect()
    }

    fn frame(function: &str, module: Option<&str>) -> Frame {
        Frame { function: function.into(), module: module.map(str::to_owned), ..Frame::default() }
    }

    fn report() -> Report {
        let freed = CallStack { stack: vec![frame("frees", Some("e1000"))], ..CallStack::default() };
        let inlined = vec![Inlined { function: "no_code_of_its_own".into(), location: None }];
        let finding = Finding {
            module: "e1000".into(),
            function: "at_fault".into(),
            stack: vec![
                Frame { inlined, ..frame("at_fault", Some("e1000")) },
                frame("caller", Some("e1000")),
                frame("ksys", None),
            ],
            related: vec![Related { stack: vec![frame("maps", Some("mii"))], ..Related::default() }],
            object: Some(ObjectInfo { freed: Some(freed), ..ObjectInfo::default() }),
            ..Finding::default()
        };
        Report { schema: SCHEMA.into(), driver: "e1000".into(), findings: vec![finding], ..Report::default() }
    }

    #[test]
    fn all_frames_of_a_report_count_for_their_modules() {
        let text = serde_json::to_vec(&report()).unwrap();
        let found = Findings::parse(&text).unwrap();
        assert_eq!((found.count, found.drivers.as_slice()), (1, &["e1000".to_owned()][..]));
        assert_eq!(names(&found, "e1000"), ["at_fault", "caller", "frees"]);
        assert_eq!(names(&found, "mii"), ["maps"]);
        assert!(found.is_of_other_than("pcnet32") && !found.is_of_other_than("e1000"));
    }

    #[test]
    fn our_sarif_names_the_same_functions() {
        let mut text = Vec::new();
        guardrail_report::sarif::write(&report(), &mut text).unwrap();
        let found = Findings::parse(&text).unwrap();
        assert_eq!(names(&found, "e1000"), ["at_fault", "caller", "frees"]);
        assert_eq!(found.drivers, ["e1000"]);
    }

    #[test]
    fn sarif_of_other_tools_names_functions_of_any_module() {
        let place = |name: &str| format!(r#"{{"logicalLocations":[{{"name":"{name}"}}]}}"#);
        let text = format!(
            r#"{{"version":"2.1.0","runs":[{{"logicalLocations":[{{"name":"by_index"}}],"results":[
                {{"locations":[{}],"codeFlows":[{{"threadFlows":[{{"locations":[{{"location":{}}}]}}]}}],
                  "stacks":[{{"frames":[{{"location":{}}}]}}]}},
                {{"locations":[{{"logicalLocations":[{{"index":0}},{{"fullyQualifiedName":"drv.c::full(int)"}},
                  {{"name":"drv","kind":"module"}}]}}]}},
                {{"kind":"pass","locations":[{}]}}]}}]}}"#,
            place("direct"),
            place("flows"),
            place("stacked"),
            place("passed"),
        );
        let found = Findings::parse(text.as_bytes()).unwrap();
        assert_eq!(names(&found, "x"), ["by_index", "direct", "flows", "full", "stacked"]);
        assert_eq!((found.count, found.is_of_other_than("x")), (2, false));
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let refused = |text: &str| Findings::parse(text.as_bytes()).unwrap_err();
        assert!(refused("").starts_with("it is not JSON: EOF"));
        assert!(refused(&"[".repeat(100_000)).starts_with("it is not JSON: recursion limit"));
        assert_eq!(refused("[1]"), "it is neither a report with findings nor SARIF");
        assert_eq!(refused(r#"{"schema":"guardrail-survey/1"}"#), refused("{}"));
        assert_eq!(refused(r#"{"version":"2.0.0","runs":[]}"#), "it is SARIF \"2.0.0\", which is not read");
        assert!(refused(r#"{"schema":"guardrail/1"}"#).contains("line 1: missing field `driver`"));
    }
}
