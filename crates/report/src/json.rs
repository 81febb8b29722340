//! The report as one JSON object, schema `guardrail/1` (`docs/report.schema.json`).

use crate::causes::{Cause, causes};
use crate::model::{Report, SCHEMA};
use serde::Serialize;
use std::io::{self, Write};

/// A report with what follows from its findings.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    report: &'a Report,
    causes: Vec<Cause>,
}

/// Writes the report, indented, with a newline at the end.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Written { report, causes: causes(report) })?;
    out.write_all(b"\n")
}

/// Reads a report. An error is the rest of a sentence that begins with the file's name.
pub fn read(bytes: &[u8]) -> Result<Report, String> {
    let report: Report = serde_json::from_slice(bytes).map_err(|error| {
        let line = error.line();
        format!("line {line}: {}; a report of 'guardrail check --format json' was expected", message(&error))
    })?;
    match report.schema.as_str() {
        SCHEMA => Ok(report),
        other => Err(format!("it has the schema {other:?}, but this version reads {SCHEMA:?}")),
    }
}

/// The message of an error in JSON, without the position that it ends with.
pub fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}
