//! Where a context stands in the order of events.

use super::{Acquired, LockId, LocksetId, Moving, Name, StrandId, chart};
use crate::level::Level;
use crate::stacks::{StackId, same_stack};
use crate::value_flow::{Control, InsnCtx};
use guardrail_knowledge::effect::Summary;
use guardrail_trace::event::Access;
use std::sync::Arc;

/// Calls under way that are known of a context.
pub(crate) const MAX_PENDING: usize = 64;
const MAX_FLAGS: usize = 16;
/// Critical sections of a context.
const MAX_SECTIONS: usize = 64;
/// What belongs to a lock lies this near.
const NEAR: u64 = 64;
/// The kernel's image.
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;

/// What the processor keeps away from a context on its vCPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Off {
    /// Interrupts are off, or this is an interrupt.
    pub irqs: bool,
    /// Softirqs are off, or this is one, or interrupts are off.
    pub softirqs: bool,
    /// Preemption is off.
    pub preemption: bool,
}

/// Where a context stands, for a checker that keeps it with what the context does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// Its strand.
    pub strand: StrandId,
    /// The strand's clock: grows with each release.
    pub clock: u32,
    /// What it holds.
    pub locks: LocksetId,
    /// What is off.
    pub off: Off,
}

/// A run of a driver function that the kernel called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The driver's function.
    pub function: u64,
    /// The kernel function that called it; empty where it is not known.
    pub caller: String,
    /// The callback of a chart that this is: chart, callback and instance.
    pub callback: Option<(usize, usize, u32)>,
    /// Its strand.
    pub strand: StrandId,
    /// Counts entries.
    pub serial: u64,
    /// rsp at its entry.
    pub rsp: u64,
    /// The object by which it takes turns with other callbacks.
    pub(crate) turns: Option<Name>,
    /// A module that is not watched called.
    pub(crate) library: bool,
    /// What it does with the memory of an object of a chart, and that object.
    pub(crate) hand: Option<(usize, chart::Hand, u64)>,
}

/// A critical section of the driver. One that has nothing but locked instructions in it is there to wait for the lock's other holders.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    lock: LockId,
    address: u64,
    /// It touches memory that the lock may protect, or calls somebody who may.
    protects: bool,
    /// It has a locked instruction.
    atomic: bool,
}

/// A call whose effects on order are not complete.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// rsp when the function begins.
    pub rsp: u64,
    /// What it does, where some of it happens when it returns.
    pub summary: Option<Arc<Summary>>,
    /// Its arguments.
    pub args: [u64; 6],
    /// What was off before it.
    pub off: Off,
    /// Its stack.
    pub stack: StackId,
    /// It is the kernel's call and not the driver's.
    pub by_kernel: bool,
    /// Objects that it moves.
    pub moving: Vec<Moving>,
}

/// Where a context stands in the order: its strand, its locks, the driver's entries that run in it.
#[derive(Debug)]
pub struct ContextOrder {
    level: Level,
    /// Its strand, clock and locks.
    pub now: Now,
    /// The locks that it holds, in the order in which it took them.
    pub held: Vec<Acquired>,
    /// The runs of driver functions that the kernel called in it and that have not returned; innermost last.
    pub entries: Vec<Entry>,
    /// The pid when it was last seen: tasks come and go at the same address.
    pub(crate) pid: u32,
    /// The vCPU that it ran on last.
    pub(crate) cpu: u32,
    /// `preempt_count`.
    preempt: u32,
    irqs_on: bool,
    /// What `pushf` has put away.
    flags: Vec<bool>,
    /// Calls under way, innermost last.
    pub(crate) pending: Vec<Pending>,
    /// Critical sections under way.
    pub(crate) sections: Vec<Section>,
    /// How many runs of the driver there were, with that which sets something going; 0 where none does.
    up: usize,
    /// That run has requested an interrupt line: from then on the handler may run, whatever the device has been told.
    line: bool,
}

impl ContextOrder {
    /// Of a context in which nothing has run.
    pub(crate) fn new(level: Level, pid: u32) -> ContextOrder {
        ContextOrder {
            level,
            now: Now::default(),
            held: Vec::new(),
            entries: Vec::new(),
            pid,
            cpu: 0,
            preempt: 0,
            irqs_on: false,
            flags: Vec::new(),
            pending: Vec::new(),
            sections: Vec::new(),
            up: 0,
            line: false,
        }
    }

    /// Whether it is a task, and not an interrupt on a task's time.
    pub(crate) fn is_task(&self) -> bool {
        is_task(self.level)
    }

    /// The processor tells.
    pub(crate) fn set(&mut self, irqs_on: bool, preempt: u32) {
        self.irqs_on = irqs_on;
        self.preempt = preempt;
    }

    /// What is off.
    pub(crate) fn off(&self) -> Off {
        let irqs = !self.irqs_on || self.preempt & 0x00ff_0000 != 0 || self.level >= Level::Hardirq;
        let softirqs = irqs || self.preempt & 0xff00 != 0 || self.level >= Level::Softirq;
        Off { irqs, softirqs, preemption: softirqs || self.preempt & 0xff != 0 }
    }

    /// Nothing that spins can be held.
    pub(crate) fn may_sleep(&self) -> bool {
        self.irqs_on && self.preempt & 0x00ff_ffff == 0
    }

    /// The innermost of so many runs of the driver sets a device going.
    pub(crate) fn begin_bringing_up(&mut self, runs: usize) {
        if self.up == 0 {
            self.up = runs;
            self.line = false;
        }
    }

    /// The context requests an interrupt line.
    pub(crate) fn requests_line(&mut self) {
        self.line = true;
    }

    /// So many runs are left.
    pub(crate) fn end_bringing_up(&mut self, runs: usize) {
        if runs < self.up {
            self.up = 0;
        }
    }

    /// Whether the context sets a device going.
    #[inline]
    pub(crate) fn brings_up(&self) -> bool {
        self.up != 0
    }

    /// Whether it sets one going that interrupts only when told to: no handler was requested meanwhile.
    #[inline]
    pub(crate) fn lets_device_interrupt(&self) -> bool {
        self.up != 0 && !self.line
    }

    /// The driver has taken a spin lock.
    pub(crate) fn begin_section(&mut self, lock: LockId, address: u64) {
        if self.sections.len() < MAX_SECTIONS {
            self.sections.push(Section { lock, address, protects: false, atomic: false });
        }
    }

    /// The context gives a lock back; whether it has only waited for the lock's holders.
    pub(crate) fn end_section(&mut self, lock: LockId) -> bool {
        let Some(at) = self.sections.iter().rposition(|section| section.lock == lock) else { return false };
        let section = self.sections.remove(at);
        section.atomic && !section.protects
    }

    /// Somebody else is called.
    pub(crate) fn call_in_section(&mut self) {
        for section in &mut self.sections {
            section.protects = true;
        }
    }

    /// The driver touches memory. What it keeps with the lock, on the stack or for its processor, and what the kernel's own
    /// variables are, tells nothing.
    #[cold]
    pub(crate) fn in_section(&mut self, insn: &InsnCtx, access: &Access) {
        let aside = insn.access.per_cpu
            || insn.rsp.is_some_and(|rsp| same_stack(rsp, access.addr))
            || IMAGE.contains(&access.addr);
        for section in &mut self.sections {
            if insn.access.locked {
                section.atomic = true;
            } else if !aside && access.addr.abs_diff(section.address) >= NEAR {
                section.protects = true;
            }
        }
    }

    /// The driver's own instruction. `preempt_count` is where `place` says.
    pub(crate) fn control(&mut self, control: Control, place: Option<u64>) {
        match control {
            Control::Cli => self.irqs_on = false,
            Control::Sti => self.irqs_on = true,
            Control::Pushf => {
                if self.flags.len() >= MAX_FLAGS {
                    self.flags.remove(0);
                }
                self.flags.push(self.irqs_on);
            }
            Control::Popf => self.irqs_on = self.flags.pop().unwrap_or(self.irqs_on),
            Control::PerCpu { place: at, delta } => {
                if place.is_some_and(|place| place as u32 == at as u32) {
                    self.preempt = self.preempt.wrapping_add(delta as u32);
                }
            }
        }
    }
}

/// Whether a strand of this level belongs to its task.
pub(crate) fn is_task(level: Level) -> bool {
    level == Level::Process
}
