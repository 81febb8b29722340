//! The timeline of a race as text of two columns.

use super::page::{Page, WIDTH, wrapped};
use crate::timeline;
use guardrail_finding::Finding;

/// Between the columns.
const BAR: &str = " | ";
/// Columns of one side.
const COLUMN: usize = (WIDTH - BAR.len()) / 2;

/// Writes the timeline of a race.
pub fn write(finding: &Finding, page: &mut Page) {
    let Some(timeline) = timeline::of(finding) else { return };
    page.heading(timeline.title());
    page.text("Threads and locks are those of the run that found the race.");
    page.gap();
    let columns = timeline.heads.each_ref().map(|head| wrapped("", "  ", head, COLUMN));
    for i in 0..columns[0].len().max(columns[1].len()) {
        let [left, right] = [0, 1].map(|side: usize| columns[side].get(i).map_or("", String::as_str));
        page.line(format!("{left:COLUMN$}{BAR}{right}").trim_end());
    }
    page.line(&format!("{}-+-{}", "-".repeat(COLUMN), "-".repeat(COLUMN)));
    for (side, text) in &timeline.rows {
        let indent = &text[..text.len() - text.trim_start().len()];
        for line in wrapped(indent, &format!("{indent}  "), text.trim_start(), COLUMN) {
            let (left, right) = if *side == 0 { (line.as_str(), "") } else { ("", line.as_str()) };
            page.line(format!("{left:COLUMN$}{BAR}{right}").trim_end());
        }
    }
}
