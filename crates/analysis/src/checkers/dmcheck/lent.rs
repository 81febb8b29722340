//! Undefined bytes in memory that a device may read. They are reported in the name of DMACheck, which knows
//! what devices get.

use super::{DmCheck, MAX_RANGE, USER_END, text};
use crate::checker::{Cx, Draft, Lending, Lent};
use crate::checkers::dmacheck;
use crate::value_flow::Origin;
use guardrail_finding::Severity;

const KIND: &str = "dma-uninit";
/// Most findings that wait for a synchronization.
const MAX_DOUBTS: usize = 256;

/// A buffer in which no byte was written before it was mapped. Drivers that map once and fill later hand over
/// with `dma_sync_*_for_device`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    dev: u64,
    from: u64,
    to: u64,
    finding: usize,
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

impl DmCheck {
    /// A device gets memory, to read or to write.
    pub(super) fn device_gets(&mut self, cx: &mut Cx<'_>, lent: &Lent) {
        self.reconsider(cx, lent);
        if lent.reads && lent.judged {
            self.judge_lent(cx, lent);
        }
        if lent.writes {
            for &(at, len) in &lent.memory {
                self.shadow.set_defined(at, len.min(MAX_RANGE));
            }
        }
    }

    /// Reconsiders findings about empty buffers when the device gets memory: a synchronization retracts them.
    fn reconsider(&mut self, cx: &mut Cx<'_>, lent: &Lent) {
        self.doubts.retain(|doubt| match lent.lending {
            Lending::Unseen if lent.dev == doubt.dev => {
                cx.reports.retract(doubt.finding);
                false
            }
            Lending::Unseen => true,
            Lending::Mapped | Lending::Synced => {
                let overlaps = |&(at, len): &(u64, u64)| doubt.from < at.saturating_add(len) && at < doubt.to;
                let again = lent.memory.iter().any(overlaps);
                if again && lent.lending == Lending::Synced {
                    cx.reports.retract(doubt.finding);
                }
                !again
            }
        });
    }

    fn undefined(&mut self, memory: &[(u64, u64)]) -> Option<Undefined> {
        let (mut found, mut before): (Option<Undefined>, u64) = (None, 0);
        for &(at, len) in memory {
            let len = len.min(MAX_RANGE);
            let here = if at < USER_END { None } else { self.shadow.first_undefined(at, len) };
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

    fn judge_lent(&mut self, cx: &mut Cx<'_>, lent: &Lent) {
        let Some(undefined) = self.undefined(&lent.memory) else { return };
        let Undefined { first, offset, origin, count, to_the_end } = undefined;
        let total = lent.memory.iter().fold(0u64, |sum, piece| sum.saturating_add(piece.1.min(MAX_RANGE)));
        let empty = count >= total;
        if empty && lent.writes {
            // The device fills the buffer.
            return;
        }
        let (benign, state) = (triage(&undefined, empty, lent.writes), cx.state);
        let (origins, shadow) = (&self.origins, &mut self.shadow);
        let finding = cx.report(dmacheck::NAME, KIND, lent.place, || {
            let (origin, _) = origins.describe(state, origin);
            let how = match lent.lending {
                Lending::Mapped => "mapped",
                _ => "synchronized",
            };
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
                shadow: text::dump(shadow, state, first),
                severity: if benign.is_some() { Severity::Warning } else { Severity::Error },
                triage: benign.map(str::to_owned),
                ..Draft::error(what)
            }
        });
        if !empty {
            // The same bytes are not reported each time that the device gets them.
            for &(at, len) in &lent.memory {
                self.shadow.set_defined(at, len.min(MAX_RANGE));
            }
        } else if let Some(finding) = finding {
            if self.doubts.len() >= MAX_DOUBTS {
                // The oldest finding stays reported.
                self.doubts.remove(0);
            }
            let pieces = lent.memory.iter().map(|&(at, len)| (at, at.saturating_add(len)));
            let (from, to) =
                pieces.fold((u64::MAX, 0), |all, piece| (all.0.min(piece.0), all.1.max(piece.1)));
            self.doubts.push(Doubt { dev: lent.dev, from, to, finding });
        }
    }
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
