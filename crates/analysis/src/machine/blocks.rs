//! Blocks of driver code, decoded once.

use crate::value_flow::Block;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::Cell;
use std::rc::Rc;

/// Most blocks that are known at a time, and most instructions in them.
const MAX_BLOCKS: usize = 1 << 20;
const MAX_INSNS: usize = 8 << 20;

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It continues in the same function, or with an indirect jump.
    Plain,
    /// A call, with the address behind it.
    Call(u64),
    /// A return to the caller.
    Ret,
    /// A direct jump, with its target.
    Jump(u64),
}

/// A decoded block.
#[derive(Debug)]
pub struct BlockInfo {
    /// The decoded instructions.
    pub code: Block,
    /// How the block ends.
    pub end: End,
    /// Address of the last instruction, and the address behind it.
    pub last: (u64, u64),
    /// The code that the instructions were decoded from.
    pub bytes: Box<[u8]>,
    /// Indices of instructions that compare a 64-bit value with all ones, or may do so.
    pub ones: Box<[u16]>,
    /// True once it has run.
    pub ran: Cell<bool>,
}

/// All blocks, by number.
#[derive(Debug, Default)]
pub struct Blocks {
    table: FxHashMap<u64, Rc<BlockInfo>>,
    insns: usize,
    /// Numbers of blocks in unloaded modules.
    retired: FxHashSet<u64>,
}

impl Blocks {
    /// Adds the block `number` from the words of its bytes. `makes_room` says of an address whether a push there
    /// only makes room.
    pub fn define(
        &mut self,
        number: u64,
        address: u64,
        len: usize,
        words: &[u64],
        makes_room: impl Fn(u64) -> bool,
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take(len).collect();
        let mut code = Block::decode(address, &bytes);
        code.make_room(makes_room);
        if self.table.len() >= MAX_BLOCKS || self.insns + code.insns.len() > MAX_INSNS {
            self.table.clear();
            self.retired.clear();
            self.insns = 0;
        }
        self.retired.remove(&number);
        self.insns += code.insns.len();
        let last =
            code.insns.last().map_or((address, address), |i| (i.addr, i.addr.wrapping_add(u64::from(i.len))));
        let end = end(&bytes, address, last);
        self.table.insert(
            number,
            Rc::new(BlockInfo {
                code,
                end,
                last,
                ones: ones(&bytes, address),
                bytes: bytes.into(),
                ran: Cell::new(false),
            }),
        );
    }

    /// The block `number`; `None` where it is not known.
    #[inline]
    pub fn get(&self, number: u64) -> Option<&Rc<BlockInfo>> {
        self.table.get(&number)
    }

    /// The longest block that holds the instruction at `addr`. Blocks of loaded modules come before those of
    /// unloaded ones. Searches all blocks.
    pub fn holding(&self, addr: u64) -> Option<&BlockInfo> {
        let blocks = self.table.iter().filter(|(_, block)| block.code.index_of(addr).is_some());
        // The address decides between blocks of equal length, so that the result is certain.
        let best = blocks.max_by_key(|(number, block)| {
            (!self.retired.contains(number), block.code.insns.len(), block.code.addr)
        });
        best.map(|(_, block)| &**block)
    }

    /// The blocks that begin in a range, of loaded modules.
    pub fn within(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = &BlockInfo> {
        let inside = move |(number, block): &(&u64, &Rc<BlockInfo>)| {
            range.contains(&block.code.addr) && !self.retired.contains(number)
        };
        self.table.iter().filter(inside).map(|(_, block)| &**block)
    }

    /// The code in a range was unloaded; other code may be loaded there.
    pub fn retire(&mut self, from: u64, to: u64) {
        let gone = self.table.iter().filter(|(_, block)| (from..to).contains(&block.code.addr));
        let gone: Vec<u64> = gone.map(|(number, _)| *number).collect();
        self.retired.extend(gone);
    }
}

/// The indices of instructions that may compare with `DMA_MAPPING_ERROR`. They compare with -1 itself, add 1
/// and test for zero, or compare with a register that may hold -1.
fn ones(bytes: &[u8], address: u64) -> Box<[u16]> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut found = Vec::new();
    for (index, insn) in decoder.iter().take(512).enumerate() {
        let wide = insn.op0_register().size() == 8
            || insn.op0_kind() == OpKind::Memory && insn.memory_size().size() == 8;
        let by = insn.try_immediate(1).ok();
        let is = match insn.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Xor => by.is_none_or(|value| value == u64::MAX),
            Mnemonic::Sub => by == Some(u64::MAX),
            Mnemonic::Add => by == Some(1),
            Mnemonic::Inc | Mnemonic::Not => true,
            _ => false,
        };
        if is && wide {
            found.push(index as u16);
        }
    }
    found.into()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_a_module_that_has_gone_does_not_stand_for_new_code() {
        let mut blocks = Blocks::default();
        // nop; nop; inc dword [rdi], and later at its place: mov [rdi],eax
        blocks.define(1, 0x1000, 4, &[0x07ff_9090], |_| false);
        blocks.retire(0x1000, 0x2000);
        assert_eq!(blocks.holding(0x1002).map(|b| b.code.addr), Some(0x1000));
        blocks.define(2, 0x1002, 2, &[0x0789], |_| false);
        assert_eq!(blocks.holding(0x1002).map(|b| b.code.addr), Some(0x1002));
    }
}
