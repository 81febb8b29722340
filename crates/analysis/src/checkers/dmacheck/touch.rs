//! Accesses of the driver to memory that a device owns, or that is no longer mapped.

use super::maps::{Dir, MapId, Mapping};
use super::{DmaCheck, MAX_OPEN, key, length, text};
use crate::checker::{Cx, Draft, Site};
use crate::definedness::MAX_RANGE;
use crate::level::Level;
use crate::machine::{Out, USER_END};
use guardrail_knowledge::effect::{Effect, Key, Len, MapKind, SyncOp};

/// What functions release that access registers of devices.
const DEVICE: &str = "device";
/// Most writes that wait for a synchronization.
const MAX_DOUBTS: usize = 256;
/// The verdict on a write that waits for one.
const IN_DOUBT: &str = "undecided: a synchronization for the device may follow, which makes it right";

/// A reported write that a synchronization for the device may still justify.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    map: MapId,
    dev: u64,
    from: u64,
    to: u64,
    key: Option<(u64, Level)>,
    finding: usize,
    /// The finding counts unless a synchronization retracts it.
    settled: bool,
}

impl DmaCheck {
    /// The driver hands the range to the device: retracts the findings about writes in it.
    pub(super) fn handed_over(&mut self, cx: &mut Cx<'_>, map: MapId, from: u64, to: u64) {
        self.doubts.retain(|d| {
            let justified = d.map == map && from <= d.from && d.to <= to;
            if justified {
                cx.reports.retract(d.finding);
            }
            !justified
        });
    }

    /// Keeps the findings about writes to a mapping: no synchronization justifies them any more.
    pub(super) fn no_doubt(&mut self, cx: &mut Cx<'_>, map: MapId) {
        self.settle(cx, |d| d.map == map);
        self.doubts.retain(|d| d.map != map);
    }

    /// The driver writes to a register: from now on the device may use what the same run wrote before. A
    /// synchronization that follows nevertheless still retracts the findings.
    #[cold]
    pub(super) fn started(&mut self, cx: &mut Cx<'_>) {
        let key = key(cx);
        self.settle(cx, |d| d.key == key);
    }

    /// Findings about writes that nothing has justified count from now on.
    pub(super) fn settle(&mut self, cx: &mut Cx<'_>, concerns: impl Fn(&Doubt) -> bool) {
        for d in self.doubts.iter_mut().filter(|d| !d.settled && concerns(d)) {
            d.settled = true;
            cx.reports.trust(d.finding);
            if let Some(finding) = cx.reports.get_mut(d.finding) {
                finding.triage = None;
            }
        }
    }

    /// A string instruction or a call accesses a range.
    pub(super) fn range(&mut self, cx: &mut Cx<'_>, place: Site, addr: u64, len: u64, store: bool) {
        let len = len.min(MAX_RANGE);
        if addr >= USER_END && len > 0 {
            self.touched(cx, place, addr, len, store);
        }
    }

    /// Judges what a kernel function accesses on the driver's behalf.
    pub(super) fn touched_by_call(&mut self, cx: &mut Cx<'_>, out: &Out) {
        let starts = |effect: &Effect| {
            matches!(effect, Effect::Sync(SyncOp::Release { key: Key::Global(DEVICE), .. }))
        };
        if !self.doubts.is_empty() && out.effects().iter().any(starts) {
            self.started(cx);
        }
        for effect in out.effects() {
            let (ptr, len, unit, store) = match effect {
                Effect::Define { ptr, len: len @ (Len::Const(_) | Len::Arg(_) | Len::Product(..)) }
                    if !out.is_guessed(*ptr) =>
                {
                    (*ptr, *len, 1, true)
                }
                Effect::Copy { dst, src, len } => {
                    let (at, n) = (cx.state.pointer(*src, &out.args), length(&out.args, *len));
                    self.range(cx, Site::Call, at, n, false);
                    (*dst, *len, 1, true)
                }
                Effect::Read { ptr, len } | Effect::ToUser { src: ptr, len } => (*ptr, *len, 1, false),
                Effect::ToDevice { src, len, unit } => (*src, *len, u64::from(*unit), false),
                _ => continue,
            };
            let (at, n) = (cx.state.pointer(ptr, &out.args), length(&out.args, len).saturating_mul(unit));
            self.range(cx, Site::Call, at, n, store);
        }
    }

    /// The driver accesses a page of interest.
    #[cold]
    pub(super) fn touched(&mut self, cx: &mut Cx<'_>, place: Site, addr: u64, len: u64, store: bool) {
        let end = addr.saturating_add(len);
        if !store && !self.skip_bytes.is_empty() && len <= 8 {
            self.look(cx, addr, end);
        }
        if self.memory.touched(cx, place, addr, len, store) {
            return;
        }
        for id in self.maps.on(addr, len) {
            let Some(m) = self.maps.get(id) else { continue };
            let Some((at, size)) = m.piece(addr, end) else { continue };
            let (from, to) = (addr.max(at), end.min(at.saturating_add(size)));
            let Some(kind) = self.wrong(cx, m, store).filter(|_| !m.is_owned(from, to)) else { continue };
            let (state, m) = (cx.state, m.clone());
            let finding = self.told.tell(cx, kind, place, m.stack, || Draft {
                object: state.objects.at(from).map(|(_, o)| o.clone()),
                access: Some(text::access(store, addr, len)),
                related: vec![text::related(state, "mapped", m.stack)],
                triage: store.then(|| IN_DOUBT.to_owned()),
                ..Draft::error(format!(
                    "{} of {} at offset {} of {}, which the device {}",
                    text::access_word(store),
                    text::bytes(len),
                    from - at,
                    text::mapping(&m),
                    text::rights(m.dir)
                ))
            });
            if let Some(finding) = finding.filter(|_| store) {
                cx.reports.doubt(finding);
                let key = key(cx);
                if self.doubts.len() >= MAX_DOUBTS {
                    let oldest = self.doubts[0].finding;
                    // The oldest finding stays reported.
                    self.settle(cx, |d| d.finding == oldest);
                    self.doubts.remove(0);
                }
                self.doubts.push(Doubt { map: id, dev: m.dev, from, to, key, finding, settled: false });
            }
            return;
        }
    }

    /// The kind of the fault in an access to a mapping that the CPU does not own; `None` where there is no
    /// fault.
    fn wrong(&self, cx: &Cx<'_>, m: &Mapping, store: bool) -> Option<&'static str> {
        let device = self.devices.get(&m.dev)?;
        let concerned = m.module.is_some() || device.driver;
        let skips = cx.state.world.dma_skip_sync().is_some();
        // The kernel and other drivers may hand over their mappings with inline functions, which are not
        // seen.
        let unseen = m.serial <= device.synced || skips && !m.by_driver && m.kind != MapKind::List;
        if !concerned || unseen {
            return None;
        }
        match (m.dir, store) {
            (Dir::None, _) | (Dir::ToDevice, false) => None,
            (_, true) => Some("dma-race"),
            (Dir::FromDevice | Dir::Both, false) => Some("dma-direction"),
        }
    }

    /// The driver reads memory: it may be the flag that says whether `dma_sync_*` calls are left out.
    fn look(&mut self, cx: &mut Cx<'_>, from: u64, to: u64) {
        let Some(dev) = (from..to).find_map(|byte| self.skip_bytes.get(&byte).copied()) else { return };
        let (Some(device), Some(key)) = (self.devices.get_mut(&dev), key(cx)) else { return };
        let before = std::mem::replace(&mut device.synced, self.maps.serial());
        self.doubts.retain(|d| {
            let justified = d.dev == dev && d.key == Some(key);
            if justified {
                cx.reports.retract(d.finding);
            }
            !justified
        });
        self.unseen(cx, dev);
        if self.looks.len() >= MAX_OPEN {
            self.looks.clear();
        }
        self.looks.insert(key, (dev, before));
    }
}
