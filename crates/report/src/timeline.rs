//! The order of a race's two sides: time flows down, and each side has a column.

use crate::text::clean;
use guardrail_finding::{AccessInfo, ContextInfo, Finding, ForcedOrder, Frame, RaceSide};

/// The order of the two sides of a race.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// True where the order was forced, else nothing known forbids it.
    pub forced: bool,
    /// CPU and context of each side.
    pub heads: [String; 2],
    /// What happens, first to last: the number of the side, and a text that may be indented.
    pub rows: Vec<(usize, String)>,
}

impl Timeline {
    /// Whether the order was forced, in words.
    pub fn title(&self) -> &'static str {
        if self.forced {
            "The order that was forced"
        } else {
            "One order that nothing known forbids (not forced)"
        }
    }

    fn at(&mut self, side: usize, text: &str) {
        self.rows.push((side, clean(text)));
    }
}

/// One side as the timeline has it.
struct Side<'a> {
    context: &'a ContextInfo,
    stack: &'a [Frame],
    access: Option<&'a AccessInfo>,
    /// The CPU in the run whose order is shown.
    cpu: u32,
}

/// The order that was forced, or else one that nothing forbids; `None` for what is no race.
pub fn of(finding: &Finding) -> Option<Timeline> {
    let other = finding.other.as_ref()?;
    let order = finding.confirmation.as_ref().and_then(|confirmation| confirmation.order.as_ref());
    let cpu = |side: usize, of: &ContextInfo| {
        order.and_then(|order| order.cpus.get(side)).map_or(of.cpu, |&cpu| cpu)
    };
    let sides = [
        Side {
            context: &finding.context,
            stack: &finding.stack,
            access: finding.access.as_ref(),
            cpu: cpu(0, &finding.context),
        },
        Side {
            context: &other.context,
            stack: &other.stack,
            access: other.access.as_ref(),
            cpu: cpu(1, &other.context),
        },
    ];
    let heads = [0, 1].map(|side: usize| {
        clean(&format!("Side {}: CPU {}, {}", side + 1, sides[side].cpu, sides[side].context.level))
    });
    let mut timeline = Timeline { forced: order.is_some(), heads, rows: Vec::new() };
    body(finding, &sides, order, &mut timeline);
    Some(timeline)
}

/// The side that waits enters first; the other side's access falls between its entry and its access.
fn body(finding: &Finding, sides: &[Side; 2], order: Option<&ForcedOrder>, timeline: &mut Timeline) {
    let waits = match order.map(|order| order.held) {
        Some(RaceSide::Other) => 1,
        Some(RaceSide::Access) | None => 0,
    };
    let comes = 1 - waits;
    let values = finding.confirmation.as_ref().map_or(&[][..], |confirmation| &confirmation.values);
    let value = |i: usize| order.and(values.get(i)).and_then(Option::as_deref);
    enter(waits, &sides[waits], timeline);
    if order.is_some() {
        timeline.at(waits, "  [held before its access]");
    }
    if let Some(value) = value(0) {
        timeline.at(waits, &format!("  (the bytes are {value})"));
    }
    enter(comes, &sides[comes], timeline);
    for (side, now) in [(comes, value(1)), (waits, value(2))] {
        timeline.at(side, &format!("  {}", made(&sides[side])));
        if let Some(value) = now {
            timeline.at(side, &format!("  (the bytes are {value})"));
        }
    }
}

/// The driver's functions, outermost first, and the locks that are held.
fn enter(side: usize, of: &Side, timeline: &mut Timeline) {
    for frame in of.stack.iter().rev().filter(|frame| frame.in_driver()) {
        timeline.at(side, &format!("{}()", frame.function));
    }
    match of.context.locks.as_slice() {
        [] => timeline.at(side, "  holds no lock that was seen"),
        locks => {
            for lock in locks {
                let shared = if lock.shared { ", shared" } else { "" };
                timeline.at(side, &format!("  holds {} ({}{shared})", lock.name, lock.kind));
            }
        }
    }
}

/// Such as `read of 4 bytes at f+0x12`.
fn made(side: &Side) -> String {
    let what = side.access.map_or("access".to_owned(), |access| match access.size {
        0 => access.what.clone(),
        1 => format!("{} of 1 byte", access.what),
        size => format!("{} of {size} bytes", access.what),
    });
    let place = side.stack.first().map_or(String::new(), |frame| match frame.source() {
        Some(location) => {
            let file = location.file.rsplit('/').next().unwrap_or_default();
            format!(" at {file}:{}", location.line)
        }
        None => format!(" at {}+{:#x}", frame.function, frame.offset),
    });
    format!("{what}{place}")
}
