//! Standard output: results, and nothing else.

use crate::args::Format;
use crate::errors::CliError;
use guardrail_report::{Report, json, sarif, text};
use std::io::{self, Write};

pub use guardrail_report::columns::table;

/// Refuses a format that cannot be printed yet, before a run begins.
pub fn check_format(format: Format) -> Result<(), CliError> {
    match format {
        Format::Html => {
            Err(CliError::Usage("the format 'html' is not available yet; use text, json or sarif".into()))
        }
        _ => Ok(()),
    }
}

/// Prints a report.
pub fn report(report: &Report, format: Format) -> Result<(), CliError> {
    let mut out = Vec::new();
    match format {
        Format::Text => text::write(report, &mut out),
        Format::Json => json::write(report, &mut out),
        Format::Sarif => sarif::write(report, &mut out),
        Format::Html => return check_format(format),
    }
    .and_then(|()| quiet(io::stdout().lock().write_all(&out).and_then(|()| io::stdout().flush())))
    .map_err(CliError::io("write to", "standard output"))
}

/// Prints text.
pub fn text(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    quiet(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
        .map_err(CliError::io("write to", "standard output"))
}

/// A reader that has closed the pipe (`| head`) is not an error.
fn quiet(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
