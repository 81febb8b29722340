//! The part of a mail that says how to see the fault oneself.

use super::page::Page;
use crate::model::Report;
use crate::text::clean;
use guardrail_finding::{Confirmation, Finding, Frame};

/// The folder of the run, in the commands.
const FOLDER: &str = "run";

/// Writes the commands, and how often they showed the fault.
pub fn write(report: &Report, finding: &Finding, page: &mut Page) {
    page.heading("Reproducer");
    if report.run.command.is_empty() {
        page.text("The report does not say with which options the run was made.");
        return;
    }
    let words = |words: &[&str]| words.iter().map(|word| clean(word)).collect::<Vec<_>>();
    let run: Vec<String> = report.run.command.iter().map(|word| clean(word)).collect();
    page.command(&[words(&["guardrail"]), run, words(&["--out", FOLDER])].concat());
    let Some(other) = &finding.other else { return };
    page.command(&words(&["guardrail", "confirm", &finding.id, "--out", FOLDER]));
    page.gap();
    page.text(
        "The second command holds a thread at one of these instructions until another is at the other:",
    );
    for stack in [&finding.stack, &other.stack] {
        page.item(&stack.first().map_or("(unknown)".to_owned(), place));
    }
    match &finding.confirmation {
        None => page.text("It was not tried yet."),
        Some(confirmation) => tried(confirmation, page),
    }
}

fn place(frame: &Frame) -> String {
    clean(&Frame { location: None, ..frame.clone() }.to_string())
}

/// How often the order was forced, and what followed.
fn tried(confirmation: &Confirmation, page: &mut Page) {
    let plural = |n: u64, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
    let tries = plural(confirmation.tries, "try", "tries");
    let runs = plural(confirmation.runs, "run", "runs");
    if confirmation.meetings > 0 {
        page.text(&format!("It worked in {} of {tries}, in {runs} of the guest.", confirmation.meetings));
    } else {
        page.text(&format!("It did not work in {tries}, in {runs} of the guest: {}.", confirmation.outcome));
    }
    let more = confirmation.repeated.as_ref().map(ToString::to_string);
    for text in std::iter::once(&confirmation.detail).chain(&more) {
        page.text(&crate::text::sentence(&clean(&format!("{text}."))));
    }
}
