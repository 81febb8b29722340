//! What runs at instructions that can be held.

use super::stalls::Thread;
use super::{Arrival, Verdict, Who};
use crate::code::{self, Special};
use crate::control::{Block, HoldSite, MemSite};
use crate::exec;
use crate::tracer::{Tracer, tracer};
use crate::vcpu::{INTERRUPT_FLAG, RFLAGS, RSP, Vcpu};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::Flags;
use guardrail_trace::event::{Access, Head, Kind};
use guardrail_trace::meet::{Meet, MeetSide};
use std::ffi::{c_uint, c_void};
use std::time::{Duration, Instant};

/// How long a held vCPU with a thread of its own sleeps before it looks again.
const NAP: Duration = Duration::from_micros(20);

/// The bit of `preempt_count` that does not count: a reschedule is due where it is clear.
const NO_RESCHEDULE: u32 = 1 << 31;

/// A driver block begins with an instruction that can be held, or where threads can be slowed down.
pub extern "C" fn on_block(index: c_uint, block: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback, and blocks are never freed.
    let Some((vcpu, block)) = (unsafe { exec::with_vcpu::<Block>(Tracer::running, index, block) }) else {
        return;
    };
    if block.stalls && stays(tracer, vcpu, block.address) {
        vcpu.writer.close();
        back(tracer, block.address);
    }
    let held = block.holds.first().filter(|site| site.index == 0);
    if let Some(site) = held.filter(|site| arrive(tracer, vcpu, site) == Verdict::Back) {
        // How the vCPU came here is told when the block runs: nothing of the driver runs until then.
        vcpu.writer.close();
        back(tracer, site.address);
    }
    exec::begin_block(tracer, vcpu, block);
}

/// An instruction within a block, that can be held, is about to run.
pub extern "C" fn on_instruction(index: c_uint, site: *mut c_void) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback, and blocks and their sites are never freed.
    let Some((vcpu, site)) = (unsafe { exec::with_vcpu::<HoldSite>(Tracer::same, index, site) }) else {
        return;
    };
    if arrive(tracer, vcpu, site) == Verdict::Go {
        return;
    }
    if vcpu.regs.can_leave(site.flags) {
        // The block ends before this instruction, which begins the next one.
        vcpu.writer.push(Head::encode(Kind::Cut, 0, u64::from(site.index)));
        vcpu.writer.close();
        back(tracer, site.address);
    }
    // Waits here, with nothing locked: QEMU's lock is not held in callbacks of translated code.
    vcpu.writer.close();
    while arrive(tracer, vcpu, site) == Verdict::Back {
        std::thread::sleep(NAP);
    }
    vcpu.writer.begin_continuation();
}

/// Sends the vCPU back to the instruction. Interrupts and other vCPUs get in on the way.
fn back(tracer: &Tracer, address: u64) -> ! {
    if !tracer.single() {
        std::thread::sleep(NAP);
    }
    // SAFETY: the callback is registered for it. It leaves by longjmp over our frames, none of which has anything to drop.
    unsafe { ffi::qemu_plugin_set_pc(address) }
}

/// A thread that may be moved to another CPU is to begin its block again.
fn stays(tracer: &Tracer, vcpu: &mut Vcpu, address: u64) -> bool {
    if vcpu.reg(RFLAGS) & INTERRUPT_FLAG == 0 {
        return false;
    }
    let (task, preempt_count) = exec::context(tracer, vcpu);
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
    let (step, told) = tracer.holds.arrive(&arrival, |at, len| vcpu.read_word(at, len as usize));
    tell(vcpu, told);
    vcpu.awaiting = step.1.map(|who| (who, site.operand.store));
    step.0
}

/// The instruction at `pc` on this vCPU, its access apart.
fn here(tracer: &Tracer, vcpu: &mut Vcpu, pc: u64) -> MeetSide {
    let (task, preempt_count) = exec::context(tracer, vcpu);
    MeetSide { pc, cpu: vcpu.writer.ring() as u8, preempt_count, task, ..MeetSide::default() }
}

/// An instruction that was held, or came to one that was, has made an access.
pub fn ran(tracer: &Tracer, vcpu: &mut Vcpu, store: bool) {
    let Some((who, stores)) = vcpu.awaiting else { return };
    if stores && !store {
        return;
    }
    vcpu.awaiting = None;
    let told = tracer.holds.ran(who, Instant::now(), |at, len| vcpu.read_word(at, len as usize));
    tell(vcpu, told);
}

/// The driver made an access while another one, picked by chance, is held.
#[cold]
pub fn watch(tracer: &Tracer, vcpu: &mut Vcpu, site: &MemSite, access: Access) {
    // Locked accesses do not race.
    if site.flags & exec::MemFlags::ATOMIC != 0 {
        return;
    }
    let mut side = here(tracer, vcpu, site.address);
    (side.address, side.size, side.store) = (access.addr, access.size, access.store);
    let told = tracer.holds.accessed(&side, Instant::now(), |at, len| vcpu.read_word(at, len as usize));
    tell(vcpu, told);
}

/// Writes a record into the open segment, or one of its own.
fn tell(vcpu: &mut Vcpu, meet: Option<Meet>) {
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

/// Who is told of when it has run, and whether its store counts.
pub type Awaiting = Option<(Who, bool)>;
