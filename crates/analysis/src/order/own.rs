//! What the order of events keeps of a context besides what checkers see.

use super::{LockId, Moving, Off};
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

/// What is kept of a context.
#[derive(Debug, Default)]
pub(crate) struct Own {
    /// The pid when it was last seen: tasks come and go at the same address.
    pub pid: u32,
    /// The vCPU that it ran on last.
    pub cpu: u32,
    /// `preempt_count`.
    preempt: u32,
    irqs_on: bool,
    /// What `pushf` has put away.
    flags: Vec<bool>,
    /// Calls under way, innermost last.
    pub pending: Vec<Pending>,
    /// Critical sections under way.
    pub sections: Vec<Section>,
    /// How many runs of the driver there were, with that which sets something going; 0 where none does.
    up: usize,
    /// That run has requested an interrupt line: from then on the handler may run, whatever the device has been told.
    line: bool,
}

impl Own {
    /// Of a context in which nothing has run.
    pub fn new(pid: u32) -> Own {
        Own { pid, ..Own::default() }
    }

    /// The processor tells.
    pub fn set(&mut self, irqs_on: bool, preempt: u32) {
        self.irqs_on = irqs_on;
        self.preempt = preempt;
    }

    /// What is off.
    pub fn off(&self, level: Level) -> Off {
        let irqs = !self.irqs_on || self.preempt & 0x00ff_0000 != 0 || level >= Level::Hardirq;
        let softirqs = irqs || self.preempt & 0xff00 != 0 || level >= Level::Softirq;
        Off { irqs, softirqs, preemption: softirqs || self.preempt & 0xff != 0 }
    }

    /// Nothing that spins can be held.
    pub fn may_sleep(&self) -> bool {
        self.irqs_on && self.preempt & 0x00ff_ffff == 0
    }

    /// The innermost of so many runs of the driver sets a device going.
    pub fn begin_bringing_up(&mut self, runs: usize) {
        if self.up == 0 {
            self.up = runs;
            self.line = false;
        }
    }

    /// The context requests an interrupt line.
    pub fn requests_line(&mut self) {
        self.line = true;
    }

    /// So many runs are left.
    pub fn end_bringing_up(&mut self, runs: usize) {
        if runs < self.up {
            self.up = 0;
        }
    }

    /// Whether the context sets a device going.
    #[inline]
    pub fn brings_up(&self) -> bool {
        self.up != 0
    }

    /// Whether it sets one going that interrupts only when told to: no handler was requested meanwhile.
    #[inline]
    pub fn lets_device_interrupt(&self) -> bool {
        self.up != 0 && !self.line
    }

    /// The driver has taken a spin lock.
    pub fn begin_section(&mut self, lock: LockId, address: u64) {
        if self.sections.len() < MAX_SECTIONS {
            self.sections.push(Section { lock, address, protects: false, atomic: false });
        }
    }

    /// The context gives a lock back; whether it has only waited for the lock's holders.
    pub fn end_section(&mut self, lock: LockId) -> bool {
        let Some(at) = self.sections.iter().rposition(|section| section.lock == lock) else { return false };
        let section = self.sections.remove(at);
        section.atomic && !section.protects
    }

    /// Somebody else is called.
    pub fn call_in_section(&mut self) {
        for section in &mut self.sections {
            section.protects = true;
        }
    }

    /// The driver touches memory. What it keeps with the lock, on the stack or for its processor, and what the kernel's own
    /// variables are, tells nothing.
    #[cold]
    pub fn in_section(&mut self, insn: &InsnCtx, access: &Access) {
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
    pub fn control(&mut self, control: Control, place: Option<u64>) {
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
