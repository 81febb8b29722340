//! Runs that measurements compare: traces of `guardrail check --record`, reports with `--format json`, and cells of a
//! survey.

use crate::process;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The files of runs, in order.
pub fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let is_run = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "trace" || ext == "json");
    let mut files = Vec::new();
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries =
            fs::read_dir(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_run).collect();
        // A trace says more than a report beside it.
        let traces: BTreeSet<PathBuf> =
            found.iter().filter(|path| path.extension().is_some_and(|ext| ext == "trace")).cloned().collect();
        found.retain(|path| traces.contains(path) || !traces.contains(&path.with_extension("trace")));
        found.retain(|path| !is_empty_cell(path));
        found.sort();
        if found.is_empty() {
            return Err(format!("{} has no runs: no .trace and no .json", path.display()));
        }
        files.extend(found);
    }
    Ok(files)
}

/// Whether a file is a cell of a survey whose run was not made, or has no report.
fn is_empty_cell(path: &Path) -> bool {
    let value = || -> Option<Value> { serde_json::from_str(&fs::read_to_string(path).ok()?).ok() };
    path.extension().is_some_and(|ext| ext == "json")
        && value().is_some_and(|cell| {
            // A report has no such member.
            let report = cell.get("report");
            cell["driver"].is_string() && cell["kernel"].is_string() && report.is_some_and(Value::is_null)
        })
}

/// The report of a run; a trace is analyzed with these checkers.
pub fn read(file: &Path, tools: &str) -> Result<Value, String> {
    let text = if file.extension().is_some_and(|ext| ext == "trace") {
        analyze(file, tools)?
    } else {
        fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?
    };
    let report: Value = serde_json::from_str(&text)
        .map_err(|error| format!("{} is no report in JSON: {error}", file.display()))?;
    // A cell of a survey holds its run's report.
    Ok(if report["report"].is_object() { report["report"].clone() } else { report })
}

/// What `guardrail analyze` prints of a trace in JSON, with these checkers.
pub fn analyze(trace: &Path, tools: &str) -> Result<String, String> {
    let output = process::guardrail()?
        .arg("analyze")
        .arg(trace)
        .args(["--tool", tools, "--format", "json"])
        .output()
        .map_err(|error| format!("cannot start guardrail: {error}"))?;
    // Status 1 says that there are findings.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("{}: {}", trace.display(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let empty = files(&[folder.path().to_owned()]).unwrap_err();
        assert!(empty.ends_with("has no runs: no .trace and no .json"), "{empty}");
        let file = folder.path().join("x.json");
        fs::write(&file, "{").unwrap();
        assert!(read(&file, "all").unwrap_err().contains("is no report in JSON"));
        fs::write(folder.path().join("y.json"), r#"{"driver": "d", "kernel": "6.1", "report": null}"#)
            .unwrap();
        assert_eq!(files(&[folder.path().to_owned()]).unwrap(), std::slice::from_ref(&file));
        let report = folder.path().join("z.json");
        fs::write(&report, r#"{"driver": "d", "kernel": "6.1"}"#).unwrap();
        assert_eq!(files(&[folder.path().to_owned()]).unwrap(), [file.clone(), report]);
        fs::write(&file, "{\"report\": {\"driver\": \"d\"}}").unwrap();
        assert_eq!(read(&file, "all").unwrap()["driver"], "d");
    }
}
