//! Which object each pointer came from, in registers and in memory.
//!
//! **Knows**: the objects that the driver allocated, by number, and the pointers to them that the driver stored.
//!
//! **Must not know**: what is worth a report. [`Provenance::judge`] says where an access left its object.
//!
//! An object gets its number when its allocator returns to the driver. The number stays after the free, also when
//! the memory is allocated again, until so many others were freed that it is used anew. Memory that code which is
//! not watched may have written holds no pointers any more: what a call defines, frees and allocations, the
//! stack below the driver's frames.
//!
//! **Invariant**: memory stays bounded. Beyond the limits nothing is known, which loses findings and never
//! invents any.

mod pointees;
mod words;

pub use pointees::Stray;

use crate::machine::{Object, State, USER_END};
use crate::stacks::same_stack;
use crate::value_flow::{InsnCtx, MIXED, Pointer, Reach};
use guardrail_knowledge::effect::Class;
use guardrail_trace::event::Access;
use pointees::Pointees;
use rustc_hash::FxHashMap;
use words::Words;

/// Most contexts that have an allocation that has not returned to the driver yet.
const MAX_FRESH: usize = 8192;

/// The service. It is kept only where a checker needs it.
#[derive(Debug, Default)]
pub struct Provenance {
    on: bool,
    pointees: Pointees,
    words: Words,
    /// The object that the kernel function which a context calls has allocated last.
    fresh: FxHashMap<usize, u32>,
}

impl Provenance {
    /// The service for a run in which nothing has happened; it does nothing unless it is `on`.
    pub(crate) fn new(on: bool) -> Provenance {
        Provenance { on, ..Provenance::default() }
    }

    /// An object was allocated by a call of this context, or turned out to have another size or owner.
    pub(crate) fn allocated(&mut self, context: Option<usize>, object: &Object) {
        let pointed = matches!(
            object.class,
            Class::Slab | Class::Cache | Class::Managed | Class::Page | Class::Vmalloc | Class::Dma
        );
        if !self.on || !object.by_driver || !pointed {
            return;
        }
        if let Some(number) = self.pointees.allocated(object)
            && let Some(context) = context
        {
            if self.fresh.len() >= MAX_FRESH {
                self.fresh.clear();
            }
            self.fresh.insert(context, number);
        }
    }

    /// An object was freed. Where its memory may be `read` on, nothing is known of its pointers any more.
    pub(crate) fn freed(&mut self, object: &Object, read: bool) {
        if self.on {
            self.pointees.freed(object, read);
        }
    }

    /// The memory of an object belongs to something else.
    pub(crate) fn gone(&mut self, object: &Object) {
        if self.on {
            self.pointees.gone(object);
        }
    }

    /// The pointer that a call of this context has returned; `None` where it is not an object's that the call has
    /// allocated.
    pub(crate) fn returned(&mut self, context: usize, result: u64) -> Option<Pointer> {
        if self.fresh.is_empty() {
            return None;
        }
        let from = self.fresh.remove(&context)?;
        let start = self.pointees.start(from)?;
        (start == result).then_some(Pointer { from, certain: true, value: Some(result) })
    }

    /// The pointer that the driver has loaded from memory.
    #[inline]
    pub(crate) fn loaded(&mut self, access: &Access) -> Option<Pointer> {
        if access.size != 8 { None } else { self.words.get(access.addr) }
    }

    /// The driver stored something.
    #[inline]
    pub(crate) fn overwritten(&mut self, access: &Access) {
        self.words.overwrite(access.addr, u64::from(access.size));
    }

    /// The driver stored a pointer. An object whose address was stored in another one for the first time remembers
    /// the place.
    pub(crate) fn stored(&mut self, state: &mut State, insn: &InsnCtx, access: &Access, pointer: Pointer) {
        if access.size != 8 || access.io || access.addr < USER_END {
            return;
        }
        if insn.rsp.is_some_and(|rsp| same_stack(rsp, access.addr)) {
            return self.words.put(access.addr, pointer);
        }
        if pointer.from == MIXED {
            return;
        }
        if state.modules.contains(access.addr) {
            return self.words.put(access.addr, pointer);
        }
        let holder = state.objects.at(access.addr).map(|(_, object)| object);
        match holder {
            Some(object) if object.is_live() && is_drivers_own(object) => {
                self.words.put(access.addr, pointer);
            }
            // The kernel or a device may write there at any time.
            Some(object) if object.is_live() && pointer.value.is_some() => {
                self.words.put(access.addr, Pointer { certain: false, ..pointer });
            }
            _ => {}
        }
        if let Some(holder) = holder.filter(|holder| holder.is_live() && access.addr >= holder.start)
            && let Some(held) = self.pointees.first_held(pointer)
        {
            let at = (holder.start, access.addr - holder.start);
            if let Some(id) = state.objects.at(held).map(|(id, _)| id)
                && let Some(object) = state.objects.get_mut(id).filter(|object| object.start == held)
            {
                object.held_at = Some(at);
            }
        }
    }

    /// A pointer was compared with a value that came from elsewhere, and a compiler may use one for the other where
    /// they are equal. Returns whether that makes a difference.
    pub(crate) fn compared(&mut self, pointer: Pointer) -> bool {
        self.pointees.compared(pointer)
    }

    /// Code that is not watched may have written the range.
    pub(crate) fn forget(&mut self, addr: u64, len: u64) {
        if self.on {
            self.words.clear(addr, len);
        }
    }

    /// Where an access has left the object that its pointer came from; `None` where it has not, or may do so.
    #[inline]
    pub(crate) fn judge(&self, state: &State, reach: &Reach) -> Option<Stray> {
        if self.pointees.holds(reach) { None } else { self.pointees.judge(state, reach) }
    }
}

/// Whether no other code writes pointers into an object, unless the driver passes their place. The kernel allocates
/// structures of its own from caches, such as packets, and devices write coherent memory.
fn is_drivers_own(object: &Object) -> bool {
    object.by_driver && matches!(object.class, Class::Slab | Class::Managed | Class::Page | Class::Vmalloc)
}
