//! Standard output: results, and nothing else.

use crate::args::{Format, OutputArgs, TableFormat};
use crate::errors::{CliError, print_line};
use guardrail_check::last;
use guardrail_host::files;
use guardrail_host::progress::{Loudness, loudness};
use guardrail_report::fail_on::FailOn;
use guardrail_report::survey::Summary;
use guardrail_report::{Report, code_quality, html, json, junit, ktap, sarif, text};
use guardrail_vm::Cache;
use std::io::{self, Write};
use std::path::PathBuf;

pub use guardrail_report::columns::table;

/// How much of a text report is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What fits a screen.
    Screen,
    /// The same findings, and of the run only how it ended.
    Brief,
    /// All findings in full.
    Full,
}

impl Extent {
    /// The extent that an option `--full` asks for.
    pub fn of(full: bool) -> Extent {
        if full { Extent::Full } else { Extent::Screen }
    }
}

/// Prints the table of a survey.
pub fn survey(summary: &Summary, format: TableFormat) -> Result<(), CliError> {
    let mut out = Vec::new();
    match format {
        TableFormat::Text => summary.write_text(&mut out),
        TableFormat::Json => summary.write_json(&mut out),
        TableFormat::Html => summary.write_html(&mut out),
    }
    .map_err(CliError::io("write", "the table"))?;
    text(&String::from_utf8_lossy(&out))
}

/// Prints a report, in which the findings fail that do so without further words.
pub fn report(report: &Report, format: Format, extent: Extent) -> Result<(), CliError> {
    print(report, format, extent, &FailOn::default())
}

/// Prints a report, and writes it to the files that the user named.
pub fn all(report: &Report, args: &OutputArgs, fail_on: &FailOn) -> Result<(), CliError> {
    let extent = match (args.full, loudness()) {
        (false, Loudness::Quiet) => Extent::Brief,
        (full, _) => Extent::of(full),
    };
    print(report, args.format, extent, fail_on)?;
    for written in &args.written {
        let bytes = in_format(report, written.format, Extent::Full, fail_on);
        files::write(&written.file, bytes.map_err(CliError::io("write", "the report"))?)?;
    }
    Ok(())
}

fn print(report: &Report, format: Format, extent: Extent, fail_on: &FailOn) -> Result<(), CliError> {
    in_format(report, format, extent, fail_on)
        .and_then(|out| quiet(io::stdout().lock().write_all(&out).and_then(|()| io::stdout().flush())))
        .map_err(CliError::io("write to", "standard output"))
}

fn in_format(report: &Report, format: Format, extent: Extent, fail_on: &FailOn) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match format {
        Format::Text => match extent {
            Extent::Screen => text::screen(report, &mut out),
            Extent::Brief => text::brief(report, &mut out),
            Extent::Full => text::write(report, &mut out),
        },
        Format::Json => json::write(report, &mut out),
        Format::Sarif => sarif::write_in(report, repository().as_deref(), &mut out),
        Format::Junit => junit::write(report, fail_on, &mut out),
        Format::Ktap => ktap::write(report, fail_on, &mut out),
        Format::CodeQuality => code_quality::write(report, repository().as_deref(), &mut out),
        Format::Html => html::write(report, &mut out),
    }?;
    Ok(out)
}

/// The folder that CI servers know files from: the nearest one upwards that git knows, or else the current one; `None` where
/// that is not known.
fn repository() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let top = here.ancestors().find(|folder| folder.join(".git").exists());
    Some(top.unwrap_or(&here).to_path_buf())
}

/// Keeps a report as the last one. A cache that cannot be written does not make a run fail.
pub fn keep_last(report: &Report, cache: &Cache) {
    if let Err(error) = last::keep(report, cache) {
        print_line("guardrail", &format!("'guardrail report' will not know this run: {error}"));
    }
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
