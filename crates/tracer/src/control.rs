//! What all vCPUs share and change seldom: the control ring and what has been told through it.

use crate::code::{Operand, Target};
use crate::gate::sites::{self, GateSite};
use crate::holds::Roles;
use guardrail_plugin::registers::Flags;
use guardrail_trace::event::{Head, Kind};
use guardrail_trace::log::RingWriter;
use iced_x86::Instruction;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::atomic::AtomicU8;

/// Under one mutex. Whoever locks it has no segment of its own open, because writing may wait.
pub struct Control {
    writer: RingWriter,
    /// Blocks by generation, address and bytes.
    blocks: FxHashMap<(u64, u64, Box<[u8]>), &'static Block>,
    /// Lists of hooks, so that equal ones are kept once.
    hook_lists: FxHashMap<Vec<u32>, &'static Vec<u32>>,
    threads: FxHashSet<(u64, u32)>,
    /// Watched modules that are loaded.
    pub modules: Vec<LoadedModule>,
    /// Addresses of the `struct module` of the others that were told.
    pub others: Vec<u64>,
    /// Instructions at the gate outside watched modules, by address and bytes of their block.
    gate_sites: FxHashMap<(u64, Box<[u8]>), &'static [GateSite]>,
    /// The globals have been told.
    pub globals_told: bool,
}

/// A watched module.
pub struct LoadedModule {
    /// Address of its `struct module`.
    pub address: u64,
    /// The tag of its ranges.
    pub generation: u64,
    /// Its regions, as they were at load.
    pub regions: Vec<(u64, u64)>,
}

/// A driver block as translated. Never freed: translated code points to it.
pub struct Block {
    /// Its number in the log.
    pub number: u64,
    /// Where it begins.
    pub address: u64,
    /// What is known of its start: see [`Resumes`].
    pub resumes: AtomicU8,
    /// How it leaves the driver, where that is told before the last instruction.
    pub leave: Option<Leave>,
    /// Port accesses.
    pub ports: Box<[Port]>,
    /// Its instructions.
    pub sites: Box<[MemSite]>,
    /// Those that can be held.
    pub holds: Box<[HoldSite]>,
    /// Those that may access devices, where accesses to devices are held.
    pub gated: Box<[GateSite]>,
    /// Threads can be slowed down at its start, where the kernel returns to.
    pub stalls: bool,
}

/// Whether calls return to the start of a block; anything else is not known yet.
pub struct Resumes;

impl Resumes {
    /// They do.
    pub const CAN: u8 = 1;
    /// A function begins there.
    pub const NEVER: u8 = 2;
}

/// An instruction that can be held.
pub struct HoldSite {
    /// Where it is.
    pub address: u64,
    /// Its index in the block.
    pub index: u16,
    /// The instruction.
    pub insn: Instruction,
    /// The memory that it names.
    pub operand: Operand,
    /// What the arithmetic flags are before it: whether a vCPU can be sent back to it.
    pub flags: Flags,
    /// Pairs and sides.
    pub roles: Roles,
    /// It was picked by chance.
    pub sampled: bool,
}

/// An instruction of a block, as its memory callback gets to know it.
pub struct MemSite {
    /// The number of the block.
    pub block: u64,
    /// Where the instruction is.
    pub address: u64,
    /// Its index in the block.
    pub index: u16,
    /// What else to do after an access: [`MemFlags`](crate::exec::MemFlags).
    pub flags: u16,
}

/// A transfer out of the driver or through a register or memory.
pub struct Leave {
    /// A jump, not a call.
    pub jump: bool,
    /// Where to.
    pub target: Target,
    /// How many registers may hold arguments.
    pub args: u8,
    /// The instruction.
    pub insn: Instruction,
    /// No memory access of the instruction follows, after which the segment could be closed.
    pub last: bool,
}

/// A port access in a block.
pub struct Port {
    /// The index of the instruction.
    pub index: u16,
    /// Bytes, and 0x80 for `out`.
    pub small: u8,
    /// The port, unless it is in dx.
    pub port: Option<u8>,
}

impl Control {
    /// Nothing told yet.
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

    /// Writes a control record, visible at once.
    pub fn tell(&mut self, record: &[u64]) {
        self.writer.begin();
        self.writer.push_slice(record);
        self.writer.close();
    }

    /// Ends the ring.
    pub fn finish(&mut self) {
        self.tell(&[Head::encode(Kind::End, 0, 0)]);
        self.writer.finish();
    }

    /// The block with these bytes at this address; tells of it if it is new.
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

    /// The one copy of a list of hooks.
    pub fn hook_list(&mut self, hooks: Vec<u32>) -> &'static Vec<u32> {
        self.hook_lists.entry(hooks).or_insert_with_key(|hooks| Box::leak(Box::new(hooks.clone())))
    }

    /// The instructions of a block outside watched modules that may access devices. Kept once for each block.
    pub fn gate_sites(&mut self, address: u64, bytes: &[u8], insns: &[Instruction]) -> &'static [GateSite] {
        self.gate_sites
            .entry((address, Box::from(bytes)))
            .or_insert_with(|| Box::leak(sites::sites(insns, false)))
    }

    /// Tells of a thread unless that was done.
    pub fn thread(&mut self, task: u64, pid: u32, flags: u8, comm: [u64; 2]) {
        if self.threads.insert((task, pid)) {
            self.tell(&[Head::encode(Kind::Thread, flags, u64::from(pid)), task, comm[0], comm[1]]);
        }
    }
}
