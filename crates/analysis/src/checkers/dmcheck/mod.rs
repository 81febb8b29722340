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
//! - A kernel function decides by what it formats, as `_printk` does. The format says which bytes these are, but for
//!   one that is no constant of the module. What the pointers among them lead to is not judged.
//! - Where DMACheck runs, it judges what devices get by mappings.
//! - A device may read coherent memory at any time, so what is stored there has left the driver.
//! - Only objects that the driver allocated, and vmalloc memory, have exact bounds: kernel code may use all
//!   of a slot (`ksize`).
//! - Where a pointer came from an object, that is known for certain, or its value agrees with what the driver
//!   stored. An access of such a pointer to a neighbor of its object is out of bounds, or to memory beside it of
//!   which nothing is known where only constants were added to the pointer. An access to memory that
//!   was freed and allocated again is a use after free, but only where the pointer is certain.
//! - A leak is an object that the driver allocated and that no call frees before the log ends, after the
//!   module was unloaded. An object that was passed to a kernel function that may keep it is no leak.

mod accesses;
mod effects;
mod formats;
mod pointers;
mod text;

use crate::checker::{BadFree, Checker, Cx, Draft, Fault, FreeFault, Site};
use crate::machine::{Out, USER_END};
use crate::provenance::Stray;
use crate::value_flow::{InsnCtx, Origin, Reach, Regs, RepRange, Value, mask};
use accesses::{copied, fault_of, leaves, uninit, uninit_as};
use guardrail_finding::Severity;
use guardrail_knowledge::effect::Class;
use guardrail_trace::event::Access;

const NAME: &str = "dmcheck";
/// Accesses below this address count as null dereferences.
const NULL_END: u64 = 4096;

/// The checker's state.
#[derive(Debug, Default)]
pub struct DmCheck {
    /// Leaks among objects up to this serial number were reported.
    leaks_told: u64,
    /// DMACheck runs as well, and judges freed and leaked DMA memory, and what devices may read.
    leaves_dma: bool,
}

impl DmCheck {
    /// A checker that leaves DMACheck's part to DMACheck.
    pub fn beside_dmacheck() -> DmCheck {
        DmCheck { leaves_dma: true, ..DmCheck::default() }
    }
}

/// Whether an address is in coherent memory, or in a pool of it, that the driver has.
fn is_shared(cx: &Cx<'_>, addr: u64) -> bool {
    let object = cx.state.objects.at(addr).map(|(_, object)| object);
    object.is_some_and(|object| object.class == Class::Dma && object.by_driver && object.is_live())
}

/// An access, with what messages need of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    addr: u64,
    len: u64,
    store: bool,
    place: Site,
}

/// The number of the register that an argument is passed in.
fn register_of(arg: u8) -> u8 {
    const ARGS: [u8; 6] = [7, 6, 2, 1, 8, 9];
    ARGS[usize::from(arg).min(5)]
}

impl Checker for DmCheck {
    fn name(&self) -> &'static str {
        NAME
    }

    fn needs_definedness(&self) -> bool {
        true
    }

    fn needs_provenance(&self) -> bool {
        true
    }

    #[inline]
    fn load(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        self.check(cx, insn, access);
    }

    #[inline]
    fn store(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, value: Value) {
        self.check(cx, insn, access);
        if value.undef == 0 {
            return;
        }
        let mut severity = Severity::Error;
        let (kind, whither) = if access.io {
            ("uninit-to-device", "written to a device register")
        } else if access.addr < USER_END {
            ("uninit-to-user", "written to user memory")
        } else if is_shared(cx, access.addr) {
            // Of a structure that is copied in words, only padding may be undefined, which no device looks at.
            if value.undef != mask(access.size) {
                severity = Severity::Warning;
            }
            ("uninit-to-device", "written to memory that the device reads")
        } else {
            return;
        };
        uninit_as(cx, (kind, severity), Site::Insn(insn.addr), value.origin, || {
            format!("uninitialized value of {} {whither}", text::bytes(u64::from(access.size)))
        });
    }

    fn strayed(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, reach: &Reach, stray: Stray) {
        self.astray(cx, reach, stray, Site::Insn(insn.addr));
    }

    fn undefined_branch(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, origin: Origin) {
        uninit(cx, "uninit-branch", Site::Insn(insn.addr), origin, || {
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
        uninit(cx, "uninit-address", Site::Insn(insn.addr), origin, || {
            format!(
                "{} of {} at an address made from an uninitialized value (in {})",
                text::access_word(access.store),
                text::bytes(u64::from(access.size)),
                crate::value_flow::gpr_name(reg)
            )
        });
    }

    fn undefined_port_output(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, origin: Origin) {
        uninit(cx, "uninit-to-device", Site::Insn(insn.addr), origin, || {
            "uninitialized value written to a port".to_owned()
        });
    }

    fn rep_move(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        let (len, place) = (range.bytes(), Site::Insn(insn.addr));
        self.check_range(cx, range.src, len, false, place, insn.rsp);
        self.check_range(cx, range.dst, len, true, place, insn.rsp);
        if range.src < USER_END {
            return;
        }
        if range.dst < USER_END {
            leaves(cx, "uninit-to-user", place, (range.src, len), "copied to user memory");
        } else if range.io && cx.state.objects.is_device(range.dst) {
            leaves(cx, "uninit-to-device", place, (range.src, len), "copied to a device");
        } else {
            copied(cx, place, (range.src, len), range.dst);
        }
    }

    fn rep_set(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange, _: Value) {
        self.check_range(cx, range.dst, range.bytes(), true, Site::Insn(insn.addr), insn.rsp);
    }

    fn rep_read(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, range: RepRange) {
        self.check_range(cx, range.src, range.bytes(), false, Site::Insn(insn.addr), insn.rsp);
    }

    fn call(&mut self, cx: &mut Cx<'_>, out: &Out, regs: &Regs) {
        for effect in out.effects() {
            self.judge(cx, out, regs, effect);
        }
    }

    fn call_returned(&mut self, cx: &mut Cx<'_>, out: &Out, result: u64) {
        for effect in out.effects() {
            self.judge_result(cx, out, effect, result);
        }
    }

    fn bad_free(&mut self, cx: &mut Cx<'_>, fault: &FreeFault) {
        let kind = match fault.what {
            BadFree::Double => "double-free",
            BadFree::Invalid => "invalid-free",
            BadFree::Mismatched => "mismatched-free",
        };
        cx.report(NAME, kind, Site::Call, || {
            let FreeFault { function, detail, .. } = fault;
            let comma = if detail.is_empty() { "" } else { ", " };
            let what = fault.object.as_ref().map(|object| (text::object(object), object.start));
            let message = match (what, fault.what) {
                (None, _) => format!("{function} of a pointer to {detail}"),
                (Some((what, _)), BadFree::Double) => {
                    format!("{function} of {what} that is already free{comma}{detail}")
                }
                (Some((what, start)), BadFree::Invalid) => {
                    format!("{function} of a pointer to offset {} of {what}", fault.ptr.wrapping_sub(start))
                }
                (Some((what, _)), BadFree::Mismatched) => format!("{function} of {what}{comma}{detail}"),
            };
            Draft { object: fault.object.clone(), ..Draft::error(message) }
        });
    }

    fn fault(&mut self, cx: &mut Cx<'_>, fault: Fault, regs: Option<&Regs>) -> Option<usize> {
        let handled = |addr| (NULL_END..USER_END).contains(&addr) && regs.is_some_and(|regs| regs.ac);
        if cx.state.modules.may_fault(fault.pc) || fault.address.is_some_and(handled) {
            return None;
        }
        let addr = fault.address.unwrap_or(u64::MAX);
        let object = cx.state.objects.at(addr).map(|(_, object)| object).filter(|_| addr >= USER_END);
        let (kind, message) = match object {
            _ if fault.address.is_none() => {
                ("wild-access", "access to a non-canonical address (general protection fault)".to_owned())
            }
            _ if addr < NULL_END => ("null-dereference", format!("access to address {addr:#x} faulted")),
            _ if addr < USER_END => {
                ("user-pointer", "access to user memory without the access functions faulted".to_owned())
            }
            Some(object) => {
                let (kind, offset) = (fault_of(object), addr.wrapping_sub(object.start));
                (kind, format!("{kind} access at offset {offset} of {} faulted", text::object(object)))
            }
            None => {
                let half = if addr >> 47 == 0x1_ffff { "kernel" } else { "non-canonical" };
                ("wild-access", format!("access to a {half} address that is not mapped faulted"))
            }
        };
        let object = object.filter(|_| fault.address.is_some()).cloned();
        cx.report(NAME, kind, Site::Insn(fault.pc), || Draft { object, ..Draft::error(message) })
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
            cx.report(NAME, "leak", Site::Stack(object.allocated), || Draft {
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
