//! The report as text, in the style of KASAN.

mod known;
mod screen;

pub use known::comparison;
pub use screen::{brief, screen};

use crate::model::{Report, Run};
use guardrail_finding::{
    AccessInfo, ContextInfo, Finding, Frame, ModuleCoverage, ObjectInfo, Severity, trace_lines,
};
use std::io::{self, Write};

const RULE: &str = "==================================================================";

/// Writes every finding that is not known or suppressed, what is known, the outcome of a run that did not
/// complete, and the summary line.
pub fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    findings(&report.shown(), out)?;
    rest(report, out)
}

/// Writes findings in full, between rules.
pub fn findings(shown: &[&Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in shown {
        writeln!(out, "{RULE}")?;
        self::finding(finding, out)?;
    }
    if shown.is_empty() { Ok(()) } else { writeln!(out, "{RULE}") }
}

/// Writes what is known, how the run ended, and the summary line.
pub(crate) fn rest(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    known::write(report, out)?;
    ending(report, out)?;
    for note in &report.run.notes {
        writeln!(out, "Note: {}", clean(note))?;
    }
    if let Some(file) = &report.run.kernel_log {
        writeln!(out, "Kernel log: {}", clean(file))?;
    }
    if !report.run.unknown_instructions.is_empty() {
        let all: Vec<String> = report
            .run
            .unknown_instructions
            .iter()
            .map(|(form, count)| format!("{} ({count})", clean(form)))
            .collect();
        writeln!(out, "Instructions without an exact rule: {}", all.join(", "))?;
    }
    coverage(&report.run, out)?;
    writeln!(out, "{}", summary(report))
}

/// Writes how the run ended, where it did not complete, and one line with the numbers of findings.
pub fn verdict(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    ending(report, out)?;
    writeln!(out, "{}", counted(report))
}

/// Writes how a run ended that did not complete, and why its device was cut off.
fn ending(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if !matches!(report.run.outcome.as_str(), "completed" | "running") {
        writeln!(out, "Outcome: {}", clean(&report.run.outcome))?;
        for line in report.run.detail.iter().flat_map(|text| text.lines()) {
            writeln!(out, "  {}", clean(line))?;
        }
    }
    if let Some(closed) = report.run.gate.as_ref().and_then(|gate| gate.closed.as_ref()) {
        writeln!(out, "The device was cut off: {}", clean(closed))?;
    }
    Ok(())
}

/// One line about how much of the drivers ran; nothing where nobody watched.
fn coverage(run: &Run, out: &mut dyn Write) -> io::Result<()> {
    let part = |ran: u64, all: u64| match all {
        0 => format!("{ran} of {all} functions"),
        all => format!("{ran} of {all} functions ({} %)", ran.saturating_mul(100) / all),
    };
    let sum = |of: fn(&ModuleCoverage) -> u64| run.coverage.iter().map(of).sum::<u64>();
    match run.coverage.as_slice() {
        [] => Ok(()),
        [one] => {
            writeln!(out, "Coverage: {}, {} blocks", part(one.functions_run, one.functions), one.blocks)
        }
        many => writeln!(
            out,
            "Coverage: {} of {} modules, {} blocks",
            part(sum(|row| row.functions_run), sum(|row| row.functions)),
            many.len(),
            sum(|row| row.blocks)
        ),
    }
}

/// The last line: number of findings, amount checked, and duration.
fn summary(report: &Report) -> String {
    let Run { blocks, accesses, events, lost_events, lag_seconds, wall_seconds, .. } = report.run;
    let counted = counted(report);
    if events == 0 && wall_seconds == 0.0 {
        // Clients inside QEMU leave no log.
        let time = match report.run.guest_seconds {
            0.0 => String::new(),
            seconds => format!("; guest time {seconds:.1} s"),
        };
        return format!("{counted}{time}");
    }
    format!(
        "{counted}; {blocks} blocks, {accesses} accesses, {events} events, {lost_events} lost, \
         analysis lag {lag_seconds:.1} s, wall time {wall_seconds:.1} s",
    )
}

/// Driver, kernel, and the numbers of findings.
fn counted(report: &Report) -> String {
    let found = found(report) + &known::counts(report);
    format!("guardrail: {} on {}: {found}", clean(&report.driver), clean(&report.kernel))
}

/// The numbers of findings and notes, such as `2 findings, 1 note`.
fn found(report: &Report) -> String {
    let notes = report.findings.iter().filter(|finding| finding.severity == Severity::Note).count();
    let findings = match report.findings.len() - notes {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    };
    match notes {
        0 => findings,
        1 => findings + ", 1 note",
        n => format!("{findings}, {n} notes"),
    }
}

/// Writes a finding in full.
pub(crate) fn finding(finding: &Finding, out: &mut dyn Write) -> io::Result<()> {
    let place = Frame {
        function: finding.function.clone(),
        module: Some(finding.module.clone()).filter(|module| !module.is_empty()),
        offset: finding.offset,
        ..Frame::default()
    };
    let (checker, kind) = (clean(&finding.checker), clean(&finding.kind));
    let and = finding.other.as_ref().and_then(|other| other.stack.first());
    let and = and.map_or(String::new(), |frame| {
        format!(" / {}", clean(&Frame { location: None, ..frame.clone() }.to_string()))
    });
    let word = match finding.severity {
        Severity::Error => "BUG",
        Severity::Warning => "WARNING",
        Severity::Note => "NOTE",
    };
    writeln!(out, "{word}: guardrail {checker}: {kind} in {}{and}", clean(&place.to_string()))?;
    if let Some(location) = &finding.location {
        writeln!(out, "Source: {}", clean(&location.to_string()))?;
    }
    writeln!(out, "{}", clean(&finding.message))?;
    for note in &finding.notes {
        writeln!(out, "{}", clean(note))?;
    }
    if let Some(triage) = &finding.triage {
        writeln!(out, "Triage: {}", clean(triage))?;
    }
    if let Some(action) = &finding.action {
        writeln!(out, "Gate: {}", clean(action))?;
    }
    if let Some(confirmation) = &finding.confirmation {
        writeln!(out, "Confirmation: {}: {}", clean(&confirmation.outcome), clean(&confirmation.detail))?;
        if let Some(consequence) = &confirmation.consequence {
            writeln!(out, "Consequence: {}", clean(&consequence.detail))?;
        }
        if let Some(repeated) = &confirmation.repeated {
            writeln!(out, "Reproducer: {}", clean(&repeated.to_string()))?;
        }
    }
    let context = &finding.context;
    if let Some(access) = &finding.access {
        writeln!(out, "{} by task {}", self::access(access), clean(&context.thread))?;
    } else if !context.thread.is_empty() {
        writeln!(out, "By task {}", clean(&context.thread))?;
    }
    if !context.level.is_empty() {
        write!(out, "CPU {}, {} context", context.cpu, clean(&context.level))?;
        match finding.event {
            // The finding has no event, because no log was read.
            0 => writeln!(out)?,
            event => writeln!(out, ", event {event}")?,
        }
    }
    if finding.count > 1 {
        writeln!(out, "Happened {} times; this is the first", finding.count)?;
    }
    holding(context, out)?;
    // What was found without a run has no call trace.
    if finding.event != 0 || !context.thread.is_empty() || !finding.stack.is_empty() {
        writeln!(out, "\nCall trace:")?;
        stack(&finding.stack, out)?;
    }
    if let Some(other) = &finding.other {
        let context = &other.context;
        let access = other.access.as_ref().map_or("The other access".to_owned(), self::access);
        writeln!(out, "\n{access} by task {}", clean(&context.thread))?;
        writeln!(out, "CPU {}, {} context", context.cpu, clean(&context.level))?;
        holding(context, out)?;
        writeln!(out, "\nCall trace:")?;
        stack(&other.stack, out)?;
    }
    for related in &finding.related {
        let by = related.context.as_ref().map_or(String::new(), |context| {
            format!(", by task {} on CPU {}", clean(&context.thread), context.cpu)
        });
        writeln!(out, "\n{}{by}:", sentence(&clean(&related.what)))?;
        stack(&related.stack, out)?;
    }
    if let Some(origin) = &finding.origin {
        writeln!(out, "\nThe undefined value comes from {}:", clean(&origin.description))?;
        stack(&origin.stack, out)?;
    }
    if let Some(object) = &finding.object {
        self::object(object, out)?;
    }
    if !finding.shadow.is_empty() {
        writeln!(out, "\nState of the bytes around:")?;
        for line in &finding.shadow {
            writeln!(out, " {}", clean(line))?;
        }
    }
    writeln!(out, "\nFingerprint: {}", clean(&finding.id))
}

/// Text such as `Write of 4 bytes at 0x…`.
pub(crate) fn access(access: &AccessInfo) -> String {
    let size = if access.size == 0 { String::new() } else { format!(" of {}", bytes(access.size)) };
    format!("{}{size} at {}", sentence(&clean(&access.what)), clean(&access.address))
}

/// Writes held locks and states of objects.
fn holding(context: &ContextInfo, out: &mut dyn Write) -> io::Result<()> {
    for lock in &context.locks {
        let shared = if lock.shared { ", shared" } else { "" };
        let at = lock.stack.iter().find(|frame| frame.in_driver()).or(lock.stack.first());
        let at = at.map_or(String::new(), |frame| format!(", taken at {}", clean(&frame.to_string())));
        writeln!(out, "Holds {} ({}{shared}){at}", clean(&lock.name), clean(&lock.kind))?;
    }
    for state in &context.states {
        writeln!(out, "State: {}", clean(state))?;
    }
    Ok(())
}

fn object(object: &ObjectInfo, out: &mut dyn Write) -> io::Result<()> {
    for (what, at) in [("Allocated by", &object.allocated), ("Freed by", &object.freed)] {
        if let Some(at) = at {
            match &at.context {
                Some(context) => {
                    writeln!(out, "\n{what} task {} on CPU {}:", clean(&context.thread), context.cpu)?;
                }
                None => writeln!(out, "\n{what}:")?,
            }
            stack(&at.stack, out)?;
        }
    }
    writeln!(out)?;
    if let Some(offset) = object.offset {
        let field = object.field.as_ref().map_or(String::new(), |field| format!(", member {}", clean(field)));
        writeln!(out, "The address is located {}{field}", position(offset, object))?;
    } else {
        writeln!(out, "The object concerned is a {}", describe(object))?;
    }
    Ok(())
}

/// Text such as `12 bytes inside of 64-byte slab object [0x…, 0x…)`.
pub(crate) fn position(offset: i64, object: &ObjectInfo) -> String {
    let distance = offset.unsigned_abs();
    let (by, side) = if offset < 0 {
        (distance, "before")
    } else if distance < object.size {
        (distance, "inside of")
    } else {
        (distance - object.size, "past the end of")
    };
    format!("{} {side} {}", bytes(by), describe(object))
}

fn describe(object: &ObjectInfo) -> String {
    let class = if object.class.is_empty() { "memory" } else { &object.class };
    let name = object.name.as_ref().map_or(String::new(), |name| format!(" '{}'", clean(name)));
    let end = object
        .address
        .strip_prefix("0x")
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .map_or(String::new(), |start| format!(", {:#x}", start.wrapping_add(object.size)));
    format!("{}-byte {} object{name} [{}{end})", object.size, clean(class), clean(&object.address))
}

fn stack(frames: &[Frame], out: &mut dyn Write) -> io::Result<()> {
    if frames.is_empty() {
        return writeln!(out, " (unknown)");
    }
    for line in trace_lines(frames) {
        writeln!(out, " {}", clean(&line))?;
    }
    Ok(())
}

fn bytes(n: u64) -> String {
    if n == 1 { "1 byte".to_owned() } else { format!("{n} bytes") }
}

/// The text with a capital at its beginning.
pub fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Replaces control characters, and those that change the direction of text. Names and panic texts come from the guest:
/// they could steer a terminal, or show a reader another order than the one that they have.
pub fn clean(text: &str) -> String {
    let turns = |c| matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    // Some programs end a line at the first two; XML has no place for the others.
    let ends = |c| matches!(c, '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if (c.is_control() && c != '\t') || turns(c) || ends(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_as_kasan_writes_them() {
        let object =
            ObjectInfo { address: "0x1000".into(), size: 64, class: "slab".into(), ..ObjectInfo::default() };
        assert_eq!(position(12, &object), "12 bytes inside of 64-byte slab object [0x1000, 0x1040)");
        assert_eq!(position(64, &object), "0 bytes past the end of 64-byte slab object [0x1000, 0x1040)");
        assert_eq!(position(-1, &object), "1 byte before 64-byte slab object [0x1000, 0x1040)");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[2Jb\u{9b}c"), "a?[2Jb?c");
        assert_eq!(clean("a\u{202e}b\u{2069}\tc"), "a?b?\tc");
        assert_eq!(clean("a\u{2028}b\u{2029}c\u{fffe}d\u{ffff}e\u{fffd}"), "a?b?c?d?e\u{fffd}");
    }
}
