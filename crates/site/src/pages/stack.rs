//! Call traces, and the contexts that they ran in.

use crate::html::Html;
use guardrail_finding::{ContextInfo, Frame, Location};

/// A call trace as a section of the page.
pub(crate) fn section(page: &mut Html, title: &str, frames: &[Frame]) {
    page.element("<h2>", title, "</h2>\n");
    stack(page, frames);
}

/// A call trace as a part of a section.
pub(crate) fn part(page: &mut Html, title: &str, frames: &[Frame]) {
    page.element("<h3>", title, "</h3>\n");
    stack(page, frames);
}

/// A call trace, innermost function first. Marks show which part is on an interrupt's stack.
pub(crate) fn stack(page: &mut Html, frames: &[Frame]) {
    if frames.is_empty() {
        page.raw("<p class=\"muted\">Not known.</p>\n");
        return;
    }
    let switches = frames.iter().filter(|frame| frame.switched).count();
    let mut left = switches;
    page.raw("<ol class=\"stack\">\n");
    if switches > 0 {
        mark(page, left);
    }
    for frame in frames {
        if frame.switched {
            left = left.saturating_sub(1);
            mark(page, left);
        }
        for inlined in &frame.inlined {
            begin(page, frame);
            page.text(&inlined.function);
            module(page, frame);
            page.raw(" (inlined)");
            line(page, inlined.location.as_ref());
        }
        begin(page, frame);
        page.text(format!("{}+{:#x}", frame.function, frame.offset));
        module(page, frame);
        line(page, frame.location.as_ref());
    }
    page.raw("</ol>\n");
}

/// Says whose stack the frames below are on.
fn mark(page: &mut Html, left: usize) {
    page.raw("<li class=\"mark\">").raw(match left {
        0 => "of the interrupted code:",
        1 => "on an interrupt’s stack:",
        _ => "on the stack of an interrupt that no code can hold off (NMI):",
    });
    page.raw("</li>\n");
}

fn begin(page: &mut Html, frame: &Frame) {
    page.raw(match (frame.in_driver(), frame.outer) {
        (true, _) => "<li class=\"own\">",
        (false, true) => "<li class=\"outer\">",
        (false, false) => "<li>",
    });
}

fn module(page: &mut Html, frame: &Frame) {
    if let Some(module) = &frame.module {
        page.raw(" [").text(module).raw("]");
    }
}

fn line(page: &mut Html, location: Option<&Location>) {
    if let Some(location) = location {
        page.raw(" <span class=\"line\">").text(location).raw("</span>");
    }
    page.raw("</li>\n");
}

/// The rows of a list of facts about a context: thread, CPU, locks and states.
pub(crate) fn context(page: &mut Html, context: &ContextInfo) {
    page.fact("task", &context.thread);
    if !context.level.is_empty() {
        page.fact("context", format!("CPU {}, {}", context.cpu, context.level));
    }
    for lock in &context.locks {
        let shared = if lock.shared { ", shared" } else { "" };
        let at = lock.stack.iter().find(|frame| frame.in_driver()).or(lock.stack.first());
        let at = at.map_or(String::new(), |frame| format!(", taken at {frame}"));
        page.fact("holds", format!("{} ({}{shared}){at}", lock.name, lock.kind));
    }
    for state in &context.states {
        page.fact("state", state);
    }
}
