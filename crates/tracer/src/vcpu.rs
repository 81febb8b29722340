//! One vCPU: its ring, its registers, and reading the guest from its thread.

use crate::control::Block;
use crate::gate::{Gate, Pages};
use crate::holds::run::Awaiting;
use crate::lists::GuestMemory;
use guardrail_plugin::cpu::Cpu;
use guardrail_plugin::ffi;
use guardrail_trace::log::RingWriter;
use rustc_hash::FxHashMap;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

pub use guardrail_plugin::cpu::{ARGS, word};
pub use guardrail_plugin::registers::{CR2, GS_BASE, INTERRUPT_FLAG, RAX, RCX, RDI, RDX, RFLAGS, RSI, RSP};

/// What belongs to one vCPU.
pub struct Vcpu {
    /// Its ring.
    pub writer: RingWriter,
    /// The driver block that began last.
    pub block: Option<&'static Block>,
    /// That block has been cut after this instruction.
    pub cut: Option<u16>,
    /// Other code than the driver's may have run since the last driver block.
    pub left: bool,
    /// The driver was interrupted on this vCPU since it last ran.
    pub interrupted: bool,
    /// The driver's instruction that raised an exception whose handler is about to run.
    pub raised: Option<u64>,
    /// Per-CPU variables, found since the last load of a watched module (the GS base of a CPU in the kernel
    /// changes only at a reset).
    pub per_cpu: Option<(u64, PerCpuPlaces)>,
    /// The log has this vCPU's GS base.
    pub gs_told: bool,
    /// The instruction at hand was held, or met one that was: as whom it tells when it has run.
    pub awaiting: Awaiting,
    /// Tasks that have their thread record, with their pids.
    pub tasks: FxHashMap<u64, u32>,
    /// Where stacks of tasks are.
    stack_pages: Box<[StackPage; STACK_PAGES]>,
    /// The device access of this instruction of the block was told before it happens.
    pub told: Option<u16>,
    /// This instruction of the block was held and may access a device.
    pub passed: Option<u16>,
    /// The instruction that is held, and since when.
    pub held_since: Option<(u64, Instant)>,
    /// Where pages of devices are.
    pages: Pages,
    /// Its registers, and the guest's memory as it sees it.
    cpu: Cpu,
}

/// Pages of stacks that a vCPU remembers; a power of two.
const STACK_PAGES: usize = 128;
const PAGE: u64 = 4096;

/// A page of a stack, as a task sees it. A task keeps its stack as long as it lives, and pids tell tasks apart that
/// follow one another in the same place; stacks of interrupts stay where they are.
#[derive(Clone, Copy, Debug, Default)]
struct StackPage {
    task: u64,
    pid: u32,
    page: u64,
    physical: u64,
}

/// Physical addresses of a vCPU's per-CPU variables.
#[derive(Clone, Copy)]
pub struct PerCpuPlaces {
    pub current: u64,
    pub preempt_count: u64,
}

impl Vcpu {
    /// A vCPU whose registers are not known yet.
    pub fn new(writer: RingWriter) -> Vcpu {
        Vcpu {
            writer,
            block: None,
            cut: None,
            left: true,
            interrupted: false,
            raised: None,
            per_cpu: None,
            gs_told: false,
            awaiting: None,
            told: None,
            passed: None,
            held_since: None,
            pages: Pages::new(),
            tasks: FxHashMap::default(),
            stack_pages: Box::new([StackPage::default(); STACK_PAGES]),
            cpu: Cpu::new(),
        }
    }

    /// The physical address behind one that may be a device's.
    pub fn physical(&mut self, gate: &Gate, addr: u64) -> Option<u64> {
        let walk = |page| {
            let mut physical = 0;
            // SAFETY: called on the vCPU's own thread; QEMU fills in the result.
            unsafe { ffi::qemu_plugin_translate_vaddr(page, &mut physical) }.then_some(physical)
        };
        self.pages.physical(gate, addr, walk)
    }

    /// The physical address behind an address on the stack in use, which is the task's or an interrupt's.
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

impl GuestMemory for Vcpu {
    fn load(&mut self, addr: u64, len: usize) -> Option<&[u8]> {
        self.read(addr, len)
    }
}

/// A vCPU alone on its cache lines, entered through callbacks of its own thread only.
#[repr(align(128))]
pub struct VcpuCell(UnsafeCell<Vcpu>);

// SAFETY: `get` is called only where the vCPU's thread, or nobody, runs; see there.
unsafe impl Sync for VcpuCell {}
// SAFETY: the raw pointers inside (register handles, a byte array) are not tied to a thread.
unsafe impl Send for VcpuCell {}

impl VcpuCell {
    pub fn new(vcpu: Vcpu) -> VcpuCell {
        VcpuCell(UnsafeCell::new(vcpu))
    }

    /// The vCPU's state.
    ///
    /// # Safety
    /// Only in a callback for this vCPU (QEMU runs those on the thread that executes the vCPU, never one
    /// inside another), on that thread where several vCPUs share it, or when all vCPUs have stopped; and
    /// the result must not be kept beyond the callback.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn get(&self) -> &mut Vcpu {
        // SAFETY: by the contract above nobody else holds a reference.
        unsafe { &mut *self.0.get() }
    }
}
