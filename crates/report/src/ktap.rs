//! The report as KTAP, the format of the kernel's own tests (`Documentation/dev-tools/ktap.rst`).

use crate::cases::{self, End};
use crate::fail_on::FailOn;
use crate::model::Report;
use crate::text::clean;
use std::io::{self, Write};

/// What ends the tests in a log of the kernel, for the kernel's own reader, and what is written instead.
const ENDS: [(&str, &str); 3] = [
    ("List of all partitions:", "List of all partitions;"),
    ("Kernel panic - not syncing: VFS:", "Kernel panic - not syncing; VFS:"),
    ("reboot: System halted", "reboot; System halted"),
];

/// Writes the report as one test with a subtest for each case. What a case has to say precedes its result.
pub fn write(report: &Report, fail_on: &FailOn, out: &mut dyn Write) -> io::Result<()> {
    let cases = cases::of(report, fail_on);
    let driver = name(&clean(&report.driver));
    writeln!(out, "KTAP version 1\n1..1\n  KTAP version 1\n  # Subtest: {driver}\n  1..{}", cases.len())?;
    let mut passed = true;
    for (i, case) in cases.iter().enumerate() {
        let (number, title) = (i + 1, name(&format!("{}: {}", case.class, case.name)));
        let says = match &case.end {
            End::Passed | End::Skipped(_) => String::new(),
            End::Failed { message, text, .. } => format!("{message}\n{text}"),
            End::Broken { outcome, detail } => format!("the run did not complete: {outcome}\n{detail}"),
        };
        for line in says.lines() {
            writeln!(out, "  # {}", diagnostic(line))?;
        }
        match &case.end {
            End::Passed => writeln!(out, "  ok {number} {title}")?,
            End::Skipped(why) => writeln!(out, "  ok {number} {title} # SKIP {}", name(why))?,
            End::Failed { .. } | End::Broken { .. } => {
                passed = false;
                writeln!(out, "  not ok {number} {title}")?;
            }
        }
    }
    writeln!(out, "{} 1 {driver}", if passed { "ok" } else { "not ok" })
}

/// Text as part of a result line, where a number sign begins a directive, and a dash may precede the name. A name is never
/// empty.
fn name(text: &str) -> String {
    match text.trim_start_matches([' ', '\t', '-']).trim_end() {
        "" => "?".to_owned(),
        text => unended(text).replace('#', "_"),
    }
}

/// A line for people. What readers take for the beginning or the end of tests is changed.
fn diagnostic(line: &str) -> String {
    let line = unended(line.trim_end());
    if line.trim_start().starts_with("Subtest") { format!("| {line}") } else { line }
}

/// Text that does not end the tests, wherever it stands.
fn unended(text: &str) -> String {
    ENDS.into_iter().fold(text.to_owned(), |text, (end, instead)| text.replace(end, instead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_neither_begin_nor_end_tests() {
        assert_eq!(diagnostic("Subtest: other"), "| Subtest: other");
        assert_eq!(diagnostic("  Subtest: other"), "|   Subtest: other");
        let panic = "Kernel panic - not syncing: VFS: no root";
        assert_eq!(diagnostic(panic), "Kernel panic - not syncing; VFS: no root");
        assert_eq!(diagnostic("reboot: System halted "), "reboot; System halted");
        assert_eq!(["  ", "a#b ", "- a-b"].map(name), ["?", "a_b", "a-b"]);
        assert_eq!(name("reboot: System halted"), "reboot; System halted");
    }
}
