//! `dma_map_sg` and its variants: mappings of scatterlists.

use super::maps::{Dir, MapId, Mapping};
use super::uninit::Lent;
use super::{DmaCheck, NAME, arg, place, text};
use crate::checker::{Cx, Draft, Hooked, PassedList};
use guardrail_knowledge::effect::{DmaOp, MapKind};

/// Words that the log holds for each element.
const WORDS: usize = 5;

/// Calls whose lists follow next in the log.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// A call that mapped a list: its rsp, the mapping, and the number of the list's bus segments.
    mapped: Option<(u64, MapId, u64)>,
    /// A call that unmaps or synchronizes a list whose address is not known.
    unknown: Option<Unknown>,
}

#[derive(Clone, Copy, Debug)]
struct Unknown {
    rsp: u64,
    dev: u64,
    list: u64,
    count: u64,
    dir: Dir,
    /// At a synchronization, whether it is for the CPU.
    sync: Option<bool>,
}

/// An element of a scatterlist, as the log holds it.
struct Entry {
    page: u64,
    offset: u64,
    len: u64,
    bus: u64,
    bus_len: u64,
}

fn entries(words: &[u64]) -> impl Iterator<Item = Entry> + '_ {
    words.chunks_exact(WORDS).map(|w| Entry {
        page: w[0] & !3,
        offset: w[1],
        len: w[2],
        bus: w[3],
        bus_len: w[4],
    })
}

impl DmaCheck {
    /// A mapping function for lists has returned; the mapping may have failed.
    pub(super) fn list_mapped(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp, result: u64) {
        let DmaOp::MapList { dev, list, count, dir } = *op else { return };
        self.lists.mapped = None;
        let dev = arg(&hook.args, dev);
        let dir = Dir::of(arg(&hook.args, dir));
        let (list, count, segments) = match count {
            Some(count) => {
                let segments = u64::from(result as u32);
                if segments == 0 {
                    return;
                }
                (arg(&hook.args, list), u64::from(arg(&hook.args, count) as u32), segments)
            }
            None => {
                // The last two values are those of the table: its first element and the number of elements.
                let Some(&[list, count]) = hook.args.last_chunk::<2>() else { return };
                if result as u32 != 0 {
                    return;
                }
                (list, count, count)
            }
        };
        let Some(device) = self.device(cx, dev, hook.module.is_some()) else { return };
        if device.no_unmap || dev == 0 {
            return;
        }
        let mut again = 0;
        if let Some(old) = self.maps.of_list(dev, list) {
            let old = self.maps.remove(old);
            again = old.as_ref().map_or(0, |old| old.again.saturating_add(1));
            if let Some(old) = old.filter(|_| hook.module.is_some()) {
                let state = cx.state;
                cx.report(NAME, "dma-repeated-map", place(cx, hook), || Draft {
                    related: vec![text::related(state, "mapped before", old.stack)],
                    ..Draft::error(format!("a list mapped {} that is mapped already", dir.name()))
                });
            }
        }
        let mut mapping = Mapping::new(dev, dir, MapKind::List, 0);
        mapping.list = Some((list, count));
        mapping.again = again;
        if let Some(id) = self.lend(cx, hook, mapping, false) {
            self.lists.mapped = Some((hook.rsp, id, segments));
        }
    }

    /// The log holds the elements of a list.
    pub(super) fn list_told(&mut self, cx: &mut Cx<'_>, hook: &Hooked, told: PassedList<'_>) {
        if told.returned {
            let Some((rsp, id, segments)) = self.lists.mapped.take() else { return };
            if rsp == hook.rsp {
                self.fill(cx, hook, id, segments, told.words);
            }
            return;
        }
        let Some(unknown) = self.lists.unknown.take().filter(|u| u.rsp == hook.rsp) else { return };
        let Some(first) = entries(told.words).next() else { return };
        let best = self
            .maps
            .exact(unknown.dev, first.bus)
            .max_by_key(|(_, m)| m.kind == MapKind::List)
            .map(|(id, _)| id);
        match best {
            Some(id) => self.list_found(cx, hook, id, &unknown),
            None if hook.module.is_none() => {}
            None => match unknown.sync {
                None => self.unknown_unmapped(cx, hook, unknown.dev, first.bus, "unmap"),
                Some(_) => self.unknown_synced(cx, hook, unknown.dev, first.bus),
            },
        }
    }

    fn fill(&mut self, cx: &mut Cx<'_>, hook: &Hooked, id: MapId, segments: u64, words: &[u64]) {
        let state = cx.state;
        let memory: Vec<(u64, u64)> = entries(words)
            .filter(|e| e.page != 0 && e.len > 0)
            .map(|e| (state.page_address(e.page).wrapping_add(e.offset), e.len))
            .collect();
        // Where neighbors were joined, there are fewer segments than elements; the elements behind have no
        // length.
        let bus: Vec<(u64, u64)> = entries(words)
            .take(usize::try_from(segments).unwrap_or(usize::MAX))
            .filter(|e| e.bus_len > 0)
            .map(|e| (e.bus, e.bus_len))
            .collect();
        let Some(m) = self.maps.get_mut(id) else { return };
        m.size = memory.iter().fold(0, |sum, piece| sum.saturating_add(piece.1));
        m.objects = super::streaming::objects_of(state, &memory);
        let mut new = m.clone();
        if hook.module.is_some() {
            let bad = memory
                .iter()
                .take(64)
                .find_map(|piece| super::streaming::bad_buffer(state, piece.0, hook.rsp));
            if let Some((what, object)) = bad {
                m.told = true;
                cx.report(NAME, "dma-bad-buffer", place(cx, hook), || Draft {
                    object,
                    ..Draft::error(format!("{what} in {}", text::mapping(&new)))
                });
            } else {
                new.memory = memory.clone();
                self.judge_overlap(cx, hook, &new);
                self.judge_alignment(cx, hook, &new);
            }
        }
        let lent = Lent { synced: false, dev: new.dev, dir: new.dir, memory: &memory };
        self.device_gets(cx, hook, &lent);
        self.maps.fill(id, memory, bus);
    }

    /// A list is about to be unmapped.
    pub(super) fn list_unmapped(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp) {
        let DmaOp::UnmapList { dev, list, count, dir } = *op else { return };
        self.list_used(cx, hook, (dev, list, count, dir), None);
    }

    /// A list is about to be synchronized.
    pub(super) fn list_synced(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp) {
        let DmaOp::SyncList { dev, list, count, dir, for_cpu } = *op else { return };
        self.looked(cx, arg(&hook.args, dev));
        self.list_used(cx, hook, (dev, list, Some(count), dir), Some(for_cpu));
    }

    fn list_used(
        &mut self,
        cx: &mut Cx<'_>,
        hook: &Hooked,
        (dev, list, count, dir): (u8, u8, Option<u8>, u8),
        sync: Option<bool>,
    ) {
        let used = Unknown {
            rsp: hook.rsp,
            dev: arg(&hook.args, dev),
            list: arg(&hook.args, list),
            count: count.map_or(0, |count| u64::from(arg(&hook.args, count) as u32)),
            dir: Dir::of(arg(&hook.args, dir)),
            sync,
        };
        self.lists.unknown = None;
        match self.maps.of_list(used.dev, used.list) {
            Some(id) => self.list_found(cx, hook, id, &used),
            // The list may have been copied: its elements show which mapping it was.
            None => self.lists.unknown = Some(used),
        }
    }

    fn list_found(&mut self, cx: &mut Cx<'_>, hook: &Hooked, id: MapId, used: &Unknown) {
        let judged = hook.module.is_some();
        let Some(m) = self.maps.get(id).cloned() else { return };
        let entries = m.list.map_or(0, |list| list.1);
        if let Some(for_cpu) = used.sync {
            if judged && entries != 0 && used.count > entries {
                let state = cx.state;
                cx.report(NAME, "dma-sync-range", place(cx, hook), || Draft {
                    related: vec![text::related(state, "mapped", m.stack)],
                    ..Draft::error(format!("{} synchronized with {} entries", text::mapping(&m), used.count))
                });
            }
            self.judge_direction(cx, hook, &m, used.dir, for_cpu);
            if !for_cpu {
                self.handed_over(cx, id, 0, u64::MAX);
                let lent = Lent { synced: true, dev: m.dev, dir: m.dir, memory: &m.memory };
                self.device_gets(cx, hook, &lent);
            }
            if let Some(m) = self.maps.get_mut(id) {
                for (at, len) in m.memory.clone() {
                    if for_cpu {
                        m.give(at, at.saturating_add(len));
                    } else {
                        m.take(at, at.saturating_add(len));
                    }
                }
            }
            return;
        }
        if let Some(m) = self.maps.get_mut(id).filter(|m| m.again > 0) {
            m.again -= 1;
            return;
        }
        self.no_doubt(cx, id);
        self.taken_back(cx, m.dev, &m.memory);
        self.maps.remove(id);
        self.maps.bury(&m, hook.stack);
        let wrong = if m.kind != MapKind::List {
            Some(format!("dma_unmap_sg of {}", text::mapping(&m)))
        } else if used.count != entries {
            Some(format!("{} unmapped with {} entries", text::mapping(&m), used.count))
        } else if used.dir != m.dir {
            Some(format!("{} unmapped as {}", text::mapping(&m), used.dir.name()))
        } else {
            None
        };
        if let Some(message) = wrong.filter(|_| judged) {
            self.mismatch(cx, hook, &m, message);
        }
    }
}
