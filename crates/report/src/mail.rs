//! One finding as a mail to the list of its driver: plain text that says what a maintainer needs.
//!
//! Everything in it is in the report. What the report does not say is named as unknown, or left out.

mod builds;
mod kinds;
mod page;
mod reproduce;
mod timeline;

use crate::list::FindingList;
use crate::model::{ModuleIdentity, Report};
use crate::text::{access, clean, position};
use guardrail_finding::{ContextInfo, Finding, Frame, KERNEL_CHECKER, trace_lines};
use kinds::{in_words, prefix};
use page::Page;
use std::io::{self, Write};

/// Writes the mail about a finding of the report, with its subject as the first line. `other` is a run of the same
/// driver in another build or kernel.
pub fn mail(
    report: &Report,
    finding: &Finding,
    other: Option<&FindingList>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut page = Page::default();
    page.line(&subject(report, finding));
    page.gap();
    page.text(&format!("Hello,\n\n{}", found(finding)));
    subjects(report, finding, &mut page);
    match &finding.other {
        Some(_) => race(finding, &mut page),
        None => fault(finding, &mut page),
    }
    reproduce::write(report, finding, &mut page);
    if let Some(other) = other {
        builds::write(report, finding, other, &mut page);
    }
    how(report, finding, &mut page);
    out.write_all(page.finish().as_bytes())
}

/// Such as `Subject: [BUG] scsi: mptsas: data race in f / g`.
fn subject(report: &Report, finding: &Finding) -> String {
    let related = finding.related.iter().flat_map(|related| &related.stack);
    let mut own = finding.stack.iter().chain(related).filter(|frame| frame.in_driver());
    let first = own.next();
    let module = Some(&finding.module).filter(|module| !module.is_empty());
    let driver = module.or(first.and_then(|frame| frame.module.as_ref())).unwrap_or(&report.driver);
    let file = first.and_then(Frame::source).or(finding.location.as_ref());
    let prefix = file.map_or("", |location| prefix(&location.file));
    // The lists look for the driver's function, which need not be the innermost.
    let function = first.map_or(finding.function.as_str(), Frame::base);
    let other = finding.other.as_ref().and_then(|other| other.stack.first()).map(Frame::base);
    let mut places: Vec<&str> = std::iter::once(function).chain(other).collect();
    places.retain(|one| !one.is_empty() && *one != "?");
    places.dedup();
    let places = if places.is_empty() { String::new() } else { format!(" in {}", places.join(" / ")) };
    clean(&format!("Subject: [BUG] {prefix}{driver}: {}{places}", in_words(&finding.kind)))
}

/// What was found, in two sentences.
fn found(finding: &Finding) -> String {
    let sentence = |text: &str| {
        let text = crate::text::sentence(&clean(text.trim()));
        let ends = text.ends_with(['.', '!', '?']);
        if ends { text } else { format!("{text}.") }
    };
    let second = match (&finding.other, &finding.object, finding.notes.first()) {
        (_, _, Some(note)) => sentence(note),
        (None, Some(object), _) if object.offset.is_some() => {
            let offset = object.offset.unwrap_or_default();
            sentence(&format!("the address is {}", position(offset, object)))
        }
        _ => guardrail_finding::kinds::KINDS
            .iter()
            .find(|kind| kind.name == finding.kind)
            .and_then(|kind| kind.help.split(". ").next())
            .map_or_else(String::new, sentence),
    };
    format!("{} {second}", sentence(&finding.message))
}

/// Kernel, driver and device.
fn subjects(report: &Report, finding: &Finding, page: &mut Page) {
    page.gap();
    page.field("Kernel", &clean(&report.kernel));
    let known: Vec<&ModuleIdentity> = report
        .run
        .modules
        .iter()
        .filter(|one| one.name == finding.module || report.run.modules.len() == 1)
        .collect();
    for module in &known {
        page.field("Driver", &clean(&identity(module)));
    }
    if known.is_empty() {
        page.field("Driver", &clean(&report.driver));
    }
    if let Some(device) = &report.run.device {
        page.field("Device", &format!("{} (emulated by QEMU)", clean(device)));
    }
    if let Some(workload) = &report.run.workload {
        page.field("Workload", &clean(workload));
    }
    let often = match finding.count {
        0 | 1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    page.field("Seen", &format!("{often} in the run, by guardrail {}", clean(&finding.checker)));
}

fn identity(module: &ModuleIdentity) -> String {
    let parts =
        [("version ", &module.version), ("srcversion ", &module.srcversion), ("build ID ", &module.build_id)];
    let parts = parts.iter().filter_map(|(name, value)| Some(format!("{name}{}", value.as_ref()?)));
    std::iter::once(module.name.clone()).chain(parts).collect::<Vec<_>>().join(", ")
}

/// Both sides of a race, and their order in time.
fn race(finding: &Finding, page: &mut Page) {
    let Some(other) = &finding.other else { return };
    let sides = [
        (1, &finding.access, &finding.context, &finding.stack),
        (2, &other.access, &other.context, &other.stack),
    ];
    for (number, of, context, stack) in sides {
        let what = of.as_ref().map_or("the access".to_owned(), access);
        page.heading(&format!("Side {number}: {what}"));
        by(context, page);
        trace(stack, page);
    }
    timeline::write(finding, page);
    consequence(finding, page);
    related(finding, page);
    judged(finding, page);
}

/// The stacks of a fault that has one side: the fault, and the history of its memory.
fn fault(finding: &Finding, page: &mut Page) {
    let what = finding.access.as_ref().map_or("Where it happened".to_owned(), access);
    page.heading(&what);
    by(&finding.context, page);
    trace(&finding.stack, page);
    related(finding, page);
    if let Some(origin) = &finding.origin {
        page.heading(&format!("The undefined value comes from {}", clean(&origin.description)));
        trace(&origin.stack, page);
    }
    let object = finding.object.as_ref();
    let history = [
        ("Allocated", object.and_then(|object| object.allocated.as_ref())),
        ("Freed", object.and_then(|object| object.freed.as_ref())),
    ];
    for (what, at) in history.into_iter().filter_map(|(what, at)| Some((what, at?))) {
        page.heading(what);
        at.context.iter().for_each(|context| by(context, page));
        trace(&at.stack, page);
    }
    for note in finding.notes.iter().skip(1) {
        page.gap();
        page.text(&clean(note));
    }
    judged(finding, page);
}

/// What followed where the order was forced.
fn consequence(finding: &Finding, page: &mut Page) {
    let Some(confirmation) = &finding.confirmation else { return };
    let Some(consequence) = &confirmation.consequence else { return };
    page.heading("Consequence");
    page.text(&crate::text::sentence(&clean(&format!("{}.", consequence.detail))));
    if let Some(fault) = &consequence.finding {
        page.gap();
        by(&fault.context, page);
        trace(&fault.stack, page);
        let freed = fault.object.as_ref().and_then(|object| object.freed.as_ref());
        freed.iter().for_each(|at| {
            page.heading("The memory was freed here");
            trace(&at.stack, page);
        });
    }
}

/// Other stacks that explain the finding.
fn related(finding: &Finding, page: &mut Page) {
    for related in &finding.related {
        page.heading(&crate::text::sentence(&clean(&related.what)));
        related.context.iter().for_each(|context| by(context, page));
        trace(&related.stack, page);
    }
}

fn judged(finding: &Finding, page: &mut Page) {
    if let Some(triage) = &finding.triage {
        page.gap();
        page.text(&format!("Triage of the tool: {}", clean(triage)));
    }
}

/// Who ran, with the locks and states.
fn by(context: &ContextInfo, page: &mut Page) {
    if !context.thread.is_empty() {
        let level =
            if context.level.is_empty() { String::new() } else { format!(", {} context", context.level) };
        page.text(&clean(&format!("Task {} on CPU {}{level}", context.thread, context.cpu)));
    }
    for lock in &context.locks {
        let shared = if lock.shared { ", shared" } else { "" };
        let at = lock.stack.iter().find(|frame| frame.in_driver()).or(lock.stack.first());
        let at = at.map_or(String::new(), |frame| format!(", taken in {}", frame.function));
        page.text(&clean(&format!("Holds {} ({}{shared}){at}", lock.name, lock.kind)));
    }
    for state in &context.states {
        page.text(&clean(&format!("State: {state}")));
    }
}

fn trace(stack: &[Frame], page: &mut Page) {
    if stack.is_empty() {
        page.item("(no call trace is known)");
    }
    for line in trace_lines(stack) {
        page.item(&clean(&line));
    }
}

/// How such a finding is made, for readers who do not know the tool.
fn how(report: &Report, finding: &Finding, page: &mut Page) {
    page.heading("How it was found");
    let seen = match (&finding.other, finding.checker.as_str()) {
        (_, KERNEL_CHECKER) => "The guest's kernel itself reported this.",
        (Some(_), _) => {
            "A race is worked out from one run: the two accesses need not have happened at a time in it."
        }
        (None, "lockcheck") => {
            "What locks make possible is worked out from one run, and need not have happened in it."
        }
        (None, _) => "The fault happened in the run.",
    };
    let of_kernel = |frame: &mut Frame| frame.module.is_none() && frame.location.is_some();
    let marks = if finding.clone().frames_mut().any(of_kernel) {
        "Inlined functions are marked."
    } else {
        "Inlined functions are marked; functions of the kernel have no lines."
    };
    page.text(&format!(
        "Guardrail runs the unmodified driver in a QEMU guest and follows each of its instructions. {seen} {marks}"
    ));
    page.gap();
    page.text(&format!("Fingerprint: {}", clean(&finding.id)));
    page.text(&format!("Checkers of the run: {}", clean(&report.tools.join(", "))));
}
