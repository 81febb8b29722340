//! State that all vCPUs share and rarely change: the control ring, and what it has logged.

use super::block::Block;
use crate::code::gate_sites::{self, GateSite};
use guardrail_plugin::registers::word;
use guardrail_trace::event::{Head, Kind};
use guardrail_trace::log::RingWriter;
use iced_x86::Instruction;
use rustc_hash::{FxHashMap, FxHashSet};

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
    pub globals_logged: bool,
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
            globals_logged: false,
        }
    }

    /// Writes a control record into a segment of its own, so readers see it at once.
    pub fn log(&mut self, record: &[u64]) {
        self.writer.begin();
        self.writer.push_slice(record);
        self.writer.close();
    }

    /// Logs the end record and ends the control ring.
    pub fn finish(&mut self) {
        self.log(&[Head::encode(Kind::End, 0, 0)]);
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
        record.extend(bytes.chunks(8).map(word));
        self.log(&record);
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
            .or_insert_with(|| Box::leak(gate_sites::sites(insns, false)))
    }

    /// Logs a thread, unless the log has it already.
    pub fn thread(&mut self, task: u64, pid: u32, flags: u8, comm: [u64; 2]) {
        if self.threads.insert((task, pid)) {
            self.log(&[Head::encode(Kind::Thread, flags, u64::from(pid)), task, comm[0], comm[1]]);
        }
    }
}
