//! The part of a mail that says what a run of another build tells about the change that brought the fault.

use super::page::Page;
use crate::list::FindingList;
use crate::marks::KnownFinding;
use crate::model::Report;
use crate::text::clean;
use guardrail_finding::{Finding, Frame};
use std::collections::BTreeSet;

/// Writes whether a run of another kernel, or of another build of the driver, found the same, and what follows.
pub fn write(report: &Report, finding: &Finding, other: &FindingList, page: &mut Page) {
    page.heading("In another build");
    let (theirs, ours) = match clean(&report.kernel) {
        kernel if kernel == clean(&other.kernel) => {
            (format!("the other build on {kernel}"), "this one".to_owned())
        }
        kernel => (clean(&other.kernel), kernel),
    };
    if other.findings.iter().any(|one| one.id == finding.id) {
        page.text(&format!(
            "A run of {theirs} has the same finding, so no change between the two brought it."
        ));
        return;
    }
    if !other.could_find(&KnownFinding::from(finding)) {
        page.text(&format!(
            "A run of {theirs} tells nothing: it did not complete, or it was without {}.",
            clean(&finding.checker)
        ));
        return;
    }
    page.text(&format!(
        "A run of {theirs} did not find it. Where that run executed the same code, the change that brought it lies \
         between {theirs} and {ours}, as a rule in these files:"
    ));
    let files = sources(finding);
    files.iter().for_each(|file| page.item(&clean(file)));
    if files.is_empty() {
        page.item("(not known: the driver has no source lines here; see --symbols)");
    }
}

/// The source files of the driver's functions on both sides.
fn sources(finding: &Finding) -> BTreeSet<&str> {
    let other = finding.other.iter().flat_map(|other| &other.stack);
    let frames = finding.stack.iter().chain(other).filter(|frame| frame.in_driver());
    frames.filter_map(Frame::source).map(|location| location.file.as_str()).collect()
}
