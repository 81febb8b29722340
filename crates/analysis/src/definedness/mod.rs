//! Which bits of memory are undefined, and which bytes must not be accessed.
//!
//! **Knows**: what makes memory defined or undefined, and where an undefined value was made. What may have been
//! written by code that is not watched holds no [pointer](crate::provenance) any more.
//!
//! **Must not know**: what is worth a report. Checkers judge by the shadow memory, which they find in
//! [`Cx`](crate::checker::Cx).
//!
//! The replay passes events to the service after the checkers, so these see the memory as it was before. Only
//! the return of a call is passed to the service first: what the call wrote is there when checkers see the
//! return. Undefined bytes that leave the driver count as defined from then on, so that they are reported
//! once.

mod effects;
mod origins;
mod shadow;

pub(crate) use effects::is_to_device;
pub use origins::Origins;
pub use shadow::{MAX_RANGE, Shadow};

use crate::machine::{Module, Object, State, USER_END};
use crate::provenance::{Provenance, Stray};
use crate::stacks::STACK_SIZE;
use crate::value_flow::{InsnCtx, Reach, RepRange, Value};
use guardrail_knowledge::effect::Class;
use guardrail_trace::event::Access;

/// The definedness of the guest's memory. It is kept only where a checker needs it.
#[derive(Debug, Default)]
pub struct Definedness {
    on: bool,
    /// The bits and bytes.
    pub shadow: Shadow,
    /// Where undefined values were made.
    pub origins: Origins,
    /// Which object each pointer came from.
    pub provenance: Provenance,
}

impl Definedness {
    /// The service for a run in which nothing has happened; it does nothing unless it is `on`. Only with
    /// `provenance` it keeps where pointers came from.
    pub(crate) fn new(on: bool, provenance: bool) -> Definedness {
        let provenance = Provenance::new(on && provenance);
        Definedness { on, provenance, ..Definedness::default() }
    }

    /// Where an access has left the object that its pointer came from, and hits bytes that may be accessed; what
    /// hits others is reported anyway.
    #[inline]
    pub(crate) fn stray(&self, state: &State, reach: &Reach) -> Option<Stray> {
        let stray = self.provenance.judge(state, reach)?;
        (!self.shadow.is_restricted(reach.addr, reach.len)).then_some(stray)
    }

    /// The driver read memory. Returns the definedness of the value.
    #[inline]
    pub(crate) fn load(&self, access: &Access) -> Value {
        if !self.on || access.io || access.addr < USER_END {
            return Value::DEFINED;
        }
        self.shadow.load(access.addr, access.size)
    }

    /// The driver wrote memory.
    #[inline]
    pub(crate) fn store(&mut self, access: &Access, value: Value) {
        self.provenance.overwritten(access);
        if self.on && (value.undef == 0 || !access.io && access.addr >= USER_END) {
            self.shadow.store(access.addr, access.size, value);
        }
    }

    /// A string instruction copied memory.
    pub(crate) fn rep_move(&mut self, state: &State, range: &RepRange) {
        let (dst, src, len) = (range.dst, range.src, range.bytes());
        if !self.on {
            return;
        }
        self.provenance.forget(dst, len);
        if dst < USER_END || range.io && src >= USER_END && state.objects.is_device(dst) {
            self.define(src, len);
        } else if src < USER_END || range.io {
            self.define(dst, len);
        } else {
            self.shadow.copy(dst, src, len);
        }
    }

    /// A string instruction filled memory.
    pub(crate) fn rep_set(&mut self, range: &RepRange, value: Value) {
        if !self.on || range.dst < USER_END {
            return;
        }
        self.provenance.forget(range.dst, range.bytes());
        if value.undef == 0 {
            self.shadow.set_defined(range.dst, range.bytes());
        } else if !range.io {
            self.shadow.set_undefined(range.dst, range.bytes(), value.origin);
        }
    }

    /// A string instruction read memory. Returns the definedness of the value.
    pub(crate) fn rep_read(&self, range: &RepRange) -> Value {
        if !self.on || range.io || range.src < USER_END {
            return Value::DEFINED;
        }
        match self.shadow.first_undefined(range.src, range.bytes()) {
            Some((_, origin, _)) => {
                let bits = u32::from(range.elem.min(8)) * 8;
                Value { undef: if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }, origin }
            }
            None => Value::DEFINED,
        }
    }

    /// An instruction moved the stack pointer.
    pub(crate) fn stack_adjusted(&mut self, insn: &InsnCtx, old: u64, new: u64) {
        if self.on && new < old && old - new <= STACK_SIZE {
            self.provenance.forget(new, old - new);
            let origin = self.origins.frame(insn.addr);
            self.shadow.set_undefined(new, old - new, origin);
        }
    }

    /// Every byte of the range is defined from now on; user memory always is.
    pub fn define(&mut self, addr: u64, len: u64) {
        if addr >= USER_END {
            self.provenance.forget(addr, len);
            self.shadow.set_defined(addr, len);
        }
    }

    /// An object was allocated, or turned out to have another size or owner.
    pub(crate) fn allocated(&mut self, object: &Object) {
        if !self.on || object.class == Class::Percpu {
            return;
        }
        self.forgotten(object.base, object.slot_end);
        if object.by_driver && !object.defined {
            let origin = self.origins.object(object);
            self.shadow.set_undefined(object.start, object.size, origin);
        }
        if object.by_driver || matches!(object.class, Class::Io | Class::Vmalloc) {
            self.shadow.restrict(object.base, object.start - object.base);
            self.shadow.restrict(object.end(), object.slot_end.saturating_sub(object.end()));
        }
    }

    /// An object was freed.
    pub(crate) fn freed(&mut self, object: &Object) {
        if self.on && object.class != Class::Percpu {
            let slot = object.slot_end - object.base;
            self.provenance.forget(object.base, slot);
            self.shadow.set_defined(object.base, slot);
            self.shadow.restrict(object.base, slot);
        }
    }

    /// Nothing is known any more about a range of memory.
    pub(crate) fn forgotten(&mut self, from: u64, to: u64) {
        if self.on {
            let len = to.saturating_sub(from);
            self.provenance.forget(from, len);
            self.shadow.allow(from, len);
            self.shadow.set_defined(from, len);
        }
    }

    /// A module was loaded.
    pub(crate) fn module_loaded(&mut self, module: &Module) {
        for gap in module.map.gaps.iter().filter(|_| self.on) {
            self.shadow.restrict(gap.start, gap.end.saturating_sub(gap.start).min(4096));
        }
    }

    /// A dump of the bytes around `addr`, like KASAN's memory state. `00` may be accessed, `fb` is freed, `fc`
    /// lies beyond an object, `uu` is undefined.
    pub(crate) fn dump(&self, state: &State, addr: u64) -> Vec<String> {
        let first = (addr & !15).saturating_sub(32);
        (0..5u64)
            .map(|row| first.saturating_add(row * 16))
            .map(|row| {
                let mark = if row == addr & !15 { ">" } else { " " };
                let cells = (0..16).map(|i| {
                    let at = row.saturating_add(i);
                    let code = if self.shadow.is_restricted(at, 1) {
                        match state.objects.at(at) {
                            Some((_, o)) if !o.is_live() => "fb",
                            _ => "fc",
                        }
                    } else if self.shadow.load(at, 1).undef != 0 {
                        "uu"
                    } else {
                        "00"
                    };
                    if at == addr { format!("[{code}]") } else { format!(" {code} ") }
                });
                format!("{mark}{row:#018x}:{}", cells.collect::<String>())
            })
            .collect()
    }
}
