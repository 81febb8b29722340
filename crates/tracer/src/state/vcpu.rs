//! State of one vCPU: its ring, its registers, and reads of guest memory from its thread.

use super::block::Block;
use super::gate::{DevicePages, Gate};
use super::holds::Awaiting;
use super::stacks::KnownStacks;
use guardrail_plugin::cpu::Cpu;
use guardrail_plugin::ffi;
use guardrail_trace::event::{Cut, Head, Kind};
use guardrail_trace::log::RingWriter;
use rustc_hash::FxHashMap;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

pub use guardrail_plugin::cpu::ARGS;
pub use guardrail_plugin::registers::{
    CR2, GS_BASE, INTERRUPT_FLAG, RAX, RBP, RCX, RDI, RDX, RFLAGS, RSI, RSP, word,
};

/// State of one vCPU. Only its own thread uses it, in callbacks.
pub struct Vcpu {
    /// Writer of this vCPU's ring.
    pub writer: RingWriter,
    /// The driver block that began last.
    pub block: Option<&'static Block>,
    /// Index of the instruction after which that block was cut.
    pub cut: Option<u16>,
    /// True where other code may have run since the last driver block.
    pub left: bool,
    /// True where the driver was interrupted on this vCPU since it last ran.
    pub interrupted: bool,
    /// The driver instruction that raised an exception whose handler is about to run.
    pub raised: Option<u64>,
    /// Addresses of per-CPU variables, with the generation in which they were found. The kernel changes
    /// the GS base of a CPU only at a reset.
    pub per_cpu: Option<(u64, PerCpuAddresses)>,
    /// True once the log has this vCPU's GS base.
    pub gs_logged: bool,
    /// Set where the current instruction was held, or met one that was held: its side, to record when it
    /// has run.
    pub awaiting: Awaiting,
    /// Tasks that have a thread record, with their pids.
    pub tasks: FxHashMap<u64, u32>,
    /// Stacks that this vCPU's ring defines.
    pub stacks: KnownStacks,
    /// Physical addresses of stack pages, per task.
    stack_pages: Box<[StackPage; STACK_PAGES]>,
    /// Index of the instruction in the block whose device access was logged before it happens.
    pub logged: Option<u16>,
    /// Index of the instruction in the block that the gate held and let pass. It may access a device.
    pub passed: Option<u16>,
    /// Address of the instruction that the gate holds, and the start of the hold.
    pub held_since: Option<(u64, Instant)>,
    /// Physical addresses of device pages.
    pages: DevicePages,
    /// Registers, and the guest's memory as this vCPU maps it.
    cpu: Cpu,
}

/// Stack pages that a vCPU remembers; a power of two.
const STACK_PAGES: usize = 128;
const PAGE: u64 = 4096;

/// A page of a stack, as a task maps it.
///
/// A task keeps its stack as long as it lives. Pids distinguish tasks that use the same address one
/// after the other. Stacks of interrupts never move.
#[derive(Clone, Copy, Debug, Default)]
struct StackPage {
    task: u64,
    pid: u32,
    page: u64,
    physical: u64,
}

/// Physical addresses of a vCPU's per-CPU variables.
#[derive(Clone, Copy)]
pub struct PerCpuAddresses {
    pub current: u64,
    pub preempt_count: u64,
}

impl Vcpu {
    /// Makes the state of a vCPU whose registers are not known yet.
    pub fn new(writer: RingWriter) -> Vcpu {
        Vcpu {
            writer,
            block: None,
            cut: None,
            left: true,
            interrupted: false,
            raised: None,
            per_cpu: None,
            gs_logged: false,
            awaiting: None,
            logged: None,
            passed: None,
            held_since: None,
            pages: DevicePages::new(),
            tasks: FxHashMap::default(),
            stacks: KnownStacks::default(),
            stack_pages: Box::new([StackPage::default(); STACK_PAGES]),
            cpu: Cpu::new(),
        }
    }

    /// Translates an address that may belong to a device.
    pub fn physical(&mut self, gate: &Gate, addr: u64) -> Option<u64> {
        let walk = |page| {
            let mut physical = 0;
            // SAFETY: called on the vCPU's own thread; QEMU fills in the result.
            unsafe { ffi::qemu_plugin_translate_vaddr(page, &mut physical) }.then_some(physical)
        };
        self.pages.physical(gate, addr, walk)
    }

    /// Ends the block after the instruction with this index, whose access is logged. If the instruction
    /// still runs, it runs in another block.
    pub fn end_after(&mut self, index: u16, how: u8) {
        self.end(u64::from(index) + 1, how);
    }

    /// Ends the block before the instruction with this index, which will run in another block.
    pub fn end_before(&mut self, index: u16) {
        self.end(index.into(), Cut::ENDS);
    }

    fn end(&mut self, count: u64, how: u8) {
        self.writer.begin_continuation();
        self.writer.push(Head::encode(Kind::Cut, how, count));
        self.writer.close();
    }

    /// Translates an address on the current stack, which belongs to the task or to an interrupt.
    pub fn translate_stack(&mut self, (task, pid): (u64, u32), addr: u64) -> Option<u64> {
        let (page, rest) = (addr / PAGE, addr % PAGE);
        let slot = (page ^ page >> 7) as usize % STACK_PAGES;
        let known = self.stack_pages[slot];
        if (known.task, known.pid, known.page) == (task, pid, page) && task != 0 {
            return Some(known.physical + rest);
        }
        let physical = self.translate(page * PAGE)?;
        self.stack_pages[slot] = StackPage { task, pid, page, physical };
        Some(physical + rest)
    }
}

impl Deref for Vcpu {
    type Target = Cpu;
    fn deref(&self) -> &Cpu {
        &self.cpu
    }
}

impl DerefMut for Vcpu {
    fn deref_mut(&mut self) -> &mut Cpu {
        &mut self.cpu
    }
}
