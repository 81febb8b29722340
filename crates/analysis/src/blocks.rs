//! Blocks of driver code, decoded once.

use crate::flow::Block;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use rustc_hash::FxHashMap;
use std::rc::Rc;

/// Blocks that are known at a time, and instructions in them.
const MAX_BLOCKS: usize = 1 << 20;
const MAX_INSNS: usize = 8 << 20;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on somewhere in the same function, or by a jump.
    Plain,
    /// A call; the address behind it.
    Call(u64),
    /// A return.
    Ret,
    /// A direct jump.
    Jump(u64),
}

/// A decoded block.
#[derive(Debug)]
pub struct BlockInfo {
    /// Its instructions.
    pub code: Block,
    /// How it ends.
    pub end: End,
    /// Address of its last instruction, and the address behind it.
    pub last: (u64, u64),
}

/// All blocks, by number.
#[derive(Debug, Default)]
pub struct Blocks {
    table: FxHashMap<u64, Rc<BlockInfo>>,
    insns: usize,
}

impl Blocks {
    /// Adds the block `number` from the words of its bytes.
    pub fn define(&mut self, number: u64, address: u64, len: usize, words: &[u64]) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take(len).collect();
        let code = Block::decode(address, &bytes);
        if self.table.len() >= MAX_BLOCKS || self.insns + code.insns.len() > MAX_INSNS {
            self.table.clear();
            self.insns = 0;
        }
        self.insns += code.insns.len();
        let last =
            code.insns.last().map_or((address, address), |i| (i.addr, i.addr.wrapping_add(u64::from(i.len))));
        let end = end(&bytes, address, last);
        self.table.insert(number, Rc::new(BlockInfo { code, end, last }));
    }

    /// The block `number`.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Rc<BlockInfo>> {
        self.table.get(&number)
    }
}

fn end(bytes: &[u8], address: u64, (last, after): (u64, u64)) -> End {
    let Some(tail) = bytes.get(last.wrapping_sub(address) as usize..) else { return End::Plain };
    let mut decoder = Decoder::with_ip(64, tail, last, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return End::Plain;
    }
    let insn = decoder.decode();
    match insn.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => End::Call(after),
        FlowControl::Return => End::Ret,
        FlowControl::UnconditionalBranch => End::Jump(insn.near_branch_target()),
        _ => End::Plain,
    }
}
