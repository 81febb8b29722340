//! What kernel functions that the driver calls do to its memory.

use super::{DmCheck, MAX_RANGE, USER_END};
use crate::checker::{Cx, Place};
use crate::machine::{Activation, Out};
use crate::stacks::same_stack;
use crate::value_flow::Regs;
use guardrail_knowledge::effect::{Direction, Effect, Len, Ptr, Summary};

impl DmCheck {
    pub(super) fn before_call(&mut self, cx: &mut Cx<'_>, out: &Out, regs: &Regs) {
        let Some(summary) = &out.summary else { return };
        for effect in &summary.effects {
            self.apply(cx, out, regs, summary, effect);
        }
    }

    fn apply(&mut self, cx: &mut Cx<'_>, out: &Out, regs: &Regs, summary: &Summary, effect: &Effect) {
        let state = cx.state;
        let address = |ptr: Ptr| state.pointer(ptr, &out.args);
        let rsp = Some(out.entry_rsp);
        match effect {
            Effect::Define { ptr, len } => {
                let at = address(*ptr);
                if let Some(n) = self.length(cx, out, *len, at, None) {
                    if matches!(len, Len::Arg(_) | Len::Product(..)) && !guessed(summary, *ptr) {
                        self.check_range(cx, at, n, true, Place::Call, rsp);
                    }
                    self.define(at, n);
                }
            }
            Effect::Copy { dst, src, len } => {
                let (dst, src) = (address(*dst), address(*src));
                if let Some(n) = self.length(cx, out, *len, src, None) {
                    let n = n.min(MAX_RANGE);
                    self.check_range(cx, src, n, false, Place::Call, rsp);
                    self.check_range(cx, dst, n, true, Place::Call, rsp);
                    if dst >= USER_END && src >= USER_END {
                        self.shadow.copy(dst, src, n);
                    } else {
                        self.define(dst, n);
                    }
                }
            }
            Effect::Read { ptr, len } => {
                // After an undefined pointer, a report of the memory that it points to adds nothing.
                if let Ptr::Arg(arg) = *ptr
                    && self.undefined_pointer(cx, regs, arg, &summary.name)
                {
                    return;
                }
                let at = address(*ptr);
                if let Some(n) = self.length(cx, out, *len, at, None) {
                    self.check_range(cx, at, n, false, Place::Call, rsp);
                }
            }
            Effect::ToUser { src, len } => {
                let at = address(*src);
                if let Some(n) = self.length(cx, out, *len, at, None) {
                    self.check_range(cx, at, n, false, Place::Call, rsp);
                    self.undefined_range(
                        cx,
                        "uninit-to-user",
                        Place::Call,
                        (at, n),
                        "bytes copied to user memory",
                    );
                }
            }
            Effect::ToDevice { src, len, unit } => {
                let at = address(*src);
                if let Some(n) = self.length(cx, out, *len, at, None) {
                    let n = n.saturating_mul(u64::from(*unit));
                    self.check_range(cx, at, n, false, Place::Call, rsp);
                    self.undefined_range(
                        cx,
                        "uninit-to-device",
                        Place::Call,
                        (at, n),
                        "bytes written to a device",
                    );
                }
            }
            Effect::PutUser { size } => {
                self.value(cx, regs, 0, *size, "uninit-to-user", "written to user memory")
            }
            Effect::Output { value, size, register } => {
                let reg = register_of(*value);
                self.value(cx, regs, reg, *size, "uninit-to-device", "written to a device register");
                if let Some(register) = register {
                    self.check_range(
                        cx,
                        address(Ptr::Arg(*register)),
                        u64::from(*size),
                        true,
                        Place::Call,
                        rsp,
                    );
                }
            }
            Effect::Input { size, register } => {
                self.check_range(cx, address(Ptr::Arg(*register)), u64::from(*size), false, Place::Call, rsp);
            }
            Effect::DmaMap { ptr, len, direction } => {
                let at = address(*ptr);
                let Some(n) = self.length(cx, out, *len, at, None) else { return };
                let freed = cx.state.objects.at(at).is_some_and(|(_, object)| !object.is_live());
                if !(self.leaves_dma && freed) {
                    self.check_range(cx, at, n, false, Place::Call, rsp);
                }
                let to_device = is_to_device(out, *direction);
                if self.leaves_dma {
                    // DMACheck reports the mapping before the call returns; until then, what the device may
                    // read stays as it was.
                    return;
                }
                if to_device {
                    let whither = "bytes mapped for the device to read";
                    self.undefined_range(cx, "uninit-to-device", Place::Call, (at, n), whither);
                }
                self.define(at, n);
            }
            Effect::Alloc { .. }
            | Effect::Free { .. }
            | Effect::TakeOver { .. }
            | Effect::CreateCache { .. }
            | Effect::Grow { .. }
            | Effect::Escape { .. }
            | Effect::Sync(_)
            | Effect::Dma(_) => {}
        }
    }

    /// Whether the driver passes an undefined pointer to the kernel; if so, reports it.
    fn undefined_pointer(&mut self, cx: &mut Cx<'_>, regs: &Regs, arg: u8, function: &str) -> bool {
        let bits = regs.get(register_of(arg));
        if bits.undef == 0 {
            return false;
        }
        self.uninit(cx, "uninit-address", Place::Call, bits.origin, || {
            format!("uninitialized pointer given to {function}")
        });
        true
    }

    fn value(
        &mut self,
        cx: &mut Cx<'_>,
        regs: &Regs,
        reg: u8,
        size: u8,
        kind: &'static str,
        whither: &'static str,
    ) {
        let bits = regs.get(reg);
        let mask = if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 };
        if bits.undef & mask != 0 {
            self.uninit(cx, kind, Place::Call, bits.origin, || {
                format!("uninitialized value of {} {whither}", super::text::bytes(u64::from(size)))
            });
        }
    }

    pub(super) fn after_call(&mut self, cx: &mut Cx<'_>, out: &Out, result: u64) {
        let Some(summary) = &out.summary else { return };
        for effect in &summary.effects {
            let (ptr, len) = match effect {
                Effect::Define { ptr, len: len @ Len::Result { .. } } => (ptr, len),
                Effect::DmaMap { ptr, len, direction } if !is_to_device(out, *direction) => (ptr, len),
                _ => continue,
            };
            let at = cx.state.pointer(*ptr, &out.args);
            if let Some(n) = self.length(cx, out, *len, at, Some(result)) {
                self.define(at, n);
            }
        }
    }

    fn define(&mut self, addr: u64, len: u64) {
        if addr >= USER_END {
            self.shadow.set_defined(addr, len.min(MAX_RANGE));
        }
    }

    /// The value of `len` in bytes, for the pointer `at`; `None` where it is not known (yet).
    fn length(&self, cx: &Cx<'_>, out: &Out, len: Len, at: u64, result: Option<u64>) -> Option<u64> {
        let arg = |i: u8| out.args.get(usize::from(i)).copied();
        match len {
            Len::Const(n) => Some(n),
            Len::Arg(i) => arg(i),
            Len::Product(i, j) => arg(i)?.checked_mul(arg(j)?),
            Len::Order(i) => arg(i).filter(|&order| order < 20).map(|order| 4096 << order),
            Len::Deref(_) => None,
            Len::Result { extra, bound } => {
                let n = i64::from(result? as i32);
                let n = u64::try_from(n).ok()?.saturating_add(extra);
                Some(bound.and_then(arg).map_or(n, |bound| n.min(bound)))
            }
            Len::Rest => rest(cx, out, at),
        }
    }
}

/// The number of the register that an argument is passed in.
fn register_of(arg: u8) -> u8 {
    const ARGS: [u8; 6] = [7, 6, 2, 1, 8, 9];
    ARGS[usize::from(arg).min(5)]
}

/// Whether the device only reads what is mapped.
fn is_to_device(out: &Out, direction: Direction) -> bool {
    matches!(direction, Direction::Arg(i) if out.args.get(usize::from(i)).is_some_and(|d| *d as u32 == 1))
}

/// Whether the effect on `ptr` follows from the prototype alone. The unit of a length is not known then.
fn guessed(summary: &Summary, ptr: Ptr) -> bool {
    summary.effects.iter().any(|e| matches!((e, ptr), (Effect::Escape { arg }, Ptr::Arg(i)) if *arg == i))
}

/// The number of bytes from `at` to the end of the object or stack frame that it points into.
fn rest(cx: &Cx<'_>, out: &Out, at: u64) -> Option<u64> {
    if at < USER_END {
        return None;
    }
    if let Some((_, object)) = cx.state.objects.at(at) {
        return object.end().checked_sub(at);
    }
    if at < out.entry_rsp || !same_stack(at, out.entry_rsp) {
        return None;
    }
    let frames = cx.context?.stack.iter().filter_map(|a| match a {
        Activation::Frame { entry_rsp, .. } if *entry_rsp > at => Some(*entry_rsp),
        _ => None,
    });
    frames.min()?.checked_sub(at)
}
