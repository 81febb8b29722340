//! `dma_map_*` and `dma_unmap_*` of one buffer.

use super::maps::{Dir, MapId, Mapping};
use super::uninit::Lent;
use super::{DmaCheck, LINE, NAME, arg, key, length, place, same_block, text};
use crate::checker::{Cx, Draft, Hooked, Site};
use crate::definedness::MAX_RANGE;
use crate::machine::{Object, ObjectId, Out, State, USER_END};
use guardrail_finding::Severity;
use guardrail_knowledge::effect::{Class, DmaOp, MapKind};

/// The value of `DMA_MAPPING_ERROR`.
const FAILED: u64 = u64::MAX;
/// The kernel's image and its modules lie above this address.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// Why memory at an address must not be lent to a device, and the object there; `None` where it may be lent.
pub(super) fn bad_buffer(state: &State, at: u64, rsp: u64) -> Option<(String, Option<Object>)> {
    let plain = |text: &str| Some((text.to_owned(), None));
    if at < 4096 {
        return plain("a null pointer");
    }
    if at < USER_END {
        return plain("user memory");
    }
    if state.is_vmalloc(at) {
        return if same_block(at, rsp) { plain("a buffer on the stack") } else { plain("vmalloc memory") };
    }
    if at >= IMAGE {
        return if let Some((_, module)) = state.modules.at(at) {
            Some((format!("memory of the module {}", module.name), None))
        } else if !state.kernel_function(at).is_empty() {
            plain("the kernel's text")
        } else {
            None
        };
    }
    let (_, object) = state.objects.at(at)?;
    let freed = !object.is_live() && object.by_driver;
    freed.then(|| {
        (format!("freed memory, a {}-byte {} object", object.size, object.class.name()), Some(object.clone()))
    })
}

impl DmaCheck {
    /// The driver calls a kernel function. It may be one of those at the beginning of `dma_map_single`.
    pub(super) fn asks(&mut self, cx: &mut Cx<'_>, out: &Out, op: Option<&DmaOp>) {
        let Some(key) = key(cx) else { return };
        match op {
            Some(DmaOp::AskVmalloc { addr }) => {
                if self.asked.len() >= super::MAX_OPEN {
                    self.asked.clear();
                }
                self.asked.insert(key, arg(&out.args, *addr));
            }
            Some(DmaOp::NameDriver) => {
                let Some(at) = self.asked.remove(&key).filter(|&at| cx.state.is_vmalloc(at)) else { return };
                let Some((what, object)) = bad_buffer(cx.state, at, out.entry_rsp) else { return };
                cx.report(NAME, "dma-bad-buffer", Site::Call, || Draft {
                    object,
                    ..Draft::error(format!("{what} given to dma_map_single, which refuses it"))
                });
            }
            Some(DmaOp::Map { .. }) => {}
            _ => {
                if !self.asked.is_empty() {
                    self.asked.remove(&key);
                }
            }
        }
    }

    /// A mapping function for one buffer has returned; the mapping may have failed.
    pub(super) fn mapped(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp, result: u64) {
        let DmaOp::Map { dev, ptr, physical, len, dir, kind } = *op else { return };
        let state = cx.state;
        let (dev, size, dir) = (arg(&hook.args, dev), length(&hook.args, len), Dir::of(arg(&hook.args, dir)));
        let at = match physical {
            Some(i) => state.page_offset.wrapping_add(arg(&hook.args, i)),
            None => state.pointer(ptr, &hook.args),
        };
        let asked = key(cx).and_then(|key| self.asked.remove(&key)).filter(|_| hook.by_driver);
        let judged = hook.module.is_some();
        let mut bad = false;
        if judged && kind != MapKind::Resource {
            // The `struct page` says little about an address outside the direct map.
            let buffer = asked.filter(|asked| asked & 0xfff == at & 0xfff).unwrap_or(at);
            if let Some((what, object)) = bad_buffer(state, buffer, hook.rsp) {
                bad = true;
                cx.report(NAME, "dma-bad-buffer", place(cx, hook), || Draft {
                    object,
                    ..Draft::error(format!("{what} mapped {} for a device", dir.name()))
                });
            }
        }
        if result == FAILED || dev == 0 {
            return;
        }
        if kind != MapKind::Resource && !bad {
            self.device_gets(cx, hook, &Lent { synced: false, dev, dir, memory: &[(at, size)] });
        }
        let Some(device) = self.device(cx, dev, judged) else { return };
        if device.no_unmap {
            return;
        }
        let mut mapping = Mapping::new(dev, dir, kind, size);
        mapping.bus = vec![(result, size)];
        if kind != MapKind::Resource && !bad {
            mapping.memory = vec![(at, size)];
        }
        self.lend(cx, hook, mapping, bad);
        if hook.by_driver
            && let Some(context) = cx.context
        {
            self.unchecked.add(context, hook.stack, size);
        }
    }

    /// Judges a mapping against the live ones, and adds it.
    pub(super) fn lend(
        &mut self,
        cx: &mut Cx<'_>,
        hook: &Hooked,
        mut mapping: Mapping,
        told: bool,
    ) -> Option<MapId> {
        mapping.stack = hook.stack;
        mapping.module = hook.module;
        mapping.by_driver = hook.by_driver;
        mapping.told = told;
        mapping.objects = objects_of(cx.state, &mapping.memory);
        if hook.module.is_some() && !mapping.memory.is_empty() {
            self.judge_overlap(cx, hook, &mapping);
            self.judge_alignment(cx, hook, &mapping);
        }
        self.maps.add(mapping)
    }

    pub(super) fn judge_overlap(&self, cx: &mut Cx<'_>, hook: &Hooked, new: &Mapping) {
        let state = cx.state;
        for &(at, len) in new.memory.iter().take(64) {
            let end = at.saturating_add(len);
            let (first, last) = (at & !(LINE - 1), end.saturating_add(LINE - 1) & !(LINE - 1));
            for id in self.maps.on(first, last - first) {
                let Some(old) = self.maps.get(id) else { continue };
                let writes = old.dir.writes() || new.dir.writes();
                if old.module.is_none() || old.kind == MapKind::Resource {
                    continue;
                }
                let synced = self.devices.get(&old.dev).is_some_and(|d| old.serial <= d.synced);
                if let Some((from, size)) = old.piece(at, end) {
                    let (a, b) = (at.max(from), end.min(from.saturating_add(size)));
                    if old.is_owned(a, b) || synced {
                        continue;
                    }
                    let same = from == at && old.dev == new.dev;
                    // The kernel or another driver may have sent the same data to the device before, which
                    // does no harm.
                    let own = state.objects.at(at).is_some_and(|(_, o)| o.by_driver) && size == len;
                    if !(writes || same && own) {
                        continue;
                    }
                    let kind = if same { "dma-repeated-map" } else { "dma-overlap" };
                    cx.report(NAME, kind, place(cx, hook), || Draft {
                        severity: if writes { Severity::Error } else { Severity::Warning },
                        object: state.objects.at(at).map(|(_, o)| o.clone()),
                        related: vec![text::related(state, "mapped before", old.stack)],
                        ..Draft::error(if same {
                            format!("{} that is mapped already, {}", text::mapping(new), old.dir.name())
                        } else {
                            format!(
                                "{} over {} of {}",
                                text::mapping(new),
                                text::bytes(b - a),
                                text::mapping(old)
                            )
                        })
                    });
                    return;
                }
                let Some((from, size)) = old.piece(first, last).filter(|_| writes && !synced) else {
                    continue;
                };
                // Allocators keep objects that must not share a line apart. Only two buffers within one
                // object are the driver's fault.
                let id = |at| state.objects.at(at).filter(|(_, o)| o.by_driver).map(|(id, _)| id);
                if id(at).is_none() || id(at) != id(from) {
                    continue;
                }
                cx.report(NAME, "dma-overlap", place(cx, hook), || Draft {
                    severity: Severity::Warning,
                    object: state.objects.at(at).map(|(_, o)| o.clone()),
                    related: vec![text::related(state, "mapped before", old.stack)],
                    notes: vec![
                        "harmless on x86, whose caches are coherent; elsewhere one mapping destroys what the other brings".to_owned(),
                    ],
                    ..Draft::error(format!(
                        "{} shares a cache line with {}, {} apart",
                        text::mapping(new),
                        text::mapping(old),
                        text::bytes(if from > at { from - end } else { at - from.saturating_add(size) })
                    ))
                });
                return;
            }
        }
    }

    pub(super) fn judge_alignment(&self, cx: &mut Cx<'_>, hook: &Hooked, new: &Mapping) {
        let Some(line) = self.line else { return };
        let state = cx.state;
        for &(at, len) in new.memory.iter().take(64) {
            if at % line == 0 && (len % line == 0 || !new.dir.writes()) {
                continue;
            }
            cx.report(NAME, "dma-misaligned", place(cx, hook), || Draft {
                severity: if new.dir.writes() { Severity::Warning } else { Severity::Note },
                object: state.objects.at(at).map(|(_, o)| o.clone()),
                ..Draft::error(if at % line != 0 {
                    format!(
                        "{} begins {} into a cache line of {line}",
                        text::mapping(new),
                        text::bytes(at % line)
                    )
                } else {
                    format!(
                        "{} ends {} into a cache line of {line}",
                        text::mapping(new),
                        text::bytes(len % line)
                    )
                })
            });
            return;
        }
    }

    /// A buffer is about to be unmapped.
    pub(super) fn unmapped(&mut self, cx: &mut Cx<'_>, hook: &Hooked, op: &DmaOp) {
        let DmaOp::Unmap { dev, addr, len, dir, kind } = *op else { return };
        let (dev, bus, size) = (arg(&hook.args, dev), arg(&hook.args, addr), length(&hook.args, len));
        let dir = Dir::of(arg(&hook.args, dir));
        let judged = hook.module.is_some();
        if bus == FAILED {
            if judged {
                cx.report(NAME, "dma-unchecked", place(cx, hook), || {
                    Draft::error("a failed mapping (DMA_MAPPING_ERROR) is unmapped".to_owned())
                });
            }
            return;
        }
        let fits = |m: &Mapping| u8::from(m.size == size) + u8::from(m.dir == dir) + u8::from(m.kind == kind);
        let best = self.maps.exact(dev, bus).max_by_key(|(_, m)| fits(m)).map(|(id, _)| id);
        let Some(id) = best else {
            if judged {
                self.unknown_unmapped(cx, hook, dev, bus, "unmap");
            }
            return;
        };
        let Some(m) = self.maps.remove(id) else { return };
        self.no_doubt(cx, id);
        self.taken_back(cx, m.dev, &m.memory);
        self.maps.bury(&m, hook.stack);
        let wrong = if m.kind == MapKind::List && kind != MapKind::List {
            Some(format!("dma_unmap_single or dma_unmap_page of {}", text::mapping(&m)))
        } else if m.kind != kind {
            Some(format!("{} unmapped by a function for others", text::mapping(&m)))
        } else if m.size != size {
            Some(format!("{} unmapped with the size {size}", text::mapping(&m)))
        } else if m.dir != dir {
            Some(format!("{} unmapped as {}", text::mapping(&m), dir.name()))
        } else {
            None
        };
        if let Some(message) = wrong.filter(|_| judged) {
            self.mismatch(cx, hook, &m, message);
        }
    }

    /// Reports a mapping that is unmapped in another way than it was mapped.
    pub(super) fn mismatch(&self, cx: &mut Cx<'_>, hook: &Hooked, m: &Mapping, message: String) {
        let state = cx.state;
        cx.report(NAME, "dma-unmap-mismatch", place(cx, hook), || Draft {
            object: m.memory.first().and_then(|piece| state.objects.at(piece.0)).map(|(_, o)| o.clone()),
            related: vec![text::related(state, "mapped", m.stack)],
            ..Draft::error(message)
        });
    }

    /// Reports an unmap of an address where nothing is mapped.
    pub(super) fn unknown_unmapped(
        &mut self,
        cx: &mut Cx<'_>,
        hook: &Hooked,
        dev: u64,
        bus: u64,
        verb: &str,
    ) {
        let state = cx.state;
        // The driver may have passed the wrong device.
        let elsewhere = self.devices.keys().filter(|&&other| other != dev).find_map(|&other| {
            self.maps.exact(other, bus).find(|(_, m)| m.module.is_some()).map(|(id, _)| id)
        });
        if self.maps.gone(dev, bus).is_none()
            && let Some(m) = elsewhere.filter(|_| hook.by_driver).and_then(|id| self.maps.remove(id))
        {
            self.maps.bury(&m, hook.stack);
            let message = format!("{} for another device than this {verb} names", text::mapping(&m));
            return self.mismatch(cx, hook, &m, message);
        }
        if !self.is_complete(dev) {
            return;
        }
        if let Some((id, (start, _))) = self.maps.holding(dev, bus, 1)
            && start != bus
            && let Some(m) = self.maps.remove(id)
        {
            self.maps.bury(&m, hook.stack);
            let message = format!("{verb} at offset {} of {}", bus - start, text::mapping(&m));
            return self.mismatch(cx, hook, &m, message);
        }
        let gone = self.maps.gone(dev, bus);
        cx.report(NAME, "dma-repeated-unmap", place(cx, hook), || {
            let related = gone.map_or_else(Vec::new, |gone| {
                vec![
                    text::related(state, "mapped", gone.mapped),
                    text::related(state, "unmapped before", gone.unmapped),
                ]
            });
            let message = match gone {
                Some(_) => format!("{verb} of a buffer that has been unmapped already"),
                None => format!("{verb} of a bus address that is not mapped"),
            };
            Draft { related, ..Draft::error(message) }
        });
    }

    /// An object was freed: it must not be mapped for a device any more.
    pub(super) fn object_freed(&mut self, cx: &mut Cx<'_>, id: ObjectId, object: &Object) {
        let len = object.end().saturating_sub(object.start).min(MAX_RANGE);
        if len == 0 || matches!(object.class, Class::Io | Class::Percpu) {
            return;
        }
        let state = cx.state;
        for map in self.maps.on(object.start, len) {
            let Some(m) = self.maps.get_mut(map) else { continue };
            if m.piece(object.start, object.end()).is_none() || !m.objects.contains(&(id, object.serial)) {
                continue;
            }
            let judged = m.module.is_some() && !m.told;
            m.told = true;
            let m = m.clone();
            self.maps.detach(map);
            if !judged {
                continue;
            }
            // The kernel may free memory that the driver released too early.
            let freed = object.freed.unwrap_or_default();
            let inside = state.stacks.get(freed).iter().skip(1).any(|&at| state.modules.contains(at));
            let at = if inside { freed } else { m.stack };
            let writes = m.dir.writes();
            let only_read = "the device cannot change it, but may send what the next owner writes";
            cx.report(NAME, "dma-freed-while-mapped", Site::Stack(at), || Draft {
                severity: if writes { Severity::Error } else { Severity::Warning },
                notes: if writes { Vec::new() } else { vec![only_read.to_owned()] },
                object: Some(object.clone()),
                related: vec![text::related(state, "mapped", m.stack)],
                ..Draft::error(format!(
                    "memory freed that the device {}: {}",
                    text::rights(m.dir),
                    text::mapping(&m)
                ))
            });
        }
    }
}

/// The objects that memory lies in, with their serial numbers.
pub(super) fn objects_of(state: &State, memory: &[(u64, u64)]) -> Vec<(ObjectId, u64)> {
    let at = |&(at, _): &(u64, u64)| {
        state.objects.at(at).filter(|(_, o)| o.is_live()).map(|(id, o)| (id, o.serial))
    };
    let mut objects: Vec<_> = memory.iter().take(16).filter_map(at).collect();
    objects.dedup();
    objects
}
