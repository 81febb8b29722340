//! `dma_sync_*`: the CPU or the device owns memory for a while.

use super::maps::{Dir, Mapping};
use super::uninit::Lent;
use super::{DmaCheck, NAME, arg, key, length, place, text};
use crate::checker::{Cx, Draft, Hooked};
use guardrail_knowledge::effect::{DmaOp, MapKind};

impl DmaCheck {
    /// A part of a mapping is about to be synchronized.
    pub(super) fn synced(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp) {
        let DmaOp::SyncSingle { dev, addr, offset, len, dir, for_cpu } = *op else { return };
        let dev = arg(&hook.args, dev);
        let bus = arg(&hook.args, addr).wrapping_add(offset.map_or(0, |i| arg(&hook.args, i)));
        let (size, dir) = (length(&hook.args, len), Dir::of(arg(&hook.args, dir)));
        self.looked(cx, dev);
        let judged = hook.module.is_some();
        let Some((id, (start, segment))) = self.maps.holding(dev, bus, size) else {
            if judged {
                self.unknown_synced(cx, hook, dev, bus);
            }
            return;
        };
        let Some(m) = self.maps.get(id).cloned() else { return };
        let (offset, state) = (bus - start, cx.state);
        if judged && offset.saturating_add(size) > segment {
            cx.report(NAME, "dma-sync-range", place(cx, hook), || Draft {
                related: vec![text::related(state, "mapped", m.stack)],
                ..Draft::error(format!(
                    "{} synchronized at offset {offset}, beyond the end of {}",
                    text::bytes(size),
                    text::mapping(&m)
                ))
            });
        }
        self.judge_direction(cx, hook, &m, dir, for_cpu);
        // Elements of a list are joined on the bus, so it is not known which of them hold these bytes. The
        // CPU gets all of them, or keeps what it owns.
        let ranges = match (m.kind, m.memory.as_slice()) {
            (MapKind::List, all) if for_cpu => all.to_vec(),
            (MapKind::List, _) => Vec::new(),
            (_, &[(at, len)]) => vec![(at.saturating_add(offset), size.min(len.saturating_sub(offset)))],
            _ => Vec::new(),
        };
        if !for_cpu {
            self.device_gets(cx, hook, &Lent { synced: true, dev, dir: m.dir, memory: &ranges });
        }
        let Some(m) = self.maps.get_mut(id) else { return };
        for (at, len) in ranges {
            if for_cpu {
                m.give(at, at.saturating_add(len));
            } else {
                m.take(at, at.saturating_add(len));
            }
        }
        if !for_cpu && !self.doubts.is_empty() {
            let whole =
                self.maps.get(id).filter(|m| m.kind != MapKind::List).and_then(|m| m.memory.first().copied());
            let (from, to) = whole.map_or((0, u64::MAX), |(at, _)| {
                let from = at.saturating_add(offset);
                (from, from.saturating_add(size))
            });
            self.handed_over(cx, id, from, to);
        }
    }

    /// Reports a synchronization whose direction is neither that of the mapping nor a part of it.
    pub(super) fn judge_direction(
        &self,
        cx: &mut Cx<'_>,
        hook: &Hooked,
        m: &Mapping,
        dir: Dir,
        for_cpu: bool,
    ) {
        if hook.module.is_none() || m.dir == Dir::Both || m.dir == dir {
            return;
        }
        let state = cx.state;
        cx.report(NAME, "dma-direction", place(cx, hook), || Draft {
            related: vec![text::related(state, "mapped", m.stack)],
            ..Draft::error(format!(
                "{} synchronized for {} as {}",
                text::mapping(m),
                if for_cpu { "the CPU" } else { "the device" },
                dir.name()
            ))
        });
    }

    /// Reports a synchronization of an address where nothing is mapped.
    pub(super) fn unknown_synced(&mut self, cx: &mut Cx<'_>, hook: &Hooked, dev: u64, bus: u64) {
        let elsewhere = self.devices.keys().filter(|&&other| other != dev).find_map(|&other| {
            let (id, _) = self.maps.holding(other, bus, 1)?;
            self.maps.get(id).filter(|m| m.module.is_some())
        });
        let complete = self.is_complete(dev);
        let (gone, state) = (self.maps.gone(dev, bus), cx.state);
        if !(complete || gone.is_some() || elsewhere.is_some() && hook.by_driver) {
            return;
        }
        cx.report(NAME, "dma-sync-unmapped", place(cx, hook), || {
            let (message, related) = match (gone, elsewhere) {
                (Some(gone), _) => (
                    "synchronization of a buffer that has been unmapped".to_owned(),
                    vec![
                        text::related(state, "mapped", gone.mapped),
                        text::related(state, "unmapped", gone.unmapped),
                    ],
                ),
                (None, Some(m)) => (
                    format!("synchronization for a device of {} for another one", text::mapping(m)),
                    vec![text::related(state, "mapped", m.stack)],
                ),
                (None, None) => {
                    ("synchronization of a bus address that is not mapped".to_owned(), Vec::new())
                }
            };
            Draft { related, ..Draft::error(message) }
        });
    }

    /// The call follows a read of the device's `dma_skip_sync`: this read alone was no synchronization.
    pub(super) fn looked(&mut self, cx: &Cx<'_>, dev: u64) {
        if let Some((looked, before)) = key(cx).and_then(|key| self.looks.remove(&key))
            && looked == dev
            && let Some(device) = self.devices.get_mut(&dev)
        {
            device.synced = before;
        }
    }
}
