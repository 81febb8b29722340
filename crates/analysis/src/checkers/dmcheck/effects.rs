//! Judges what kernel functions that the driver calls do with its memory and its values.

use super::{DmCheck, copied, formats, leaves, register_of, text, uninit};
use crate::checker::{Cx, Site};
use crate::definedness::is_to_device;
use crate::machine::{Out, length};
use crate::value_flow::{Regs, mask};
use guardrail_knowledge::effect::{Effect, Len, Ptr};

impl DmCheck {
    pub(super) fn judge(&mut self, cx: &mut Cx<'_>, out: &Out, regs: &Regs, effect: &Effect) {
        let (ptr, len, unit, store) = match *effect {
            Effect::Define { ptr, len: len @ (Len::Arg(_) | Len::Product(..)) } if !out.is_guessed(ptr) => {
                (ptr, len, 1, true)
            }
            // After an undefined pointer, a report of the memory that it points to adds nothing. Several effects may
            // read there.
            Effect::Read { ptr: Ptr::Arg(arg), .. } if regs.get(register_of(arg)).undef != 0 => {
                if reads(out, Ptr::Arg(arg)).next().is_some_and(|(first, _)| std::ptr::eq(first, effect)) {
                    undefined_pointer(cx, out, regs, arg);
                }
                return;
            }
            Effect::Copy { src: ptr, len, .. }
            | Effect::Read { ptr, len }
            | Effect::ToUser { src: ptr, len }
            | Effect::DmaMap { ptr, len, .. } => (ptr, len, 1, false),
            Effect::ToDevice { src, len, unit } => (src, len, u64::from(unit), false),
            Effect::PutUser { size } => {
                return value(cx, regs, 0, size, "uninit-to-user", "written to user memory");
            }
            Effect::Output { value: arg, size, register } => {
                let whither = "written to a device register";
                value(cx, regs, register_of(arg), size, "uninit-to-device", whither);
                let Some(register) = register else { return };
                (Ptr::Arg(register), Len::Const(size.into()), 1, true)
            }
            Effect::Input { size, register } => (Ptr::Arg(register), Len::Const(size.into()), 1, false),
            Effect::Format { format } => return formats::judge(cx, out, regs, format),
            _ => return,
        };
        let (state, place) = (cx.state, Site::Call);
        let at = state.pointer(ptr, &out.args);
        let Some(n) = state.extent(cx.context, out, len, at) else { return };
        let n = n.saturating_mul(unit);
        let freed = || state.objects.at(at).is_some_and(|(_, object)| !object.is_live());
        if !(self.leaves_dma && matches!(effect, Effect::DmaMap { .. }) && freed()) {
            self.check_range(cx, at, n, store, place, Some(out.entry_rsp));
            self.judge_pointer(cx, (out, regs), ptr, n, store);
        }
        match *effect {
            Effect::Copy { dst, .. } => {
                self.check_range(cx, state.pointer(dst, &out.args), n, true, place, Some(out.entry_rsp));
                self.judge_pointer(cx, (out, regs), dst, n, true);
                copied(cx, place, (at, n), state.pointer(dst, &out.args));
            }
            Effect::ToUser { .. } => {
                leaves(cx, "uninit-to-user", place, (at, n), "copied to user memory");
            }
            Effect::ToDevice { .. } => {
                leaves(cx, "uninit-to-device", place, (at, n), "written to a device");
            }
            Effect::DmaMap { direction, .. } if !self.leaves_dma => {
                if is_to_device(out, direction) {
                    leaves(cx, "uninit-to-device", place, (at, n), "mapped for the device to read");
                }
                cx.definedness.define(at, n);
            }
            _ => {}
        }
    }
}

impl DmCheck {
    /// Judges what a kernel function has read, where its result says how much that was.
    pub(super) fn judge_result(&mut self, cx: &mut Cx<'_>, out: &Out, effect: &Effect, result: u64) {
        let Effect::Read { ptr, len } = *effect else { return };
        let at = cx.state.pointer(ptr, &out.args);
        let bound = |i: u8| out.args.get(usize::from(i)).copied().unwrap_or(0);
        let n = match len {
            Len::Result { extra, bound: most } => {
                result.saturating_add(extra).min(most.map_or(u64::MAX, bound))
            }
            Len::Found(most) if result == 0 => most.map_or(0, bound),
            Len::Found(most) => result.wrapping_sub(at).saturating_add(1).min(most.map_or(u64::MAX, bound)),
            _ => return,
        };
        // A first byte that is read in any case was judged when the call began.
        let begun = reads(out, ptr).any(|(_, len)| length(len, &out.args).is_some_and(|known| known > 0));
        if begun && cx.definedness.shadow.is_restricted(at, 1) {
            return;
        }
        self.check_range(cx, at, n, false, Site::Insn(out.pc), Some(out.entry_rsp));
    }
}

/// The effects that read through this pointer, with how much they read.
fn reads(out: &Out, through: Ptr) -> impl Iterator<Item = (&Effect, Len)> {
    out.effects().iter().filter_map(move |effect| match *effect {
        Effect::Read { ptr, len } if ptr == through => Some((effect, len)),
        _ => None,
    })
}

/// Reports that the driver passes an undefined pointer to the kernel.
fn undefined_pointer(cx: &mut Cx<'_>, out: &Out, regs: &Regs, arg: u8) {
    uninit(cx, "uninit-address", Site::Call, regs.get(register_of(arg)).origin, || {
        let function = out.summary.as_ref().map_or("?", |summary| &summary.name);
        format!("uninitialized pointer given to {function}")
    });
}

/// Reports a value in a register that leaves the driver, where it is undefined.
fn value(cx: &mut Cx<'_>, regs: &Regs, reg: u8, size: u8, kind: &'static str, whither: &'static str) {
    let bits = regs.get(reg);
    if bits.undef & mask(size) != 0 {
        uninit(cx, kind, Site::Call, bits.origin, || {
            format!("uninitialized value of {} {whither}", text::bytes(u64::from(size)))
        });
    }
}
