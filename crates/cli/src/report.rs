//! `guardrail report`.

use crate::args::{Format, ReportArgs};
use crate::errors::{CliError, Status};
use crate::output::{self, Extent};
use guardrail_check::{known, last, only_reading};
use guardrail_report::list::FindingList;
use guardrail_report::mail::mail;
use guardrail_report::{Report, text};
use guardrail_vm::Cache;
use std::path::Path;

/// Prints a report again, or some of its findings.
pub fn run(args: &ReportArgs) -> Result<Status, CliError> {
    if args.mail && args.fingerprints.len() != 1 {
        let why = "a mail is about one finding; write 'guardrail report FINGERPRINT --mail'";
        return Err(CliError::Usage(why.into()));
    }
    let file = last::place(args.from.as_deref(), &Cache::open()?);
    only_reading([file.as_path()].into_iter().chain(args.other_build.as_deref()))?;
    let mut report = last::read(&file)?;
    if args.fingerprints.is_empty() {
        output::report(&report, args.format, Extent::of(args.full))?;
        return Ok(Status::Clean);
    }
    last::choose(&mut report, &args.fingerprints)?;
    if args.mail {
        let other = args.other_build.as_deref().map(|file| other_build(&report, file)).transpose()?;
        let mut out = Vec::new();
        for finding in &report.findings {
            mail(&report, finding, other.as_ref(), &mut out).map_err(CliError::io("write", "the mail"))?;
        }
        output::text(&String::from_utf8_lossy(&out))?;
        return Ok(Status::Clean);
    }
    match args.format {
        Format::Text => {
            let mut out = Vec::new();
            let all: Vec<_> = report.findings.iter().collect();
            text::findings(&all, &mut out).map_err(CliError::io("write", "the findings"))?;
            output::text(&String::from_utf8_lossy(&out))?;
        }
        format => output::report(&report, format, Extent::Full)?,
    }
    Ok(Status::Clean)
}

/// The findings of another build of the report's driver.
fn other_build(report: &Report, file: &Path) -> Result<FindingList, CliError> {
    let other = known::report(file)?;
    if other.is_of(&report.driver) {
        return Ok(other);
    }
    Err(CliError::Usage(format!(
        "{} is of the driver {}, and the finding is of {}; give a report of the same driver",
        file.display(),
        other.driver,
        report.driver
    )))
}
