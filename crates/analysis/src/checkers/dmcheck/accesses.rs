//! Judges the driver's accesses: bounds, lifetime of objects, the stack, and undefined bytes that leave the
//! driver.

use super::{DmCheck, NAME, NULL_END, Touch, is_shared, text};
use crate::checker::{Cx, Draft, Site};
use crate::definedness::MAX_RANGE;
use crate::level::Level;
use crate::machine::{Activation, LARGEST_SLAB, Object, USER_END};
use crate::stacks::STACK_SIZE;
use crate::value_flow::{InsnCtx, Origin};
use guardrail_finding::Severity;
use guardrail_knowledge::effect::Class;
use guardrail_trace::event::Access;

impl DmCheck {
    #[inline]
    pub(super) fn check(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        let (addr, size) = (access.addr, u64::from(access.size));
        if addr < USER_END {
            let touch = Touch { addr, len: size, store: access.store, place: Site::Insn(insn.addr) };
            return self.low_access(cx, touch);
        }
        if cx.definedness.shadow.is_restricted(addr, size) {
            let touch = Touch { addr, len: size, store: access.store, place: Site::Insn(insn.addr) };
            self.restricted(cx, touch, insn.rsp);
        }
        if let Some(rsp) = insn.rsp {
            if addr < rsp {
                let push = access.store && addr.wrapping_add(8) == rsp;
                if rsp - addr < STACK_SIZE && !push {
                    self.below_stack(cx, insn, access, rsp);
                }
            } else if access.store && addr - rsp < STACK_SIZE {
                self.return_slot(cx, insn, access);
            }
        }
    }

    /// An access to the lower half of the address space that did not fault.
    #[cold]
    pub(super) fn low_access(&mut self, cx: &mut Cx<'_>, touch: Touch) {
        if touch.addr < NULL_END {
            let message = format!("{} at address {:#x}", text::verb(touch), touch.addr);
            cx.report(NAME, "null-dereference", touch.place, || Draft::error(message));
            return;
        }
        // Accesses of the user access functions may fault, and the exception table lists them.
        let pc = match touch.place {
            Site::Insn(pc) => pc,
            _ => return,
        };
        if !cx.state.modules.may_fault(pc) {
            let message = format!("{} of user memory without the access functions", text::verb(touch));
            cx.report(NAME, "user-pointer", touch.place, || Draft::error(message));
        }
    }

    /// An access to bytes that must not be accessed.
    #[cold]
    pub(super) fn restricted(&mut self, cx: &mut Cx<'_>, touch: Touch, rsp: Option<u64>) {
        if let Some(rsp) = rsp
            && touch.addr & !(STACK_SIZE - 1) == rsp & !(STACK_SIZE - 1)
        {
            // Only the running thread uses its stack, so the memory became a stack unseen.
            let base = rsp & !(STACK_SIZE - 1);
            cx.definedness.shadow.allow(base, STACK_SIZE);
            return;
        }
        let Some(bad) = cx.definedness.shadow.first_restricted(touch.addr, touch.len) else { return };
        let Some((_, object)) = cx.state.objects.at(bad) else {
            if let Some((_, range, _)) = cx.state.modules.variable_at(bad) {
                let offset = touch.addr.wrapping_sub(range.start);
                let gap_size = cx
                    .state
                    .modules
                    .variable_at(range.start.wrapping_sub(1))
                    .filter(|(_, v, gap)| !gap && v.name == range.name)
                    .map(|(_, v, _)| (v.start, v.end - v.start));
                let (offset, size) =
                    gap_size.map_or((offset, 0), |(start, size)| (touch.addr.wrapping_sub(start), size));
                let message = format!(
                    "out-of-bounds {} of {} at offset {offset} of the {size}-byte variable {}",
                    text::access_word(touch.store),
                    text::bytes(touch.len),
                    range.name
                );
                cx.report(NAME, "out-of-bounds", touch.place, || Draft {
                    shadow: Some(bad),
                    ..Draft::error(message)
                });
            }
            return;
        };
        let object = object.clone();
        self.object_fault(cx, touch, object, bad);
    }

    /// An access to an object, where `bad` is the first byte that must not be accessed.
    pub(super) fn object_fault(&mut self, cx: &mut Cx<'_>, touch: Touch, object: Object, bad: u64) {
        let state = cx.state;
        if self.leaves_dma && !object.is_live() && object.class == Class::Dma {
            return;
        }
        // The kernel also allocates pages in bulk, and stacks of threads from vmalloc space, which no hook
        // sees. So memory that the kernel allocated and freed for itself may belong to the driver by now. It
        // may also hold what another thread lent to the driver.
        let called = |stack| state.stacks.get(stack).iter().take(2).any(|&at| state.modules.contains(at));
        if !object.is_live()
            && (matches!(object.class, Class::Page | Class::Vmalloc)
                || object.class == Class::Slab && object.size > LARGEST_SLAB
                // An access that also covers the surroundings is to a page that the slab released.
                || touch.addr < object.base && touch.len > object.size)
            && !object.by_driver
            && !object.freed.is_some_and(called)
        {
            return cx.definedness.shadow.allow(object.base, object.slot_end.saturating_sub(object.base));
        }
        let kind = fault_of(&object);
        cx.report(NAME, kind, touch.place, || {
            let message = text::access(kind, touch, &object);
            Draft { object: Some(object), shadow: Some(bad), ..Draft::error(message) }
        });
    }

    /// An access below the stack pointer: the stack frame that it was meant for no longer exists.
    #[cold]
    pub(super) fn below_stack(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access, rsp: u64) {
        let process = cx.context.is_some_and(|c| c.level == Level::Process);
        // Task stacks are aligned to their size; of others no more than the page is certain.
        let base = if process { rsp & !(STACK_SIZE - 1) } else { rsp & !(4096 - 1) };
        if access.addr < base || cx.state.objects.at(access.addr).is_some_and(|(_, o)| o.is_live()) {
            return;
        }
        let touch = Touch {
            addr: access.addr,
            len: u64::from(access.size),
            store: access.store,
            place: Site::Insn(insn.addr),
        };
        cx.report(NAME, "out-of-bounds", touch.place, || {
            Draft::error(format!(
                "out-of-bounds {} of {} on the stack, {} below the live frame",
                text::access_word(touch.store),
                text::bytes(touch.len),
                text::bytes(rsp - touch.addr)
            ))
        });
    }

    /// A store at or above the stack pointer: no code may overwrite return addresses.
    #[inline]
    pub(super) fn return_slot(&mut self, cx: &mut Cx<'_>, insn: &InsnCtx, access: Access) {
        let Some(context) = cx.context else { return };
        let (from, to) = (access.addr, access.addr.wrapping_add(u64::from(access.size)));
        match context.frame_rsp() {
            Some(entry) if to > entry => {}
            _ => return,
        }
        let hit = context.stack.iter().any(|a| match a {
            Activation::Frame { entry_rsp, ret, .. } => {
                *ret != 0 && from < entry_rsp.wrapping_add(8) && to > *entry_rsp
            }
            _ => false,
        });
        if hit {
            cx.report(NAME, "out-of-bounds", Site::Insn(insn.addr), || {
                Draft::error(format!(
                    "out-of-bounds write of {} on the stack, over a return address",
                    text::bytes(u64::from(access.size))
                ))
            });
        }
    }

    /// Checks a range that a string instruction accesses, or the kernel on the driver's behalf.
    pub(super) fn check_range(
        &mut self,
        cx: &mut Cx<'_>,
        addr: u64,
        len: u64,
        store: bool,
        place: Site,
        rsp: Option<u64>,
    ) {
        let len = len.min(MAX_RANGE);
        if len == 0 || addr < USER_END {
            return;
        }
        let touch = Touch { addr, len, store, place };
        // A range that begins in an object must end in it, no matter who owns the memory behind.
        if let Some((_, object)) = cx.state.objects.at(addr)
            && object.by_driver
            && object.class != Class::Percpu
            && addr >= object.start
            && addr.saturating_add(len) > object.end()
        {
            let (object, end) = (object.clone(), object.end());
            return self.object_fault(cx, touch, object, end.max(addr));
        }
        if cx.definedness.shadow.is_restricted(addr, len) {
            self.restricted(cx, touch, rsp);
        }
    }
}

/// The kind of the fault in an access to bytes of an object that must not be accessed.
pub(super) fn fault_of(object: &Object) -> &'static str {
    match (object.is_live(), object.class) {
        (false, _) => "use-after-free",
        (true, Class::Io) => "mmio-out-of-bounds",
        (true, _) => "out-of-bounds",
    }
}

/// Reports the use of an undefined value.
pub(super) fn uninit(
    cx: &mut Cx<'_>,
    kind: &'static str,
    place: Site,
    origin: Origin,
    message: impl FnOnce() -> String,
) {
    uninit_as(cx, (kind, Severity::Error), place, origin, message);
}

/// Reports the use of an undefined value, with its severity.
pub(super) fn uninit_as(
    cx: &mut Cx<'_>,
    (kind, severity): (&'static str, Severity),
    place: Site,
    origin: Origin,
    message: impl FnOnce() -> String,
) {
    cx.report(NAME, kind, place, || Draft { origin, severity, ..Draft::error(message()) });
}

/// Reports undefined bytes of a range that leave the driver where they must not.
pub(super) fn leaves(cx: &mut Cx<'_>, kind: &'static str, place: Site, range: (u64, u64), whither: &str) {
    leaves_as(cx, (kind, Severity::Error), place, range, whither);
}

/// Reports undefined bytes of a range that is copied, where that leads to coherent memory. Most are padding, which no
/// device looks at.
pub(super) fn copied(cx: &mut Cx<'_>, place: Site, range: (u64, u64), dst: u64) {
    if is_shared(cx, dst) {
        let whither = "copied to memory that the device reads";
        leaves_as(cx, ("uninit-to-device", Severity::Warning), place, range, whither);
    }
}

fn leaves_as(
    cx: &mut Cx<'_>,
    what: (&'static str, Severity),
    place: Site,
    (addr, len): (u64, u64),
    whither: &str,
) {
    let len = len.min(MAX_RANGE);
    if let Some((first, origin, count)) = cx.definedness.shadow.first_undefined(addr, len) {
        let offset = first.wrapping_sub(addr);
        uninit_as(cx, what, place, origin, || {
            let of = text::bytes(len);
            format!("{count} of {of} {whither} are uninitialized, the first at offset {offset}")
        });
    }
}
