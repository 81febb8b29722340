//! Callbacks of a driver's instructions, and of interrupts: they log accesses, calls and discontinuities.

use super::holds;
use crate::code::{self, Target};
use crate::state::{
    ARGS, Block, CR2, Leave, MemFlags, MemSite, Port, RAX, RCX, RDI, RDX, RSI, RSP, Tracer, Vcpu, entered,
    entered_with, tracer, word,
};
use guardrail_plugin::ffi;
use guardrail_trace::event::{Access, Head, Kind, MAX_ARGS};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::PoisonError;

/// Memory callback: a driver instruction has accessed memory.
pub extern "C" fn on_access(index: c_uint, info: u32, vaddr: u64, site: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks and their sites are never freed.
    let entered = unsafe { entered_with::<MemSite>(Tracer::same, index, site) };
    let Some((tracer, vcpu, site)) = entered else { return };
    // SAFETY: queries about the access at hand.
    let (store, shift) =
        unsafe { (ffi::qemu_plugin_mem_is_store(info), ffi::qemu_plugin_mem_size_shift(info)) };
    let io = site.flags & MemFlags::STACK == 0 && tracer.may_be_device(vaddr) && is_device(info, vaddr);
    let insn = match vcpu.block {
        Some(block) if block.number == site.block => site.index,
        block => match block.and_then(|block| cut(vcpu, block, site)) {
            Some(insn) => insn,
            None => {
                return tracer.give_up(&format!(
                    "QEMU reported an access by {:#x}, outside the block at {:#x} that had begun",
                    site.address,
                    vcpu.block.map_or(0, |b| b.address)
                ));
            }
        },
    };
    let access = Access { addr: vaddr, size: 1 << shift.min(6), store, io, insn };
    let logged = io && vcpu.logged.take_if(|logged| *logged == insn).is_some();
    if !logged && (io || site.flags & MemFlags::DEVICES_ONLY == 0) {
        vcpu.writer.push(access.encode());
    }
    if io && vcpu.passed != Some(insn) {
        tracer.got_around();
    }
    if tracer.holds.watching() {
        holds::watch(tracer, vcpu, site, access);
    }
    if site.flags & MemFlags::ANY_SPECIAL != 0 {
        after_special(tracer, vcpu, info, site.flags, store);
    }
}

/// Handles an access from a block whose beginning was not reported. It returns the index of the
/// instruction in the block that began.
///
/// When an instruction in the middle of a block accesses a device, QEMU abandons the block there. It
/// then runs the instruction in a block of its own, with memory callbacks only.
#[cold]
fn cut(vcpu: &mut Vcpu, block: &Block, site: &MemSite) -> Option<u16> {
    let insn = block.sites.iter().find(|s| s.address == site.address)?.index;
    if !vcpu.writer.is_open() {
        // The translation of the block with one instruction has closed the segment.
        vcpu.writer.begin_continuation();
    }
    if vcpu.cut != Some(insn) {
        vcpu.cut = Some(insn);
        vcpu.writer.push(Head::encode(Kind::Cut, 0, u64::from(insn) + 1));
    }
    Some(insn)
}

fn is_device(info: u32, vaddr: u64) -> bool {
    // SAFETY: queries about the access at hand.
    unsafe {
        let place = ffi::qemu_plugin_get_hwaddr(info, vaddr);
        // QEMU forgets the target of an access only if the access changed the memory map. Only a device
        // register does that.
        place.is_null() || ffi::qemu_plugin_hwaddr_is_io(place)
    }
}

fn after_special(tracer: &Tracer, vcpu: &mut Vcpu, info: u32, flags: u16, store: bool) {
    if flags & MemFlags::HELD != 0 {
        holds::ran(tracer, vcpu, store);
    }
    if flags & MemFlags::LOCKED != 0 && store {
        vcpu.writer.begin_continuation();
    }
    if flags & MemFlags::LEAVE_AFTER_STORE != 0 && store {
        leave(vcpu);
    }
    if flags & MemFlags::LEAVE_AFTER_LOAD != 0 && !store && vcpu.left {
        vcpu.writer.close();
    }
    if flags & MemFlags::RETURN != 0 && !store {
        // SAFETY: a query about the access at hand.
        let to = unsafe { ffi::qemu_plugin_mem_get_value(info) }.low;
        if !tracer.watched.contains(to) {
            leave_by_return(vcpu);
        }
    }
}

/// Logs that a driver function returns to the kernel, with its result, and ends the segment.
fn leave_by_return(vcpu: &mut Vcpu) {
    let result = vcpu.reg(RAX);
    vcpu.writer.push_slice(&[Head::encode(Kind::Return, 0, 0), result]);
    leave(vcpu);
}

fn leave(vcpu: &mut Vcpu) {
    vcpu.left = true;
    vcpu.writer.close();
}

/// Callback before a driver block leaves the driver by a call or jump, or jumps through a register or
/// memory.
pub extern "C" fn on_leave(index: c_uint, block: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let entered = unsafe { entered_with::<Block>(Tracer::same, index, block) };
    let Some((tracer, vcpu, block)) = entered else { return };
    let Some(at) = &block.leave else { return };
    let target = match at.target {
        Target::Direct(target) => Some(target),
        Target::Register(register) => Some(vcpu.reg(usize::from(register))),
        Target::Memory => memory_target(vcpu, at),
    };
    // Where the operand cannot be read, the instruction faults instead of leaving.
    let Some(target) = target else { return };
    if at.jump
        && at.target == Target::Memory
        && tracer.watched.contains(target)
        && !is_function(tracer, target)
    {
        // A jump through a table stays in the driver, and the next block logs where it arrives.
        return;
    }
    let mut words = [0; 2 + MAX_ARGS];
    words[0] = Head::encode(Kind::Call, u8::from(at.jump), target);
    words[1] = vcpu.reg(RSP);
    for (word, register) in words[2..].iter_mut().zip(ARGS).take(usize::from(at.args)) {
        *word = vcpu.reg(register);
    }
    vcpu.writer.push_slice(&words);
    vcpu.left = true;
    if at.last {
        vcpu.writer.close();
    }
}

fn memory_target(vcpu: &mut Vcpu, at: &Leave) -> Option<u64> {
    let address = code::operand_address(&at.insn, |r| vcpu.reg(r));
    vcpu.read_word(address, 8)
}

fn is_function(tracer: &Tracer, addr: u64) -> bool {
    tracer.sites.read().unwrap_or_else(PoisonError::into_inner).functions.contains(&addr)
}

/// Callback at the end of a driver block after which other code may run, without a record of its own.
pub extern "C" fn on_silent_leave(index: c_uint, _: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    let Some((_, vcpu)) = (unsafe { entered(Tracer::same, index) }) else { return };
    leave(vcpu);
}

/// Callback before a driver block jumps to a return thunk.
pub extern "C" fn on_return_thunk(index: c_uint, _: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    let Some((tracer, vcpu)) = (unsafe { entered(Tracer::same, index) }) else { return };
    let rsp = vcpu.reg(RSP);
    if !vcpu.read_word(rsp, 8).is_some_and(|to| tracer.watched.contains(to)) {
        leave_by_return(vcpu);
    }
}

/// Callback before a port access.
pub extern "C" fn on_port(index: c_uint, port: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let Some((_, vcpu, port)) = (unsafe { entered_with::<Port>(Tracer::same, index, port) }) else { return };
    let number = port.port.map_or_else(|| vcpu.reg(RDX) & 0xffff, u64::from);
    vcpu.writer.push(Head::encode(Kind::Port, port.small, u64::from(port.index) << 16 | number));
}

/// Callback before a repeated string instruction.
pub extern "C" fn on_rep(index: c_uint, insn: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    let Some((_, vcpu)) = (unsafe { entered(Tracer::same, index) }) else { return };
    let head = Head::encode(Kind::Rep, 0, insn as u64);
    let words = [head, vcpu.reg(RCX), vcpu.reg(RSI), vcpu.reg(RDI)];
    vcpu.writer.push_slice(&words);
}

/// Callback for an interrupt or exception. QEMU's big lock is held, so it never waits.
///
/// QEMU reports an exception twice. The first report arrives when the instruction raises it, before the
/// handler is known. The second arrives when the handler is about to run, as an interrupt somewhere
/// after the instruction. The log has the exception once.
pub extern "C" fn on_discontinuity(index: c_uint, kind: c_int, from: u64, to: u64, _: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    tracer.learn(index, from);
    // SAFETY: this is the vCPU's callback.
    let Some(vcpu) = (unsafe { tracer.named(index) }) else { return };
    let raised = vcpu.raised.take();
    if kind == ffi::DISCON_EXCEPTION && tracer.watched.contains(from) && tracer.watched.contains(to) {
        vcpu.raised = Some(from);
        return;
    }
    let exception = kind == ffi::DISCON_EXCEPTION || raised.is_some();
    // If the second report names driver code, it names the very instruction.
    let from = if tracer.watched.contains(from) { from } else { raised.unwrap_or(from) };
    // Until the driver's first instruction runs again, the interrupted code is the other code.
    if !tracer.watched.contains(from) || vcpu.left {
        return;
    }
    let cr2 = if exception { vcpu.reg(CR2) } else { 0 };
    let kind = if exception { ffi::DISCON_EXCEPTION } else { kind };
    vcpu.writer.begin_urgent();
    vcpu.writer.push_urgent(&[Head::encode(Kind::Discontinuity, kind as u8, from), to, cr2]);
    vcpu.writer.close();
    vcpu.left = true;
    vcpu.interrupted = true;
    // The CPU has pushed (an error code and) rip, cs, rflags, rsp, ss.
    let frame = vcpu.reg(RSP);
    if let Some(bytes) = vcpu.read(frame, 40) {
        let saved = |i: usize| word(&bytes[i * 8..]);
        let rsp = if saved(0) == from { saved(3) } else { saved(4) };
        tracer.note_interrupted(from, rsp, exception);
    }
}

/// Callback when a vCPU becomes idle or exits.
pub extern "C" fn on_pause(index: c_uint, _: *mut c_void) {
    // SAFETY: this is the vCPU's callback.
    if let Some((_, vcpu)) = unsafe { entered(Tracer::named, index) } {
        vcpu.writer.close();
    }
}
