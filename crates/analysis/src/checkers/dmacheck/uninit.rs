//! Undefined bytes in memory that a device may read.

use super::maps::Dir;
use super::{DmaCheck, NAME, place, text};
use crate::checker::{Cx, Draft, Hooked};
use crate::definedness::MAX_RANGE;
use crate::machine::USER_END;
use crate::value_flow::Origin;
use guardrail_finding::Severity;

/// Most findings that wait for a synchronization.
const MAX_DOUBTS: usize = 256;

/// Memory that a device may use from now on.
pub(super) struct Lent<'a> {
    /// It was mapped before, and is now synchronized for the device.
    pub synced: bool,
    /// Guest address of the device's `struct device`.
    pub dev: u64,
    pub dir: Dir,
    /// Guest address and length in bytes of each piece.
    pub memory: &'a [(u64, u64)],
}

/// A reported buffer in which no byte was written before it was mapped. Drivers that map once and fill later
/// hand over with `dma_sync_*_for_device`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Empty {
    dev: u64,
    from: u64,
    to: u64,
    finding: usize,
}

impl Empty {
    /// Whether one of the pieces of memory, each with its length, has a byte of the buffer.
    fn overlaps(&self, memory: &[(u64, u64)]) -> bool {
        memory.iter().any(|&(at, len)| self.from < at.saturating_add(len) && at < self.to)
    }
}

/// The undefined bytes in memory that a device gets.
struct Undefined {
    /// Address of the first undefined byte; `offset` counts in bytes over all the pieces.
    first: u64,
    offset: u64,
    origin: Origin,
    count: u64,
    /// No defined byte follows the first undefined one.
    to_the_end: bool,
}

impl DmaCheck {
    /// A device gets memory, to read or to write.
    pub(super) fn device_gets(&mut self, cx: &mut Cx<'_>, hook: &Hooked, lent: &Lent<'_>) {
        if lent.dir == Dir::None || lent.memory.is_empty() {
            return;
        }
        // A synchronization retracts the findings about buffers that were empty when they were mapped.
        self.empty.retain(|empty| {
            let again = empty.overlaps(lent.memory);
            match (again, lent.synced) {
                (true, true) => cx.reports.retract(empty.finding),
                // It is mapped anew, and nobody had filled it before.
                (true, false) => cx.reports.trust(empty.finding),
                (false, _) => {}
            }
            !again
        });
        if lent.dir != Dir::FromDevice && hook.module.is_some() {
            self.judge_lent(cx, hook, lent);
        }
        if lent.dir.writes() {
            define(cx, lent.memory);
        }
    }

    /// The device may have got any of its memory: retracts the findings about empty buffers.
    pub(super) fn unseen(&mut self, cx: &mut Cx<'_>, dev: u64) {
        self.empty.retain(|empty| {
            if empty.dev == dev {
                cx.reports.retract(empty.finding);
            }
            empty.dev != dev
        });
    }

    /// Memory is taken back from a device: what it got is settled.
    pub(super) fn taken_back(&mut self, cx: &mut Cx<'_>, dev: u64, memory: &[(u64, u64)]) {
        self.empty.retain(|empty| {
            let back = empty.dev == dev && empty.overlaps(memory);
            if back {
                cx.reports.trust(empty.finding);
            }
            !back
        });
    }

    fn judge_lent(&mut self, cx: &mut Cx<'_>, hook: &Hooked, lent: &Lent<'_>) {
        let Some(undefined) = undefined(cx, lent.memory) else { return };
        let Undefined { first, offset, origin, count, to_the_end } = undefined;
        let total = lent.memory.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.1.min(MAX_RANGE)));
        let empty = count >= total;
        if empty && lent.dir.writes() {
            // The device fills the buffer.
            return;
        }
        let (benign, state) = (triage(&undefined, empty, lent.dir.writes()), cx.state);
        let finding = cx.report(NAME, "dma-uninit", place(cx, hook), || {
            let how = if lent.synced { "synchronized" } else { "mapped" };
            let what = if empty {
                format!("none of {} {how} for the device to read was initialized", text::bytes(total))
            } else {
                let at = if to_the_end { "all from" } else { "the first at" };
                format!(
                    "{count} of {} {how} for the device to read were not initialized, {at} offset {offset}",
                    text::bytes(total)
                )
            };
            Draft {
                origin,
                object: state.objects.at(first).map(|(_, object)| object.clone()),
                shadow: Some(first),
                severity: if benign.is_some() { Severity::Warning } else { Severity::Error },
                triage: benign.map(str::to_owned),
                ..Draft::error(what)
            }
        });
        if !empty {
            // The same bytes are not reported each time that the device gets them.
            define(cx, lent.memory);
            if let Some(finding) = finding {
                cx.reports.trust(finding);
            }
        } else if let Some(finding) = finding {
            if self.empty.len() >= MAX_DOUBTS {
                // The oldest finding stays reported.
                cx.reports.trust(self.empty.remove(0).finding);
            }
            cx.reports.doubt(finding);
            let pieces = lent.memory.iter().map(|&(at, len)| (at, at.saturating_add(len)));
            let (from, to) =
                pieces.fold((u64::MAX, 0), |all, piece| (all.0.min(piece.0), all.1.max(piece.1)));
            self.empty.push(Empty { dev: lent.dev, from, to, finding });
        }
    }
}

/// From now on the bytes count as defined.
fn define(cx: &mut Cx<'_>, memory: &[(u64, u64)]) {
    for &(at, len) in memory {
        cx.definedness.define(at, len);
    }
}

fn undefined(cx: &mut Cx<'_>, memory: &[(u64, u64)]) -> Option<Undefined> {
    let (mut found, mut before): (Option<Undefined>, u64) = (None, 0);
    for &(at, len) in memory {
        let len = len.min(MAX_RANGE);
        let here = if at < USER_END { None } else { cx.definedness.shadow.first_undefined(at, len) };
        match (&mut found, here) {
            (None, Some((first, origin, count))) => {
                let offset = before.saturating_add(first.wrapping_sub(at));
                let to_the_end = count == at.wrapping_add(len).wrapping_sub(first);
                found = Some(Undefined { first, offset, origin, count, to_the_end });
            }
            (Some(found), here) => {
                let count = here.map_or(0, |here| here.2);
                found.count = found.count.saturating_add(count);
                found.to_the_end &= count == len;
            }
            (None, None) => {}
        }
        before = before.saturating_add(len);
    }
    found
}

/// Why undefined bytes may do no harm; `None` where nothing speaks for it.
fn triage(undefined: &Undefined, empty: bool, writes: bool) -> Option<&'static str> {
    if writes {
        Some("likely benign: the device may write these bytes before it reads any")
    } else if undefined.to_the_end && !empty {
        Some(
            "likely benign: nothing was written from there to the end, and the device may be given a shorter length",
        )
    } else {
        None
    }
}
