//! State that all vCPUs share and rarely change: the control ring, and what it has logged.

use crate::code::{Operand, Target};
use crate::gate::sites::{self, GateSite};
use crate::holds::Roles;
use guardrail_plugin::registers::Flags;
use guardrail_trace::event::{Head, Kind};
use guardrail_trace::log::RingWriter;
use iced_x86::Instruction;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::AtomicU8;

/// The control ring's writer and the shared tables; one mutex protects them. A thread that takes the
/// mutex has no open segment of its own, because writing may wait.
pub struct Control {
    writer: RingWriter,
    /// Blocks by generation, address and bytes.
    blocks: FxHashMap<(u64, u64, Box<[u8]>), &'static Block>,
    /// Interned lists of hooks: equal lists exist once.
    hook_lists: FxHashMap<Vec<u32>, &'static Vec<u32>>,
    threads: FxHashSet<(u64, u32)>,
    /// Watched modules that are loaded now.
    pub modules: Vec<LoadedModule>,
    /// Addresses of `struct module` of the unwatched modules in the log.
    pub others: Vec<u64>,
    /// Instructions outside watched modules that the gate watches, by address and bytes of their block.
    gate_sites: FxHashMap<(u64, Box<[u8]>), &'static [GateSite]>,
    /// True once the kernel's globals are logged.
    pub globals_told: bool,
}

/// A watched module that is loaded.
pub struct LoadedModule {
    /// Guest virtual address of its `struct module`.
    pub address: u64,
    /// Generation that tags its ranges.
    pub generation: u64,
    /// Its regions (start, end), as they were at load.
    pub regions: Vec<(u64, u64)>,
}

/// A driver block as translated. It is never freed, because translated code points to it.
pub struct Block {
    /// Number of the block in the log.
    pub number: u64,
    /// Guest virtual address of its first byte.
    pub address: u64,
    /// Whether calls return to its start: see [`Resumes`].
    pub resumes: AtomicU8,
    /// How it leaves the driver. `None` where no record is needed before the last instruction.
    pub leave: Option<Leave>,
    /// Its port accesses.
    pub ports: Box<[Port]>,
    /// One row per instruction, for memory callbacks.
    pub sites: Box<[MemSite]>,
    /// Its instructions that can be held.
    pub holds: Box<[HoldSite]>,
    /// Its instructions that may access devices. Empty in runs without a gate.
    pub gated: Box<[GateSite]>,
    /// True where threads can be delayed at its start, because the kernel returns there.
    pub stalls: bool,
}

/// Whether calls return to the start of a block. Any other value means that this is not known yet.
pub struct Resumes;

impl Resumes {
    /// Calls return there.
    pub const CAN: u8 = 1;
    /// A function begins there, so no call returns there.
    pub const NEVER: u8 = 2;
}

/// An instruction that can be held.
pub struct HoldSite {
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// Index of the instruction in its block.
    pub index: u16,
    /// The decoded instruction.
    pub insn: Instruction,
    /// The memory operand that is compared with other accesses.
    pub operand: Operand,
    /// State of the arithmetic flags before it, which decides whether a vCPU can return to it.
    pub flags: Flags,
    /// Pairs that it belongs to, with the side in each.
    pub roles: Roles,
    /// True where it was picked at random.
    pub sampled: bool,
}

/// An instruction of a block, as its memory callback gets it.
pub struct MemSite {
    /// Number of its block in the log.
    pub block: u64,
    /// Guest virtual address of the instruction.
    pub address: u64,
    /// Index of the instruction in its block.
    pub index: u16,
    /// What the callback does besides logging the access: [`MemFlags`](crate::exec::MemFlags).
    pub flags: u16,
}

/// A transfer out of the driver, or through a register or memory.
pub struct Leave {
    /// True for a jump, false for a call.
    pub jump: bool,
    /// Source of the target address.
    pub target: Target,
    /// Number of registers that may hold arguments.
    pub args: u8,
    /// The decoded instruction.
    pub insn: Instruction,
    /// True where no memory access of the instruction follows. The segment is then closed before the
    /// transfer.
    pub last: bool,
}

/// A port access in a block.
pub struct Port {
    /// Index of the instruction in its block.
    pub index: u16,
    /// Bytes per access, plus 0x80 for `out`.
    pub small: u8,
    /// Number of the port; `None` where dx has it.
    pub port: Option<u8>,
}

impl Control {
    /// Wraps the control ring's writer; nothing is logged yet.
    pub fn new(writer: RingWriter) -> Control {
        Control {
            writer,
            blocks: FxHashMap::default(),
            hook_lists: FxHashMap::default(),
            threads: FxHashSet::default(),
            modules: Vec::new(),
            others: Vec::new(),
            gate_sites: FxHashMap::default(),
            globals_told: false,
        }
    }

    /// Writes a control record into a segment of its own, so readers see it at once.
    pub fn tell(&mut self, record: &[u64]) {
        self.writer.begin();
        self.writer.push_slice(record);
        self.writer.close();
    }

    /// Logs the end record and ends the control ring.
    pub fn finish(&mut self) {
        self.tell(&[Head::encode(Kind::End, 0, 0)]);
        self.writer.finish();
    }

    /// Returns the block with these bytes at this address. A new block is logged first.
    pub fn block(
        &mut self,
        generation: u64,
        address: u64,
        bytes: &[u8],
        make: impl FnOnce(u64) -> Block,
    ) -> &'static Block {
        let key = (generation, address, Box::from(bytes));
        if let Some(&block) = self.blocks.get(&key) {
            return block;
        }
        let number = self.blocks.len() as u64;
        let block: &'static Block = Box::leak(Box::new(make(number)));
        self.blocks.insert(key, block);
        let mut record = vec![Head::encode(Kind::BlockDef, 0, number), address, bytes.len() as u64];
        record.extend(bytes.chunks(8).map(crate::vcpu::word));
        self.tell(&record);
        block
    }

    /// Returns the one copy of a list of hooks, which is never freed.
    pub fn hook_list(&mut self, hooks: Vec<u32>) -> &'static Vec<u32> {
        self.hook_lists.entry(hooks).or_insert_with_key(|hooks| Box::leak(Box::new(hooks.clone())))
    }

    /// The instructions of a block outside watched modules that may access devices. Each block has one
    /// copy.
    pub fn gate_sites(&mut self, address: u64, bytes: &[u8], insns: &[Instruction]) -> &'static [GateSite] {
        self.gate_sites
            .entry((address, Box::from(bytes)))
            .or_insert_with(|| Box::leak(sites::sites(insns, false)))
    }

    /// Logs a thread, unless the log has it already.
    pub fn thread(&mut self, task: u64, pid: u32, flags: u8, comm: [u64; 2]) {
        if self.threads.insert((task, pid)) {
            self.tell(&[Head::encode(Kind::Thread, flags, u64::from(pid)), task, comm[0], comm[1]]);
        }
    }
}
