//! A context's place in the order of events.

use super::charts::BringsUp;
use super::{Acquired, LockId, LocksetId, Moving, Name, Off, StrandId, chart};
use crate::level::Level;
use crate::stacks::{StackId, same_stack};
use crate::value_flow::{Control, InsnCtx};
use guardrail_knowledge::effect::Summary;
use guardrail_trace::event::Access;
use std::sync::Arc;

/// Most open calls of a context that are known.
pub(crate) const MAX_PENDING: usize = 64;
const MAX_FLAGS: usize = 16;
/// Most critical sections of a context.
const MAX_SECTIONS: usize = 64;
/// Data within this many bytes of a lock belongs to the lock.
const NEAR: u64 = 64;
/// The address range of the kernel's image.
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_c000_0000;

/// A context's place in the order, for a checker that stores it with an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Now {
    /// The strand that the context runs.
    pub strand: StrandId,
    /// The strand's clock: grows with each release.
    pub clock: u32,
    /// The locks that the context holds.
    pub locks: LocksetId,
    /// What is off on its vCPU.
    pub off: Off,
}

/// A run of a driver function that the kernel called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Address of the driver's function.
    pub function: u64,
    /// Name of the kernel function that called it; empty where it is not known.
    pub caller: String,
    /// The callback that this run is: chart, callback and instance; `None` where no chart knows it.
    pub callback: Option<(usize, usize, u32)>,
    /// The strand that the run belongs to.
    pub strand: StrandId,
    /// Number of the entry; grows with each one.
    pub serial: u64,
    /// The value of rsp at its entry.
    pub rsp: u64,
    /// What it has returned; `None` before its end, and where that is not known.
    pub result: Option<u64>,
    /// The object by which it takes turns with other callbacks.
    pub(crate) turns: Option<Name>,
    /// The kernel suspends a device above it, as the system goes to sleep, or waits for it before it does.
    pub(crate) precedes_resume: bool,
    /// The caller is in a module that is not watched.
    pub(crate) library: bool,
    /// What it does with the memory of an object of a chart: chart, kind, and address of the object.
    pub(crate) hand: Option<(usize, chart::Hand, u64)>,
}

/// A critical section of the driver. A section with only locked instructions exists to wait for the lock's
/// other holders.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    lock: LockId,
    address: u64,
    /// The section accesses memory that the lock may protect, or calls a function that may.
    protects: bool,
    /// The section has a locked instruction.
    atomic: bool,
}

/// A call with effects on order that are not complete.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    /// The value of rsp when the function begins.
    pub rsp: u64,
    /// What the function does, where some of it happens at its return.
    pub summary: Option<Arc<Summary>>,
    /// The arguments of the call.
    pub args: [u64; 6],
    /// What was off before the call.
    pub off: Off,
    /// The stack of the call.
    pub stack: StackId,
    /// The kernel made the call for itself, not the driver.
    pub by_kernel: bool,
    /// The objects that the call moves.
    pub moving: Vec<Moving>,
}

/// A context's place in the order: its strand, its locks, and the entries of the driver that run in it.
#[derive(Debug)]
pub struct ContextOrder {
    level: Level,
    /// The current strand, clock and locks.
    pub now: Now,
    /// The held locks, in the order in which the context took them.
    pub held: Vec<Acquired>,
    /// The entries that have not returned; innermost last.
    pub entries: Vec<Entry>,
    /// The pid when the context last ran: the address of a task is reused.
    pub(crate) pid: u32,
    /// The vCPU that it ran on last.
    pub(crate) cpu: u32,
    /// The value of `preempt_count`.
    preempt: u32,
    irqs_on: bool,
    /// The interrupt flags that `pushf` has saved.
    flags: Vec<bool>,
    /// Calls that have not returned, innermost last.
    pub(crate) pending: Vec<Pending>,
    /// Critical sections that have not ended, innermost last.
    pub(crate) sections: Vec<Section>,
    /// Depth of the entry that brings a device up; 0 where no entry does.
    up: usize,
    /// That entry has requested an interrupt line. From then on the handler may run, no matter what the
    /// device was configured to do.
    line: bool,
    /// Another context has left it to this one.
    left: bool,
    /// Depth of the entry that has waited for the device's handlers; 0 where none has.
    silent: usize,
}

impl ContextOrder {
    /// The place of a context in which nothing has run.
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
            left: false,
            silent: 0,
        }
    }

    /// The context goes on at another level, and in another task.
    pub(crate) fn moves_to(&mut self, level: Level, pid: u32) {
        (self.level, self.pid) = (level, pid);
    }

    /// Whether the context is a task, not an interrupt on a task's time.
    pub(crate) fn is_task(&self) -> bool {
        is_task(self.level)
    }

    /// Sets what the log says about the processor.
    pub(crate) fn set(&mut self, irqs_on: bool, preempt: u32) {
        self.irqs_on = irqs_on;
        self.preempt = preempt;
    }

    /// What is off on the vCPU now.
    pub(crate) fn off(&self) -> Off {
        let irqs = !self.irqs_on || self.preempt & 0x00ff_0000 != 0 || self.level >= Level::Hardirq;
        let softirqs = irqs || self.preempt & 0xff00 != 0 || self.level >= Level::Softirq;
        Off { irqs, softirqs, preemption: softirqs || self.preempt & 0xff != 0 }
    }

    /// Whether no spinning lock can be held.
    pub(crate) fn may_sleep(&self) -> bool {
        self.irqs_on && self.preempt & 0x00ff_ffff == 0
    }

    /// The innermost of `runs` entries brings a device up. `from` is the context that has left this to it.
    pub(crate) fn begin_bringing_up(&mut self, runs: usize, from: Option<BringsUp>) {
        if self.up == 0 {
            self.up = runs;
            self.line = from.is_some_and(|from| from.line);
            self.left = from.is_some();
        }
    }

    /// What the context leaves to what it defers: the first run of that brings the device up, too. `None` where
    /// it does not bring up a device itself, or does so for another.
    pub(crate) fn leaves_bringing_up(&self) -> Option<BringsUp> {
        (self.up != 0 && !self.left).then_some(BringsUp { line: self.line })
    }

    /// The context requests an interrupt line.
    pub(crate) fn requests_line(&mut self) {
        self.line = true;
    }

    /// The innermost entry has waited for handlers, so it has disabled the device's interrupts before.
    pub(crate) fn silences_device(&mut self) {
        if self.silent == 0 {
            self.silent = self.entries.len();
        }
    }

    /// Only `runs` entries are left.
    pub(crate) fn end_bringing_up(&mut self, runs: usize) {
        if runs < self.up {
            self.up = 0;
        }
        if runs < self.silent {
            self.silent = 0;
        }
    }

    /// Whether another context has left it to this one to bring a device up.
    pub(crate) fn was_left_bringing_up(&self) -> bool {
        self.up != 0 && self.left
    }

    /// Whether the context brings a device up.
    #[inline]
    pub(crate) fn brings_up(&self) -> bool {
        self.up != 0
    }

    /// Whether the device interrupts only after its registers are written. The context brings it up, and has
    /// requested no handler meanwhile, or it has waited for the handlers.
    #[inline]
    pub(crate) fn lets_device_interrupt(&self) -> bool {
        self.up != 0 && !self.line || self.silent != 0
    }

    /// The driver has taken a spin lock.
    pub(crate) fn begin_section(&mut self, lock: LockId, address: u64) {
        if self.sections.len() < MAX_SECTIONS {
            self.sections.push(Section { lock, address, protects: false, atomic: false });
        }
    }

    /// The context releases a lock. Returns whether the section only waited for the lock's holders.
    pub(crate) fn end_section(&mut self, lock: LockId) -> bool {
        let Some(at) = self.sections.iter().rposition(|section| section.lock == lock) else { return false };
        let section = self.sections.remove(at);
        section.atomic && !section.protects
    }

    /// The driver calls a function that may access what the lock protects.
    pub(crate) fn call_in_section(&mut self) {
        for section in &mut self.sections {
            section.protects = true;
        }
    }

    /// The driver accesses memory. Accesses near the lock, to the stack, to per-CPU memory and to the
    /// kernel's own variables do not count.
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

    /// Executes an instruction of the driver that changes what may interrupt. `preempt_count` is at `place`.
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
