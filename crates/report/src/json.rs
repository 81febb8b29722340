//! The report as one JSON object, schema `guardrail/1` (`docs/report.schema.json`).

use crate::model::Report;
use std::io::{self, Write};

/// Writes the report, indented, with a newline at the end.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
