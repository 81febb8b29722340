//! DMCheck: the driver must own every byte that it accesses, and must have written every bit that it decides
//! by.
//!
//! Policy, where the log does not say enough:
//! - Memory that no hook has seen may be accessed and is defined.
//! - Only memory that the driver allocated itself, without a request for zeroes, begins undefined. So do
//!   stack frames of driver functions. Allocator zeroing without a request does not count.
//! - A kernel function without a summary defines what its non-const pointer arguments point to. The length is
//!   the pointee's size where the prototype has it, otherwise the rest of the object or stack frame.
//! - Memory that is mapped for DMA from the device counts as defined from the mapping on.
//! - Where DMACheck runs, it says which memory devices get. Whether the bytes are defined is reported in its
//!   name.
//! - Only objects that the driver allocated, and vmalloc memory, have exact bounds: kernel code may use all
//!   of a slot (`ksize`).
//! - A leak is an object that the driver allocated and that no call frees before the log ends, after the
//!   module was unloaded. An object that was passed to a kernel function that may keep it is no leak.

mod accesses;
mod effects;
mod lent;
mod text;

use crate::checker::{BadFree, Checker, Cx, Draft, Fault, FreeFault, Lent, Place};
use crate::definedness::Shadow;
use crate::machine::{Object, ObjectId, Out};
use crate::stacks::STACK_SIZE;
use crate::value_flow::{InsnCtx, Origin, Regs, RepRange, Value};
use guardrail_finding::Severity;
use guardrail_knowledge::effect::Class;
use guardrail_trace::event::Access;
use text::{Origins, article};

/// Larger objects of kmalloc, in bytes, are pages.
const LARGEST_SLAB: u64 = 8192;
const NAME: &str = "dmcheck";
/// End of the half of the address space that belongs to user space.
const USER_END: u64 = 1 << 47;
/// Accesses below this address count as null dereferences.
const NULL_END: u64 = 4096;
/// Longest range in bytes that a string instruction or a call can plausibly access.
const MAX_RANGE: u64 = 1 << 28;

/// The checker's state.
#[derive(Debug)]
pub struct DmCheck {
    /// The name that its findings are reported under. Empty where it runs only to say for DMACheck what is
    /// defined.
    name: &'static str,
    shadow: Shadow,
    origins: Origins,
    /// Leaks among objects up to this serial number were reported.
    leaks_told: u64,
    /// DMACheck runs as well, and judges freed and leaked DMA memory.
    leaves_dma: bool,
    /// Findings about buffers that held nothing when they were mapped.
    doubts: Vec<lent::Doubt>,
}

impl Default for DmCheck {
    fn default() -> Self {
        DmCheck {
            name: NAME,
            shadow: Shadow::default(),
            origins: Origins::default(),
            leaks_told: 0,
            leaves_dma: false,
            doubts: Vec::new(),
        }
    }
}

impl DmCheck {
    /// A checker that reports only what DMACheck needs it for.
    pub fn for_dmacheck() -> DmCheck {
        DmCheck { name: "", leaves_dma: true, ..DmCheck::default() }
    }

    /// A checker that leaves DMACheck's part to DMACheck.
    pub fn beside_dmacheck() -> DmCheck {
        DmCheck { leaves_dma: true, ..DmCheck::default() }
    }
}

/// An access, with what messages need of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    addr: u64,
    len: u64,
    store: bool,
    place: Place,
}

impl Checker for DmCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    #[inline]
    fn load(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) -> Value {
        self.check(cx, insn, access);
        if access.io || access.addr < USER_END {
            return Value::DEFINED;
        }
        self.shadow.load(access.addr, access.size)
    }

    #[inline]
    fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, value: Value) {
        self.check(cx, insn, access);
        if value.undef != 0 && (access.io || access.addr < USER_END) {
            let place = Place::Insn(insn.addr);
            let size = u64::from(access.size);
            if access.io {
                self.uninit(cx, "uninit-to-device", place, value.origin, || {
                    format!("uninitialized value of {} written to a device register", text::bytes(size))
                });
            } else {
                self.uninit(cx, "uninit-to-user", place, value.origin, || {
                    format!("uninitialized value of {} written to user memory", text::bytes(size))
                });
            }
            return;
        }
        self.shadow.store(access.addr, access.size, value);
    }

    fn undefined_branch(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, origin: Origin) {
        self.uninit(cx, "uninit-branch", Place::Insn(insn.addr), origin, || {
            "branch decided by an uninitialized value".to_owned()
        });
    }

    fn undefined_address(
        &mut self,
        cx: &mut Cx<'_>,
        insn: &InsnCtx,
        access: Access,
        reg: u8,
        origin: Origin,
    ) {
        self.uninit(cx, "uninit-address", Place::Insn(insn.addr), origin, || {
            format!(
                "{} of {} at an address made from an uninitialized value (in {})",
                text::noun(access.store),
                text::bytes(u64::from(access.size)),
                crate::value_flow::gpr_name(reg)
            )
        });
    }

    fn undefined_port_output(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, origin: Origin) {
        self.uninit(cx, "uninit-to-device", Place::Insn(insn.addr), origin, || {
            "uninitialized value written to a port".to_owned()
        });
    }

    fn rep_move(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let len = range.count.saturating_mul(u64::from(range.elem)).min(MAX_RANGE);
        let place = Place::Insn(insn.addr);
        self.check_range(cx, range.src, len, false, place, insn.rsp);
        self.check_range(cx, range.dst, len, true, place, insn.rsp);
        if range.dst < USER_END {
            if range.src >= USER_END {
                self.undefined_range(
                    cx,
                    "uninit-to-user",
                    place,
                    (range.src, len),
                    "bytes copied to user memory",
                );
            }
        } else if range.src < USER_END {
            self.shadow.set_defined(range.dst, len);
        } else if range.io {
            if cx.state.objects.at(range.dst).is_some_and(|(_, o)| o.class == Class::Io) {
                self.undefined_range(
                    cx,
                    "uninit-to-device",
                    place,
                    (range.src, len),
                    "bytes copied to a device",
                );
            } else {
                self.shadow.set_defined(range.dst, len);
            }
        } else {
            self.shadow.copy(range.dst, range.src, len);
        }
    }

    fn rep_set(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange, value: Value) {
        let len = range.count.saturating_mul(u64::from(range.elem)).min(MAX_RANGE);
        self.check_range(cx, range.dst, len, true, Place::Insn(insn.addr), insn.rsp);
        if range.dst < USER_END {
            return;
        }
        if value.undef == 0 {
            self.shadow.set_defined(range.dst, len);
        } else if !range.io {
            self.shadow.set_undefined(range.dst, len, value.origin);
        }
    }

    fn rep_read(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) -> Value {
        let len = range.count.saturating_mul(u64::from(range.elem)).min(MAX_RANGE);
        self.check_range(cx, range.src, len, false, Place::Insn(insn.addr), insn.rsp);
        if range.io || range.src < USER_END {
            return Value::DEFINED;
        }
        match self.shadow.first_undefined(range.src, len) {
            Some((_, origin, _)) => {
                let bits = u32::from(range.elem.min(8)) * 8;
                Value { undef: if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }, origin }
            }
            None => Value::DEFINED,
        }
    }

    fn stack_adjusted(&mut self, _: &mut Cx<'_>, insn: &InsnCtx, old: u64, new: u64) {
        if new < old && old - new <= STACK_SIZE {
            let origin = self.origins.frame(insn.addr);
            self.shadow.set_undefined(new, old - new, origin);
        }
    }

    fn stack_left(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        self.shadow.set_defined(from, to.saturating_sub(from));
    }

    fn lent(&mut self, cx: &mut Cx<'_>, lent: &Lent) {
        self.device_gets(cx, lent);
    }

    fn call(&mut self, cx: &mut Cx<'_>, out: &Out, regs: &Regs) {
        self.before_call(cx, out, regs);
    }

    fn call_returned(&mut self, cx: &mut Cx<'_>, out: &Out, result: u64) {
        self.after_call(cx, out, result);
    }

    fn allocated(&mut self, _: &mut Cx<'_>, _: ObjectId, object: &Object) {
        if object.class == Class::Percpu {
            return;
        }
        let (base, slot) = (object.base, object.slot_end - object.base);
        self.shadow.allow(base, slot);
        self.shadow.set_defined(base, slot);
        if object.by_driver && !object.defined {
            let origin = self.origins.object(object);
            self.shadow.set_undefined(object.start, object.size, origin);
        }
        if object.by_driver || matches!(object.class, Class::Io | Class::Vmalloc) {
            self.shadow.restrict(base, object.start - base);
            self.shadow.restrict(object.end(), object.slot_end.saturating_sub(object.end()));
        }
    }

    fn freed(&mut self, _: &mut Cx<'_>, _: ObjectId, object: &Object) {
        if object.class == Class::Percpu {
            return;
        }
        let slot = object.slot_end - object.base;
        self.shadow.set_defined(object.base, slot);
        self.shadow.restrict(object.base, slot);
    }

    fn forgotten(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        let len = to.saturating_sub(from);
        self.shadow.allow(from, len);
        self.shadow.set_defined(from, len);
    }

    fn bad_free(&mut self, cx: &mut Cx<'_>, fault: &FreeFault) {
        let kind = match fault.what {
            BadFree::Double => "double-free",
            BadFree::Invalid => "invalid-free",
            BadFree::Mismatched => "mismatched-free",
        };
        cx.report(self.name, kind, Place::Call, || {
            let what = match &fault.object {
                Some(object) => text::object(object),
                None => fault.detail.clone(),
            };
            let detail = if fault.detail.is_empty() || fault.object.is_none() {
                String::new()
            } else {
                format!(", {}", fault.detail)
            };
            let message = match fault.what {
                BadFree::Double => {
                    format!("{} of {what} that is already free{detail}", fault.function)
                }
                BadFree::Invalid => match &fault.object {
                    Some(object) => format!(
                        "{} of a pointer to offset {} of {what}",
                        fault.function,
                        fault.ptr.wrapping_sub(object.start)
                    ),
                    None => format!("{} of a pointer to {what}", fault.function),
                },
                BadFree::Mismatched => format!("{} of {what}{detail}", fault.function),
            };
            Draft { object: fault.object.clone(), ..Draft::error(message) }
        });
    }

    fn fault(&mut self, cx: &mut Cx<'_>, fault: Fault, regs: Option<&Regs>) -> Option<usize> {
        if cx.state.modules.may_fault(fault.pc) {
            return None;
        }
        let place = Place::Insn(fault.pc);
        let Some(addr) = fault.address else {
            let message = "access to a non-canonical address (general protection fault)".to_owned();
            return cx.report(self.name, "wild-access", place, || Draft::error(message));
        };
        if addr < NULL_END {
            let message = format!("access to address {addr:#x} faulted");
            return cx.report(self.name, "null-dereference", place, || Draft::error(message));
        }
        if addr < USER_END {
            if regs.is_some_and(|r| r.ac) {
                return None;
            }
            let message = "access to user memory without the access functions faulted".to_owned();
            return cx.report(self.name, "user-pointer", place, || Draft::error(message));
        }
        if let Some((_, object)) = cx.state.objects.at(addr) {
            let object = object.clone();
            let kind = match (object.is_live(), object.class) {
                (false, _) => "use-after-free",
                (true, Class::Io) => "mmio-out-of-bounds",
                (true, _) => "out-of-bounds",
            };
            let offset = addr.wrapping_sub(object.start);
            return cx.report(self.name, kind, place, || {
                let message =
                    format!("{kind} access at offset {offset} of {} faulted", text::object(&object));
                Draft { object: Some(object), ..Draft::error(message) }
            });
        }
        cx.report(self.name, "wild-access", place, || {
            Draft::error(format!(
                "access to {} address that is not mapped faulted",
                article(text::half(addr))
            ))
        })
    }

    fn module_loaded(&mut self, cx: &mut Cx<'_>, module: u32) {
        let Some(module) = cx.state.modules.list().get(module as usize) else { return };
        for gap in &module.map.gaps {
            self.shadow.restrict(gap.start, gap.end.saturating_sub(gap.start).min(4096));
        }
    }

    fn module_freed(&mut self, _: &mut Cx<'_>, from: u64, to: u64) {
        let len = to.saturating_sub(from);
        self.shadow.allow(from, len);
        self.shadow.set_defined(from, len);
    }

    fn module_comes(&mut self, cx: &mut Cx<'_>) {
        // The next module may be loaded at the addresses of the last one, which changes the names of
        // functions there.
        self.finish(cx);
    }

    fn finish(&mut self, cx: &mut Cx<'_>) {
        let state = cx.state;
        for (_, object) in state.objects.iter() {
            let unloaded = object
                .module
                .and_then(|m| state.modules.list().get(m as usize))
                .is_some_and(|module| !module.loaded);
            let owned = object.by_driver && object.is_live() && !object.escaped;
            let told = object.serial <= self.leaks_told;
            let elsewhere = match object.class {
                Class::Managed | Class::Io => true,
                Class::Dma => self.leaves_dma,
                _ => false,
            };
            if !unloaded || !owned || told || elsewhere {
                continue;
            }
            cx.report(self.name, "leak", Place::Stack(object.allocated), || Draft {
                severity: Severity::Warning,
                object: Some(object.clone()),
                ..Draft::error(format!(
                    "{} still allocated when the module was unloaded",
                    text::object(object)
                ))
            });
        }
        if state.modules.list().iter().all(|module| !module.loaded) {
            self.leaks_told = state.objects.serial();
        }
    }
}
