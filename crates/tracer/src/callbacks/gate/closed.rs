//! Emulates device accesses at a closed gate. Writes do nothing and reads return all ones, as on a bus
//! without the device.

use crate::code::gate_sites::{GateAccess, GateSite};
use crate::state::{Gate, RAX, RCX, RDI, RFLAGS, RSI, RSP, Vcpu};
use guardrail_plugin::ffi;
use guardrail_trace::event::Cut;
use iced_x86::{Instruction, Mnemonic, OpKind};

/// Hardware number of r9, which holds the sixth argument of a function.
const R9: usize = 9;
/// Most bytes that a string instruction gets as an answer.
const MAX_BYTES: u64 = 1 << 16;
/// The direction flag: string instructions run towards lower addresses.
const DIRECTION: u64 = 1 << 10;

/// Continues after the instruction, as if an unplugged device had answered.
pub fn skip(gate: &Gate, vcpu: &mut Vcpu, site: &GateSite) -> ! {
    match site.access {
        GateAccess::Memory { size, .. } => answer_memory(vcpu, &site.insn, size),
        GateAccess::String { source, target, rep, size } => {
            answer_string(gate, vcpu, source, target, rep, size);
        }
        GateAccess::Port { out, size, rep: false, .. } if is_register(&site.insn) => {
            if !out {
                load(vcpu, RAX, size, u64::MAX);
            }
        }
        GateAccess::Port { out, size, rep, .. } => {
            answer_string(gate, vcpu, out, (!out).then_some(true), rep, size)
        }
    }
    // If later code needs the flags, the driver may take a wrong branch. That is the lesser evil,
    // because its device is out of reach.
    vcpu.regs.can_leave(site.flags);
    if site.driver {
        vcpu.end_after(site.index, Cut::ENDS);
    }
    // SAFETY: the callback is registered for it; it leaves by longjmp over frames that have nothing to drop.
    unsafe { ffi::qemu_plugin_set_pc(site.insn.next_ip()) }
}

/// Whether this is `in` or `out` proper, not a string instruction.
fn is_register(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::In | Mnemonic::Out)
}

/// Returns from a function that accesses configuration space, with success and all ones as the value.
pub fn answer_config(vcpu: &mut Vcpu, write: bool) -> ! {
    let value = vcpu.reg(R9);
    if !write && value != 0 {
        vcpu.write(value, &[0xff; 4]);
    }
    let rsp = vcpu.reg(RSP);
    let back = vcpu.read_word(rsp, 8).unwrap_or(0);
    vcpu.set_reg(RAX, 0);
    vcpu.set_reg(RSP, rsp.wrapping_add(8));
    // SAFETY: as above.
    unsafe { ffi::qemu_plugin_set_pc(back) }
}

/// Emulates an instruction with one memory operand: it loads all ones.
fn answer_memory(vcpu: &mut Vcpu, insn: &Instruction, size: u8) {
    if insn.op_count() == 0 || insn.op0_kind() != OpKind::Register || insn.op0_register().is_vector_register()
    {
        return;
    }
    let target = insn.op0_register();
    let ones = u64::MAX >> (64 - 8 * u32::from(size.clamp(1, 8)));
    match insn.mnemonic() {
        // These only compare. The flags keep their values.
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => {}
        // Zero-extended: only the bytes of the memory operand are ones.
        Mnemonic::Movzx => load(vcpu, target.full_register().number(), 8, ones),
        _ => load(vcpu, target.full_register().number(), target.size() as u8, u64::MAX),
    }
}

/// Sets a register as a load of `size` bytes does. Loads of four and more bytes clear the rest; shorter
/// loads keep it.
fn load(vcpu: &mut Vcpu, register: usize, size: u8, value: u64) {
    let before = vcpu.reg(register);
    let value = match size {
        1 => before & !0xff | value & 0xff,
        2 => before & !0xffff | value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    };
    vcpu.set_reg(register, value);
}

/// Emulates all repetitions of a string instruction at once.
fn answer_string(gate: &Gate, vcpu: &mut Vcpu, source: bool, target: Option<bool>, rep: bool, size: u8) {
    let count = if rep { vcpu.reg(RCX) } else { 1 };
    let bytes = count.saturating_mul(u64::from(size));
    let down = vcpu.reg(RFLAGS) & DIRECTION != 0;
    if target.is_some() {
        let at = vcpu.reg(RDI);
        // Where the target is the device itself, nothing is written.
        let memory = vcpu.physical(gate, at).is_some_and(|physical| !gate.is_device(physical));
        if target == Some(true) && memory && !down {
            let mut left = bytes.min(MAX_BYTES);
            let mut to = at;
            while left > 0 {
                let piece = left.min(256);
                vcpu.write(to, &[0xff; 256][..piece as usize]);
                (to, left) = (to.wrapping_add(piece), left - piece);
            }
        }
        vcpu.set_reg(RDI, step(at, bytes, down));
    }
    if source {
        let at = vcpu.reg(RSI);
        vcpu.set_reg(RSI, step(at, bytes, down));
    }
    if rep {
        vcpu.set_reg(RCX, 0);
    }
}

fn step(at: u64, bytes: u64, down: bool) -> u64 {
    if down { at.wrapping_sub(bytes) } else { at.wrapping_add(bytes) }
}
