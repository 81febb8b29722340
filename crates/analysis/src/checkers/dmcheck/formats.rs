//! Judges the arguments that kernel functions format for the driver, such as those of `_printk`.

use super::{register_of, text, uninit};
use crate::checker::{Cx, Site};
use crate::machine::Out;
use crate::value_flow::{Regs, mask};
use guardrail_knowledge::format::{Argument, arguments};

/// The longest format that is read, in bytes with the zero at its end.
const MAX_FORMAT: usize = 1024;
/// Most arguments of a format that are judged.
const MAX_ARGUMENTS: usize = 16;
/// Arguments that are passed in registers; the others lie on the stack, behind the return address.
const REGISTERS: usize = 6;
/// Bytes of an argument on the stack, and of the return address.
const SLOT: u64 = 8;

/// Reports the first argument behind `format` that the call reads and that is not defined where it is read. Nothing
/// is known of a format that is no constant of the module.
pub(super) fn judge(cx: &mut Cx<'_>, out: &Out, regs: &Regs, format: u8) {
    let format = usize::from(format);
    let Some(text) = out.args.get(format).and_then(|&at| cx.state.modules.text_at(at, MAX_FORMAT)) else {
        return;
    };
    for (place, argument) in (format + 1..).zip(arguments(text, MAX_ARGUMENTS)) {
        let (undef, origin) = match u8::try_from(place).ok().filter(|_| place < REGISTERS) {
            Some(arg) => {
                let bits = regs.get(register_of(arg));
                (bits.undef, bits.origin)
            }
            None => {
                let slot = SLOT.saturating_mul((place - REGISTERS) as u64 + 1);
                let value = cx.definedness.shadow.load(out.entry_rsp.wrapping_add(slot), argument.bytes);
                (value.undef, value.origin)
            }
        };
        if undef & mask(argument.bytes) != 0 {
            let kind = if argument.pointer { "uninit-address" } else { "uninit-branch" };
            return uninit(cx, kind, Site::Call, origin, || message(out, &argument));
        }
    }
}

fn message(out: &Out, argument: &Argument<'_>) -> String {
    let function = out.summary.as_ref().map_or("?", |summary| &summary.name);
    let conversion = String::from_utf8_lossy(argument.conversion);
    let what = match argument.pointer {
        true => "uninitialized pointer".to_owned(),
        false => format!("uninitialized value of {}", text::bytes(argument.bytes.into())),
    };
    format!("{what} given to {function} for {conversion}")
}
