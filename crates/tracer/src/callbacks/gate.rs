//! The gate: a device access waits here until the analysis has checked the log up to and including it
//! (thesis 5.2). It waits before its instruction runs. A closed gate keeps accesses from the device:
//! writes do nothing, reads return all ones.
//!
//! The gate holds accesses of driver code to any device. Kernel functions and libraries access registers
//! for drivers. The gate holds those accesses only if they go to a device that a watched driver is bound
//! to.

mod bound;
mod closed;
mod posted;

pub use bound::{on_child_probe, on_probe, on_remap};
pub use posted::{Arrival, on_arrival, on_left};

use crate::code::gate_sites::{GateAccess, GateSite};
use crate::state::{Gate, RCX, RDI, RDX, RSI, Tracer, Vcpu, tracer};
use guardrail_plugin::ffi;
use guardrail_plugin::registers::Flags;
use guardrail_plugin::with_env;
use guardrail_trace::event::{Access, Cut};
use guardrail_trace::log::{Admission, Closed, Space};
use std::ffi::{c_uint, c_void};
use std::time::{Duration, Instant};

/// How long a held vCPU polls before it sleeps, because the analysis may need its processor.
const LOOK: Duration = Duration::from_micros(10);
/// Longest wait before a held vCPU returns to its instruction, where all vCPUs share a thread.
/// Interrupts and other vCPUs run in between.
const SHARED: Duration = Duration::from_micros(100);
/// Longest wait before a held vCPU returns to its instruction, where it has a thread of its own.
const OWN: Duration = Duration::from_micros(500);
/// Most accesses that are counted for one instruction.
const MOST: u64 = 1 << 20;

/// A device access that the gate holds.
struct Held<'a> {
    gate: &'a Gate,
    space: Space,
    /// Number of accesses that the instruction makes.
    count: u64,
    /// The access word that is logged before the access happens; `None` where there is no such word.
    word: Option<Access>,
}

with_env! {
    /// An instruction that may access a device is about to run.
    on_site => at_site
}

extern "C" fn at_site(index: c_uint, site: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: sites are never freed.
    let site = unsafe { &*site.cast::<GateSite>() };
    // SAFETY: this is the vCPU's callback.
    let vcpu = unsafe {
        match site.driver {
            true => tracer.same(index),
            false => tracer.running_at(index, env),
        }
    };
    let (Some(vcpu), Some(gate)) = (vcpu, &tracer.gate) else { return };
    if let Some(held) = access(tracer, gate, vcpu, site) {
        posted::post(tracer, gate, vcpu, site, held.word);
        hold(tracer, vcpu, site, &held);
    }
}

/// The device access that the instruction is about to make. `None` where the gate does not hold it.
#[inline]
fn access<'a>(tracer: &Tracer, gate: &'a Gate, vcpu: &mut Vcpu, site: &GateSite) -> Option<Held<'a>> {
    match site.access {
        GateAccess::Memory { size, store, plain } => {
            let addr = site.operand.address(|r| vcpu.reg(r));
            if !is_held(tracer, gate, vcpu, site, addr) {
                if store {
                    posted::before_store(tracer, gate, vcpu, site, addr, size.into());
                }
                return None;
            }
            let access = Access { addr, size, store, io: true, insn: site.index };
            let word = (site.driver && plain).then_some(access);
            Some(Held { gate, space: Space::Memory, count: 1, word })
        }
        GateAccess::String { source, target, rep, size } => {
            let sources = source.then(|| vcpu.reg(RSI));
            let targets = target.map(|_| vcpu.reg(RDI));
            let count = if rep { vcpu.reg(RCX).min(MOST) } else { 1 };
            let any =
                [sources, targets].into_iter().flatten().any(|addr| is_held(tracer, gate, vcpu, site, addr));
            if let (false, Some(to), Some(true)) = (any || count == 0, targets, target) {
                posted::before_store(tracer, gate, vcpu, site, to, count * u64::from(size));
            }
            (any && count > 0).then_some(Held { gate, space: Space::Memory, count, word: None })
        }
        GateAccess::Port { port, rep, .. } => {
            let port = port.map_or_else(|| vcpu.reg(RDX) & 0xffff, u64::from);
            let count = if rep { vcpu.reg(RCX).min(MOST) } else { 1 };
            let wanted = site.driver || gate.ports.contains(port);
            (wanted && count > 0).then_some(Held { gate, space: Space::Port, count, word: None })
        }
    }
}

/// Whether the gate holds accesses to this address.
#[inline]
fn is_held(tracer: &Tracer, gate: &Gate, vcpu: &mut Vcpu, site: &GateSite, address: u64) -> bool {
    tracer.may_be_device(address) && reaches_device(gate, vcpu, site.driver, address)
}

fn reaches_device(gate: &Gate, vcpu: &mut Vcpu, driver: bool, address: u64) -> bool {
    match vcpu.physical(gate, address) {
        // The instruction will fault instead of accessing the device.
        None => false,
        Some(physical) if driver => gate.is_device(physical),
        Some(physical) => gate.memory.contains(physical),
    }
}

/// Waits until the log is checked up to and including the access. Returns only where the access may
/// happen.
#[cold]
fn hold(tracer: &Tracer, vcpu: &mut Vcpu, site: &GateSite, held: &Held<'_>) {
    let ticket = publish(tracer, vcpu, site.driver, held.word);
    match wait(tracer, vcpu, held, site.address, ticket, site.flags) {
        HeldOutcome::Pass => {}
        HeldOutcome::Again => {
            if site.driver {
                let again = match (held.word, held.space) {
                    (Some(_), _) => Cut::AGAIN_ACCESS,
                    (None, Space::Port) => Cut::AGAIN_PORT,
                    _ => Cut::ENDS,
                };
                vcpu.end_after(site.index, again);
            }
            // SAFETY: the callback is registered for it; it leaves by longjmp over frames that have nothing to drop.
            unsafe { ffi::qemu_plugin_set_pc(site.address) }
        }
        HeldOutcome::Closed => closed::skip(held.gate, vcpu, site),
    }
    if site.driver {
        vcpu.passed = Some(site.index);
        vcpu.writer.begin_continuation();
    }
}

/// The outcome of one wait for a held access.
enum HeldOutcome {
    /// The access may happen.
    Pass,
    /// The access is not checked yet: the vCPU returns to the instruction later.
    Again,
    /// The access must not happen.
    Closed,
}

/// Waits until the segment with this ticket is checked. `flags` describes the flags before the
/// instruction at `address`.
fn wait(
    tracer: &Tracer,
    vcpu: &mut Vcpu,
    held: &Held<'_>,
    address: u64,
    ticket: Option<u64>,
    flags: Flags,
) -> HeldOutcome {
    let since = vcpu.held_since.take().filter(|&(at, _)| at == address);
    let since = since.map_or_else(Instant::now, |(_, since)| since);
    let patience = if tracer.single() { SHARED } else { OWN };
    loop {
        let admission = match ticket {
            Some(ticket) => tracer.log().wait_checked(ticket, LOOK, patience),
            None => tracer.log().gate_closed().map_or(Admission::Pass, Admission::Closed),
        };
        match admission {
            Admission::Pass => {
                // They were logged before, so they are checked too.
                if let Some(posted) = &held.gate.posted {
                    posted.deliver(tracer.log());
                }
                let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                tracer.log().count_held(held.space, held.count, nanos);
                return HeldOutcome::Pass;
            }
            Admission::Closed(_) => {
                tracer.log().count_dropped(held.space, held.count);
                return HeldOutcome::Closed;
            }
            Admission::Wait if since.elapsed() >= held.gate.limit() => tracer.close_gate(Closed::TimeOut),
            Admission::Wait if vcpu.regs.can_leave(flags) => {
                vcpu.held_since = Some((address, since));
                return HeldOutcome::Again;
            }
            Admission::Wait => {}
        }
    }
}

/// Publishes everything that the access depends on, and returns the ticket that must be checked.
fn publish(tracer: &Tracer, vcpu: &mut Vcpu, driver: bool, word: Option<Access>) -> Option<u64> {
    if let Some(word) = word {
        vcpu.writer.push(word.encode());
        vcpu.logged = Some(word.insn);
    }
    vcpu.writer.close();
    match driver {
        true => Some(vcpu.writer.ticket()),
        // The driver may have requested the access on any vCPU, so all segments so far must be checked.
        false => tracer.log().next_ticket().checked_sub(1),
    }
}

with_env! {
    /// The kernel is about to access PCI configuration space; its arguments say where.
    on_config => at_config
}

extern "C" fn at_config(index: c_uint, number: *mut c_void, env: *mut u64) {
    let Some(tracer) = tracer() else { return };
    // SAFETY: this is the vCPU's callback.
    let (Some(vcpu), Some(gate)) = (unsafe { tracer.running_at(index, env) }, &tracer.gate) else { return };
    let Some(accessor) = gate.config().config_space.get(number as usize) else { return };
    if !bound::is_bound(tracer, vcpu.reg(RSI), vcpu.reg(RDX)) {
        return;
    }
    let address = accessor.address.wrapping_add(tracer.slide().unwrap_or(0));
    let held = Held { gate, space: Space::Config, count: 1, word: None };
    let ticket = publish(tracer, vcpu, false, None);
    // No function expects flags from its caller.
    match wait(tracer, vcpu, &held, address, ticket, Flags::Untouched) {
        HeldOutcome::Pass => {}
        // SAFETY: as above.
        HeldOutcome::Again => unsafe { ffi::qemu_plugin_set_pc(address) },
        HeldOutcome::Closed => closed::answer_config(vcpu, accessor.write),
    }
}
