//! Posted writes: a vCPU does not wait with a write to a device's memory. PCI posts such writes too, and a driver may not
//! assume that one has arrived before it reads from the device (Documentation/driver-api/device-io.rst).
//!
//! They arrive when they have been checked, in order, and before whatever could notice that they had not. That is any access
//! that waits, a kernel function that waits or ends an interrupt, a CPU that idles, and the end of a driver.

use super::{LOOK, OWN, SHARED, publish};
use crate::code::gate_sites::{GateAccess, GateSite};
use crate::state::{Arrived, Gate, Posted, Tracer, Vcpu, Write, tracer};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::Flags;
use guardrail_plugin::with_env;
use guardrail_trace::event::{Access, Cut};
use guardrail_trace::log::Closed;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// Sends a write on its way, and continues after it. Returns where that cannot be: then it is held.
pub fn post(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, site: &GateSite, word: Option<Access>) {
    let Some(posted) = gate.posted.as_ref().filter(|posted| posted.has_room()) else { return };
    let GateAccess::Memory { size, store: true, plain: true } = site.access else { return };
    let Some(value) = stored(&site.insn, |register| vcpu.reg(register)) else { return };
    let address = site.operand.address(|register| vcpu.reg(register));
    if size > 8 || address % PAGE + u64::from(size) > PAGE || vcpu.awaiting.is_some() {
        return;
    }
    let Some(address) = vcpu.physical(gate, address) else { return };
    if tracer.log().gate_closed().is_some() || !vcpu.regs.can_leave(site.flags) {
        return;
    }
    let Some(ticket) = publish(tracer, vcpu, site.driver, word) else { return };
    posted.push(Write { address, size, value, ticket, since: Instant::now() });
    if site.driver {
        vcpu.end_after(site.index, Cut::ENDS);
    }
    // SAFETY: the callback is registered for it; it leaves by longjmp over frames that have nothing to drop.
    unsafe { ffi::qemu_plugin_set_pc(site.insn.next_ip()) }
}

/// The value that a move stores, in its lowest bytes; `None` for other instructions.
fn stored(insn: &Instruction, register: impl FnOnce(usize) -> u64) -> Option<u64> {
    let moves = matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Movnti) && insn.op_count() == 2;
    if !moves || insn.op0_kind() != OpKind::Memory {
        return None;
    }
    if insn.op1_kind() != OpKind::Register {
        return insn.try_immediate(1).ok();
    }
    let from = insn.op1_register();
    let value = from.is_gpr().then(|| register(from.full_register().number()))?;
    let high = matches!(from, Register::AH | Register::BH | Register::CH | Register::DH);
    Some(if high { value >> 8 } else { value })
}

/// Callback at the start of blocks of any code, and of functions that the kernel runs all the time.
pub extern "C" fn on_left(_: c_uint, _: *mut c_void) {
    let Some((tracer, gate, posted)) = posting() else { return };
    if posted.are_left()
        && let Some(Arrived::Until(_, waited)) = posted.try_deliver(tracer.log())
        && waited >= gate.limit()
    {
        tracer.close_gate(Closed::TimeOut);
    }
}

with_env! {
    /// What follows needs all writes to have arrived. The data is the address of the instruction's [`Arrival`].
    on_arrival => at_arrival
}

/// An instruction before which all writes must have arrived.
pub struct Arrival {
    /// Its address.
    pub address: u64,
    /// State of the arithmetic flags before it.
    pub flags: Flags,
}

extern "C" fn at_arrival(index: c_uint, arrival: *mut c_void, env: *mut u64) {
    let Some((tracer, gate, posted)) = posting() else { return };
    if !posted.are_left() {
        return;
    }
    // SAFETY: this is the vCPU's callback, and these values are never freed.
    let (vcpu, arrival) = unsafe { (tracer.running_at(index, env), &*arrival.cast::<Arrival>()) };
    let Some(vcpu) = vcpu else { return };
    if !arrive(tracer, gate, posted, vcpu, arrival.flags) {
        // SAFETY: as above.
        unsafe { ffi::qemu_plugin_set_pc(arrival.address) }
    }
}

/// A store to memory that is no device's is about to happen. A write to a device may have that device read the same
/// memory, as it was when the driver wrote. Such a write arrives first: on a bus it would be nearly sure to.
///
/// QEMU's model of the 82559 goes past the end of its commands otherwise. The driver takes the mark of the end away from a
/// command as soon as it has another one.
#[inline]
pub fn before_store(
    tracer: &Tracer,
    gate: &Gate,
    vcpu: &mut Vcpu,
    site: &GateSite,
    address: u64,
    length: u64,
) {
    if let Some(posted) = &gate.posted
        && posted.coherent.contains(tracer.direct_map.load(Relaxed), address)
        && !posted.may_store(address, length)
    {
        settle(tracer, gate, posted, vcpu, site);
        posted.may_store(address, length);
    }
}

/// Waits for all writes before an instruction.
#[cold]
fn settle(tracer: &Tracer, gate: &Gate, posted: &Posted, vcpu: &mut Vcpu, site: &GateSite) {
    // Another vCPU may wait for it.
    vcpu.writer.close();
    if !arrive(tracer, gate, posted, vcpu, site.flags) {
        if site.driver {
            vcpu.end_before(site.index);
        }
        // SAFETY: the callback is registered for it; it leaves by longjmp over frames that have nothing to drop.
        unsafe { ffi::qemu_plugin_set_pc(site.address) }
    }
    if site.driver {
        vcpu.writer.begin_continuation();
    }
}

/// Waits until all writes have arrived. False where the vCPU should come back to its instruction.
fn arrive(tracer: &Tracer, gate: &Gate, posted: &Posted, vcpu: &mut Vcpu, flags: Flags) -> bool {
    let begun = Instant::now();
    let mut arrived = all_arrive(tracer, gate, posted);
    while !arrived && !vcpu.regs.can_leave(flags) {
        arrived = all_arrive(tracer, gate, posted);
    }
    tracer.log().count_waited(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    arrived
}

/// Waits until all writes have arrived, or the gate is closed. False where the vCPU should come again, so that its
/// interrupts and other vCPUs run.
fn all_arrive(tracer: &Tracer, gate: &Gate, posted: &Posted) -> bool {
    let patience = if tracer.single() { SHARED } else { OWN };
    let begun = Instant::now();
    loop {
        let Arrived::Until(ticket, waited) = posted.deliver(tracer.log()) else { return true };
        if waited >= gate.limit() {
            tracer.close_gate(Closed::TimeOut);
            continue;
        }
        let left = patience.saturating_sub(begun.elapsed());
        if left == Duration::ZERO {
            return false;
        }
        tracer.log().wait_checked(ticket, LOOK, left);
    }
}

fn posting() -> Option<(&'static Tracer, &'static Gate, &'static Posted)> {
    let tracer = tracer()?;
    let gate = tracer.gate.as_ref()?;
    Some((tracer, gate, gate.posted.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(bytes: &[u8]) -> Option<u64> {
        let insn = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode();
        stored(&insn, |register| 0x1111_2222_3333_4400 | register as u64)
    }

    #[test]
    fn moves_to_memory_store_registers_and_numbers() {
        // mov [rdi],rdx; mov [rdi],edx; mov [rdi],r9b; mov [rdi],dh; movnti [rdi],eax
        assert_eq!(of(&[0x48, 0x89, 0x17]), Some(0x1111_2222_3333_4402));
        assert_eq!(of(&[0x89, 0x17]), Some(0x1111_2222_3333_4402));
        assert_eq!(of(&[0x44, 0x88, 0x0f]), Some(0x1111_2222_3333_4409));
        assert_eq!(of(&[0x88, 0x37]).map(|value| value as u8), Some(0x44));
        assert_eq!(of(&[0x0f, 0xc3, 0x07]), Some(0x1111_2222_3333_4400));
        // mov dword [rdi],-2; mov qword [rdi],-2; mov word [rdi],7; mov byte [rdi],0x80
        assert_eq!(of(&[0xc7, 0x07, 0xfe, 0xff, 0xff, 0xff]).map(|value| value as u32), Some(-2i32 as u32));
        assert_eq!(of(&[0x48, 0xc7, 0x07, 0xfe, 0xff, 0xff, 0xff]), Some(-2i64 as u64));
        assert_eq!(of(&[0x66, 0xc7, 0x07, 7, 0]), Some(7));
        assert_eq!(of(&[0xc6, 0x07, 0x80]).map(|value| value as u8), Some(0x80));
    }

    #[test]
    fn what_is_no_plain_move_of_a_general_register_waits() {
        // mov eax,[rdi]; or dword [rdi],1; xchg [rdi],eax; movups [rdi],xmm0; stosd; mov [rdi],ds; setz [rdi]
        for bytes in [
            &[0x8b, 0x07][..],
            &[0x83, 0x0f, 1],
            &[0x87, 0x07],
            &[0x0f, 0x11, 0x07],
            &[0xab],
            &[0x8c, 0x1f],
            &[0x0f, 0x94, 0x07],
        ] {
            assert_eq!(of(bytes), None, "{bytes:x?}");
        }
    }
}
