//! Callbacks of instructions that can be held.

use super::blocks::{begin_block, context};
use crate::code::{self, Special};
use crate::state::{
    Arrival, Block, HoldSite, INTERRUPT_FLAG, MemFlags, MemSite, RFLAGS, RSP, Thread, Tracer, Vcpu, Verdict,
    entered_with,
};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::Flags;
use guardrail_trace::event::{Access, Head, Kind};
use guardrail_trace::meet::{Meet, MeetSide};
use std::ffi::{c_uint, c_void};
use std::time::{Duration, Instant};

/// How long a held vCPU with a thread of its own sleeps before it looks again.
const NAP: Duration = Duration::from_micros(20);

/// The bit of `preempt_count` that is no count: it is clear while a reschedule is due.
const NO_RESCHEDULE: u32 = 1 << 31;

/// Callback at the start of a driver block whose first instruction can be held, where a side of a pair comes near, or
/// where threads can be delayed.
pub extern "C" fn on_block(index: c_uint, block: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let entered = unsafe { entered_with::<Block>(Tracer::running, index, block) };
    let Some((tracer, vcpu, block)) = entered else { return };
    if !block.approaches.is_empty() {
        tracer.holds.approach(&block.approaches, Instant::now());
    }
    if block.stalls && stays(tracer, vcpu, block.address) {
        vcpu.writer.close();
        back(tracer, block.address);
    }
    let held = block.holds.first().filter(|site| site.index == 0);
    if let Some(site) = held.filter(|site| arrive(tracer, vcpu, site) == Verdict::Back) {
        // The entry is logged when the block really runs. No driver code runs before that.
        vcpu.writer.close();
        back(tracer, site.address);
    }
    begin_block(tracer, vcpu, block);
}

/// Callback before an instruction within a block that can be held.
pub extern "C" fn on_instruction(index: c_uint, site: *mut c_void) {
    // SAFETY: this is the vCPU's callback, and blocks and their sites are never freed.
    let entered = unsafe { entered_with::<HoldSite>(Tracer::same, index, site) };
    let Some((tracer, vcpu, site)) = entered else { return };
    if arrive(tracer, vcpu, site) == Verdict::Go {
        return;
    }
    if vcpu.regs.can_leave(site.flags) {
        // The block ends before this instruction, which begins the next block.
        vcpu.writer.push(Head::encode(Kind::Cut, 0, u64::from(site.index)));
        vcpu.writer.close();
        back(tracer, site.address);
    }
    // The vCPU waits here with no lock held: QEMU does not hold its lock in callbacks of translated
    // code.
    vcpu.writer.close();
    while arrive(tracer, vcpu, site) == Verdict::Back {
        std::thread::sleep(NAP);
    }
    vcpu.writer.begin_continuation();
}

/// Sends the vCPU back to the instruction. Interrupts and other vCPUs run in between.
fn back(tracer: &Tracer, address: u64) -> ! {
    if !tracer.single() {
        std::thread::sleep(NAP);
    }
    // SAFETY: the callback is registered for it. It leaves by longjmp over our frames, none of which has anything to drop.
    unsafe { ffi::qemu_plugin_set_pc(address) }
}

/// Whether the thread must begin its block again. Only threads that may move to another CPU do so.
fn stays(tracer: &Tracer, vcpu: &mut Vcpu, address: u64) -> bool {
    if vcpu.reg(RFLAGS) & INTERRUPT_FLAG == 0 {
        return false;
    }
    let (task, preempt_count) = context(tracer, vcpu);
    if preempt_count & !NO_RESCHEDULE != 0 {
        return false;
    }
    tracer.holds.stays(Thread { address, rsp: vcpu.reg(RSP), task }, Instant::now())
}

fn arrive(tracer: &Tracer, vcpu: &mut Vcpu, site: &HoldSite) -> Verdict {
    if site.roles.is_empty() && !tracer.holds.due(Instant::now()) {
        return Verdict::Go;
    }
    let Some(address) = site.operand.address(&site.insn, |r| vcpu.reg(r)) else { return Verdict::Go };
    let mut side = here(tracer, vcpu, site.address);
    (side.address, side.size, side.store) = (address, site.operand.size, site.operand.store);
    side.rsp = vcpu.reg(RSP);
    let arrival = Arrival {
        side,
        roles: &site.roles,
        sampled: site.sampled,
        locked: code::special(&site.insn) == Special::Locked,
        holdable: (site.flags != Flags::Live || !tracer.single()) && !tracer.may_be_device(address),
        now: Instant::now(),
    };
    let (step, meet) = tracer.holds.arrive(&arrival, |at, len| vcpu.read_word(at, len as usize));
    log(vcpu, meet);
    vcpu.awaiting = step.1.map(|side| (side, site.operand.store));
    step.0
}

/// Describes the instruction at `pc` on this vCPU, without its access.
fn here(tracer: &Tracer, vcpu: &mut Vcpu, pc: u64) -> MeetSide {
    let (task, preempt_count) = context(tracer, vcpu);
    MeetSide { pc, cpu: vcpu.writer.ring() as u8, preempt_count, task, ..MeetSide::default() }
}

/// Notes that an instruction has made its access. It was held, or it met one that was.
pub fn ran(tracer: &Tracer, vcpu: &mut Vcpu, store: bool) {
    let Some((side, stores)) = vcpu.awaiting else { return };
    if stores && !store {
        return;
    }
    vcpu.awaiting = None;
    let meet = tracer.holds.ran(side, Instant::now(), |at, len| vcpu.read_word(at, len as usize));
    log(vcpu, meet);
}

/// Compares an access of the driver with a held one that was picked at random.
#[cold]
pub fn watch(tracer: &Tracer, vcpu: &mut Vcpu, site: &MemSite, access: Access) {
    // Locked accesses do not race.
    if site.flags & MemFlags::ATOMIC != 0 {
        return;
    }
    let mut side = here(tracer, vcpu, site.address);
    (side.address, side.size, side.store) = (access.addr, access.size, access.store);
    let meet = tracer.holds.accessed(&side, Instant::now(), |at, len| vcpu.read_word(at, len as usize));
    log(vcpu, meet);
}

/// Writes a record into the open segment, or into a segment of its own.
fn log(vcpu: &mut Vcpu, meet: Option<Meet>) {
    let Some(meet) = meet else { return };
    let open = vcpu.writer.is_open();
    if !open {
        vcpu.writer.begin_continuation();
    }
    vcpu.writer.push_slice(&meet.encode());
    if !open {
        vcpu.writer.close();
    }
}
