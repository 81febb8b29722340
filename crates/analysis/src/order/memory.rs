//! What accesses of the driver do to the order: atomics, DMA memory and published words release and acquire.

use super::clocks::Relation;
use super::{ContextOrder, DEVICE, Name, Order};
use crate::value_flow::InsnCtx;
use guardrail_trace::event::Access;

impl Order {
    /// The driver accesses memory. Atomics and DMA memory release and acquire.
    #[inline]
    pub(crate) fn touched(&mut self, context: &mut ContextOrder, insn: &InsnCtx, access: &Access) {
        if access.io {
            if access.store {
                self.signals_device(context, true);
            }
            if access.store && context.lets_device_interrupt() && self.parts.states {
                self.release(context.now.strand, DEVICE);
                context.now.clock = self.clock(context.now.strand);
            }
            return;
        }
        if !self.parts.atomics {
            return;
        }
        if self.published.may_have(access.addr) && !insn.access.locked && !insn.access.updates {
            self.touched_published(context, access);
        }
        if !context.sections.is_empty() {
            context.in_section(insn, access);
        }
        if insn.access.locked {
            self.touched_locked(context, insn, access);
        } else if !insn.access.updates
            && let Some(atom) = self.atoms.atom(access.addr)
        {
            // A plain update of an atomic releases nothing: it may lose what other strands write.
            let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
            if access.store {
                atom.replace(strand);
            } else {
                atom.acquire(strand, bit(insn, access));
            }
            context.now.clock = strand.time;
        } else if self.atoms.is_shared(access.addr) {
            self.touched_shared(context, access.addr, u64::from(access.size), access.store);
            if access.store {
                self.signals_device(context, false);
            }
        }
    }

    fn touched_locked(&mut self, context: &mut ContextOrder, insn: &InsnCtx, access: &Access) {
        let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
        let atom = self.atoms.add(access.addr);
        if access.store {
            atom.release(strand, bit(insn, access));
        } else {
            atom.acquire(strand, bit(insn, access));
        }
        context.now.clock = strand.time;
    }

    fn touched_shared(&mut self, context: &mut ContextOrder, addr: u64, size: u64, store: bool) {
        let Some(strand) = self.strands.get_mut(context.now.strand) else { return };
        self.atoms.each_cell(addr, size, store, |var| {
            if store {
                strand.release(var, Relation::Hard);
            } else {
                strand.acquire(var, Relation::Hard);
            }
        });
        context.now.clock = strand.time;
    }

    /// The driver accesses a range.
    pub(crate) fn touched_range(&mut self, context: &mut ContextOrder, addr: u64, size: u64, store: bool) {
        if self.parts.atomics && self.atoms.is_shared(addr) {
            self.touched_shared(context, addr, size, store);
            if store {
                self.signals_device(context, false);
            }
        }
    }

    /// Marks a range as coherent DMA memory.
    pub(crate) fn share(&mut self, from: u64, to: u64) {
        if self.parts.atomics {
            self.atoms.share(from, to);
        }
    }

    /// Forgets order by words in a range: its memory was freed or allocated.
    pub(crate) fn forget(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        self.locks.forget(from, to);
        self.charts.forget(from, to);
        self.atoms.forget(from, to);
        self.published.forget(from, to);
        self.lent.forget(from, to);
        if !self.object_pages.may_have(from, to) {
            return;
        }
        let range = Name::At(from)..Name::At(to);
        while let Some((&name, _)) = self.objects.range(range.clone()).next() {
            self.objects.remove(&name);
        }
    }
}

/// The bit of its word that an access is about; `None` where the instruction does not say one.
fn bit(insn: &InsnCtx, access: &Access) -> Option<u8> {
    insn.access.bit.map(|bit| (((access.addr & 7) * 8 + u64::from(bit)) & 63) as u8)
}
