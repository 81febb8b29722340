//! The report as KTAP, the format of the kernel's own tests (`Documentation/dev-tools/ktap.rst`).

use crate::cases::{self, End};
use crate::fail_on::FailOn;
use crate::model::Report;
use crate::text::clean;
use std::io::{self, Write};

/// Writes the report as one test with a subtest for each case. What a case has to say precedes its result.
pub fn write(report: &Report, fail_on: FailOn, out: &mut dyn Write) -> io::Result<()> {
    let cases = cases::of(report, fail_on);
    let driver = name(&clean(&report.driver));
    writeln!(
        out,
        "KTAP version 1\n1..1\n    KTAP version 1\n    # Subtest: {driver}\n    1..{}",
        cases.len()
    )?;
    let mut passed = true;
    for (i, case) in cases.iter().enumerate() {
        let (number, title) = (i + 1, name(&format!("{}: {}", case.class, case.name)));
        let says = match &case.end {
            End::Passed | End::Skipped(_) => String::new(),
            End::Failed { message, text, .. } => format!("{message}\n{text}"),
            End::Broken { outcome, detail } => format!("the run did not complete: {outcome}\n{detail}"),
        };
        for line in says.lines() {
            writeln!(out, "    # {line}")?;
        }
        match &case.end {
            End::Passed => writeln!(out, "    ok {number} {title}")?,
            End::Skipped(why) => writeln!(out, "    ok {number} {title} # SKIP {}", name(why))?,
            End::Failed { .. } | End::Broken { .. } => {
                passed = false;
                writeln!(out, "    not ok {number} {title}")?;
            }
        }
    }
    writeln!(out, "{} 1 {driver}", if passed { "ok" } else { "not ok" })
}

/// Text as part of a result line, where a number sign begins a directive.
fn name(text: &str) -> String {
    text.replace('#', "_")
}
