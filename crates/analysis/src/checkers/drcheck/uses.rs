//! What driver code does with a value that it loads from memory, as far as the code has run.
//!
//! The value is followed through registers, the function's own stack, branches, and calls of the driver's own
//! functions. Code that has not run yet is not known, so an absent use proves nothing.

use super::triage::{Form, form_in};
use crate::machine::{BlockInfo, State, find};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use std::collections::{BTreeMap, BTreeSet};

/// Most blocks that the value is followed through.
const MAX_BLOCKS: usize = 256;
/// Most loads of a function that are followed.
const MAX_LOADS: usize = 16;
/// Displacements from here on are taken for those of one structure.
const FAR: u64 = 0x80;
/// Most slots of the stack that hold the value at a time.
const MAX_SLOTS: usize = 8;
/// Register numbers of the arguments of a call: rdi, rsi, rdx, rcx, r8, r9.
const ARGUMENTS: u16 = 1 << 7 | 1 << 6 | 1 << 2 | 1 << 1 | 1 << 8 | 1 << 9;
/// Register numbers that a call changes: the arguments, rax, r10, r11.
const CLOBBERED: u16 = ARGUMENTS | 1 | 1 << 10 | 1 << 11;
/// The beginning of the names of the kernel's functions that jump to the address in a register.
const THUNK: &str = "__x86_indirect_thunk_";

/// What is done with a value: a set of the constants below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Uses(u8);

impl Uses {
    /// It is an address that is accessed, or given to the kernel, without a look at whether it is NULL.
    pub const FOLLOWED: Uses = Uses(1);
    /// It is an address that is accessed, or given to the kernel, after such a look.
    pub const LOOKED: Uses = Uses(2);
    /// It chooses what is accessed: an index, or the length of a string instruction.
    pub const INDEX: Uses = Uses(4);
    /// It is called.
    pub const CALLED: Uses = Uses(8);
    /// A branch depends on it.
    pub const DECIDES: Uses = Uses(16);
    /// It bounds a loop over an array.
    pub const BOUND: Uses = Uses(32);

    pub fn has(self, other: Uses) -> bool {
        self.0 & other.0 != 0
    }

    fn add(&mut self, other: Uses) {
        self.0 |= other.0;
    }

    /// Whether the value leads to memory.
    pub fn leads(self) -> bool {
        self.has(Uses(Uses::FOLLOWED.0 | Uses::LOOKED.0 | Uses::INDEX.0))
    }
}

/// Where the value is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Held {
    /// Registers that hold it, or a value made of it.
    registers: u16,
    /// Those of them that no longer hold a pointer.
    derived: u16,
    /// Displacements of slots of the stack that hold it, and whether they hold a pointer.
    slots: Vec<(u64, bool)>,
    /// The code has looked whether it is zero.
    looked: bool,
}

/// A place to go on from.
struct Point {
    at: u64,
    held: Held,
    depth: u8,
}

struct Follow<'a> {
    state: &'a State,
    info: InstructionInfoFactory,
    uses: Uses,
    /// The value has 8 bytes and may be a pointer.
    wide: bool,
    todo: Vec<Point>,
    seen: Vec<(u64, Held)>,
    /// The blocks of the functions that were met, by address, and where these functions end.
    blocks: BTreeMap<u64, &'a BlockInfo>,
    known: BTreeMap<u64, u64>,
}

/// Finds what is done with the value that the instruction at `pc` loads.
pub(super) fn uses(state: &State, pc: u64) -> Uses {
    let Some((block, insns)) = block(state, pc) else { return Uses::default() };
    let Some(at) = insns.iter().position(|insn| insn.ip() == pc) else { return Uses::default() };
    let load = &insns[at];
    let mut follow = Follow {
        state,
        info: InstructionInfoFactory::new(),
        uses: Uses::default(),
        wide: load.memory_size().size() == 8,
        todo: Vec::new(),
        seen: Vec::new(),
        blocks: BTreeMap::new(),
        known: BTreeMap::new(),
    };
    match load.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt => follow.uses.add(Uses::DECIDES),
        Mnemonic::Call | Mnemonic::Jmp => follow.uses.add(Uses::CALLED),
        mnemonic if load.op0_kind() == OpKind::Register => {
            let mut held = Held::default();
            if let Some(register) = number(load.op0_register()) {
                held.registers = 1 << register;
                let moved = matches!(mnemonic, Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub);
                held.derived = if moved { 0 } else { 1 << register };
                follow.through(block, &insns[at + 1..], held, 0);
                follow.run();
            }
        }
        _ => {}
    }
    follow.uses
}

/// What the function that holds an instruction does with the memory that the instruction accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handling {
    /// What it does with the values that it loads from there.
    pub uses: Uses,
    /// It stores there.
    pub stores: bool,
    /// It stores there something else than 0.
    pub fills: bool,
}

/// Finds what the function that holds `pc` does with the memory that the instruction at `pc` accesses.
pub(super) fn handling(state: &State, pc: u64) -> Handling {
    let mut found = Handling::default();
    let module = state.modules.at(pc).map(|(_, module)| module);
    let function = module.and_then(|module| find(&module.map.functions, pc));
    let (Some(function), Some((_, insns))) = (function, block(state, pc)) else { return found };
    let Some(this) = insns.iter().find(|insn| insn.ip() == pc) else { return found };
    let mut loads = BTreeSet::new();
    for block in state.blocks.within(function.start..function.end) {
        let insns = Decoder::with_ip(64, &block.bytes, block.code.addr, DecoderOptions::NONE);
        for insn in insns.into_iter().filter(|insn| is_of_the_same(insn, this)) {
            if bounds_loop(state, block, &insn) {
                found.uses.add(Uses::BOUND);
            }
            if insn.op0_kind() == OpKind::Register {
                loads.insert(insn.ip());
            } else if !matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt) {
                found.stores = true;
                let form = form_in(&block.bytes, block.code.addr, insn.ip());
                found.fills |= form != Form::Store(Some(0));
            }
        }
    }
    for load in loads.into_iter().take(MAX_LOADS) {
        found.uses.add(uses(state, load));
    }
    found
}

/// Whether an instruction compares memory with the index of an array, and a jump back to where the index is used
/// depends on it.
fn bounds_loop(state: &State, block: &BlockInfo, compare: &Instruction) -> bool {
    use iced_x86::ConditionCode::{a, ae, b, be, g, ge, l, le};
    let register = match (compare.mnemonic(), compare.op0_kind(), compare.op1_kind()) {
        (Mnemonic::Cmp, OpKind::Memory, OpKind::Register) => compare.op1_register(),
        (Mnemonic::Cmp, OpKind::Register, OpKind::Memory) => compare.op0_register(),
        _ => return false,
    };
    let insns = decoded(block);
    let jump = insns.iter().find(|insn| insn.ip() == compare.next_ip());
    let orders = |insn: &&Instruction| matches!(insn.condition_code(), a | ae | b | be | g | ge | l | le);
    let Some(jump) = jump.filter(orders) else { return false };
    let (body, counter) = (jump.near_branch_target()..compare.ip(), register.full_register());
    if body.is_empty() {
        return false;
    }
    let blocks = state.blocks.within(body.clone());
    let walked: Vec<Instruction> = blocks
        .flat_map(decoded)
        .filter(|insn| body.contains(&insn.ip()) && insn.mnemonic() != Mnemonic::Lea)
        .collect();
    let copies = walked.iter().filter(|insn| {
        insn.mnemonic() == Mnemonic::Movsxd
            && insn.op1_kind() == OpKind::Register
            && insn.op1_register() == register
    });
    let indexes: Vec<Register> =
        copies.map(Instruction::op0_register).chain([counter]).map(Register::full_register).collect();
    walked
        .iter()
        .any(|insn| insn.memory_index_scale() > 1 && indexes.contains(&insn.memory_index().full_register()))
}

/// Whether two instructions access the same memory, by their operands.
fn is_of_the_same(insn: &Instruction, of: &Instruction) -> bool {
    let far = insn.memory_displacement64() >= FAR;
    is_memory(insn)
        && is_memory(of)
        && !matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        && insn.memory_displacement64() == of.memory_displacement64()
        && (far || insn.memory_base() == of.memory_base())
        && insn.memory_index() == of.memory_index()
        && insn.memory_base() != Register::RSP
}

fn block(state: &State, addr: u64) -> Option<(&BlockInfo, Vec<Instruction>)> {
    state.blocks.holding(addr).map(|block| (block, decoded(block)))
}

fn decoded(block: &BlockInfo) -> Vec<Instruction> {
    Decoder::with_ip(64, &block.bytes, block.code.addr, DecoderOptions::NONE).into_iter().collect()
}

/// The number of a general-purpose register; rax is 0, r15 is 15.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as u8)
}

fn bit(register: Register) -> u16 {
    number(register).map_or(0, |number| 1 << number)
}

/// Displacement of an operand in the function's own frame.
fn slot(insn: &Instruction) -> Option<u64> {
    let own = matches!(insn.memory_base(), Register::RSP | Register::RBP);
    (own && insn.memory_index() == Register::None).then(|| insn.memory_displacement64())
}

fn is_memory(insn: &Instruction) -> bool {
    (0..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory)
}

impl Follow<'_> {
    /// Learns the blocks of the function that holds an address. Each block begins where a branch leads, or
    /// behind a call.
    fn learn(&mut self, addr: u64) {
        if self.known.range(..=addr).next_back().is_some_and(|(_, end)| addr < *end) {
            return;
        }
        let module = self.state.modules.at(addr).map(|(_, module)| module);
        let Some(function) = module.and_then(|module| find(&module.map.functions, addr)) else { return };
        self.known.insert(function.start, function.end);
        for block in self.state.blocks.within(function.start..function.end) {
            let longest = self.blocks.entry(block.code.addr).or_insert(block);
            if block.code.insns.len() > longest.code.insns.len() {
                *longest = block;
            }
        }
    }

    fn run(&mut self) {
        while let Some(point) = self.todo.pop() {
            if self.seen.len() >= MAX_BLOCKS || self.seen.iter().any(|s| s.0 == point.at && s.1 == point.held)
            {
                continue;
            }
            self.seen.push((point.at, point.held.clone()));
            self.learn(point.at);
            let Some(&block) = self.blocks.get(&point.at) else { continue };
            let insns = decoded(block);
            let Some(at) = insns.iter().position(|insn| insn.ip() == point.at) else { continue };
            self.through(block, &insns[at..], point.held, point.depth);
        }
    }

    /// Follows the value to the end of a block.
    fn through(&mut self, block: &BlockInfo, insns: &[Instruction], mut held: Held, depth: u8) {
        for insn in insns {
            if held.registers == 0 && held.slots.is_empty() {
                return;
            }
            self.step(insn, &mut held, depth);
        }
        let Some(last) = insns.last() else { return };
        let behind = block.last.1;
        let (jump, falls) = match last.flow_control() {
            FlowControl::ConditionalBranch => (Some(last.near_branch_target()), true),
            FlowControl::UnconditionalBranch => (Some(last.near_branch_target()), false),
            FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception => (None, false),
            _ => (None, true),
        };
        let next = jump.into_iter().chain(falls.then_some(behind));
        self.todo.extend(next.map(|at| Point { at, held: held.clone(), depth }));
    }

    /// Applies an instruction to where the value is.
    fn step(&mut self, insn: &Instruction, held: &mut Held, depth: u8) {
        if insn.flow_control() == FlowControl::Call || insn.flow_control() == FlowControl::IndirectCall {
            self.accesses(insn, held);
            self.calls(insn, held, depth);
            return;
        }
        if insn.flow_control() == FlowControl::IndirectBranch
            && held.registers & bit(insn.op0_register()) != 0
        {
            self.uses.add(Uses::CALLED);
        }
        self.accesses(insn, held);
        self.decides(insn, held);
        self.moves(insn, held);
    }

    /// Notes an access whose address the value is part of.
    fn accesses(&mut self, insn: &Instruction, held: &Held) {
        let names = matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop);
        if insn.has_rep_prefix() && held.registers & bit(Register::RCX) != 0 {
            self.uses.add(Uses::INDEX);
        }
        if names || !is_memory(insn) {
            return;
        }
        let (base, index) = (bit(insn.memory_base()), bit(insn.memory_index()));
        for (register, scale) in [(base, 1), (index, insn.memory_index_scale())] {
            if held.registers & register == 0 {
                continue;
            }
            let pointer = self.wide && scale == 1 && held.derived & register == 0;
            self.uses.add(match (pointer, held.looked) {
                (false, _) => Uses::INDEX,
                (true, false) => Uses::FOLLOWED,
                (true, true) => Uses::LOOKED,
            });
        }
    }

    fn decides(&mut self, insn: &Instruction, held: &mut Held) {
        if !matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt) {
            return;
        }
        let reads = |i: u32| match insn.op_kind(i) {
            OpKind::Register => held.registers & bit(insn.op_register(i)) != 0,
            OpKind::Memory => slot(insn).is_some_and(|at| held.slots.iter().any(|s| s.0 == at)),
            _ => false,
        };
        if !reads(0) && !reads(1) {
            return;
        }
        self.uses.add(Uses::DECIDES);
        let itself = insn.mnemonic() == Mnemonic::Test && insn.op0_register() == insn.op1_register();
        if itself || insn.try_immediate(1).is_ok_and(|imm| imm == 0) {
            held.looked = true;
        }
    }

    /// A call: of the driver's own functions, which are followed, or of the kernel.
    fn calls(&mut self, insn: &Instruction, held: &mut Held, depth: u8) {
        let indirect = insn.op0_kind() == OpKind::Register;
        let name = if insn.flow_control() == FlowControl::Call {
            self.state.frame(insn.near_branch_target(), false)
        } else {
            Default::default()
        };
        let passed = held.registers & ARGUMENTS;
        let through = |name: &str| {
            let ends = |r: &Register| name.ends_with(format!("{r:?}").to_lowercase().as_str());
            REGISTERS.iter().find(|r| ends(r)).map_or(0, |r| bit(*r))
        };
        let target = match name.function.strip_prefix(THUNK) {
            Some(register) => through(register),
            None if indirect => bit(insn.op0_register()),
            None => 0,
        };
        if held.registers & target != 0 {
            self.uses.add(Uses::CALLED);
        } else if passed != 0 && name.module.is_some() {
            if depth < 2 {
                let held = Held {
                    registers: passed,
                    derived: held.derived & passed,
                    slots: Vec::new(),
                    looked: held.looked,
                };
                self.todo.push(Point { at: insn.near_branch_target(), held, depth: depth + 1 });
            }
        } else if self.wide && passed & !held.derived != 0 {
            self.uses.add(if held.looked { Uses::LOOKED } else { Uses::FOLLOWED });
        }
        held.registers &= !CLOBBERED;
        held.derived &= held.registers;
    }

    /// Moves the value from place to place.
    fn moves(&mut self, insn: &Instruction, held: &mut Held) {
        let from_slot = slot(insn).and_then(|at| held.slots.iter().find(|s| s.0 == at).copied());
        let info = self.info.info(insn);
        let (mut read, mut written) = (0, 0);
        for used in info.used_registers() {
            let this = bit(used.register());
            match used.access() {
                OpAccess::Read | OpAccess::CondRead => read |= this,
                OpAccess::Write => written |= this,
                OpAccess::ReadWrite => {
                    read |= this;
                    written |= this;
                }
                // The register may keep what it held.
                _ => read |= this,
            }
        }
        let lea = insn.mnemonic() == Mnemonic::Lea;
        let address =
            if is_memory(insn) && !lea { bit(insn.memory_base()) | bit(insn.memory_index()) } else { 0 };
        let own = if insn.op_count() > 1 && insn.op1_kind() == OpKind::Register {
            bit(insn.op1_register())
        } else {
            0
        };
        // Registers of an address are read, and their values do not get into the result.
        let sources = held.registers & (read & !address | read & own);
        let clears = insn.mnemonic() == Mnemonic::Xor
            && insn.op0_kind() == OpKind::Register
            && insn.op0_register() == insn.op1_register();
        if insn.op0_kind() == OpKind::Memory && insn.op_count() > 1 {
            self.stores(insn, held, sources & own);
            return;
        }
        let loads = from_slot.filter(|_| (1..insn.op_count()).any(|i| insn.op_kind(i) == OpKind::Memory));
        let compares =
            matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Push);
        if written == 0 || compares {
            return;
        }
        if clears || sources == 0 && loads.is_none() {
            held.registers &= !written;
            held.derived &= !written;
            return;
        }
        let plain = matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub)
            || lea && insn.memory_index_scale() == 1;
        let derived = !plain || sources & held.derived != 0 || loads.is_some_and(|s| !s.1);
        held.registers |= written;
        held.derived = if derived { held.derived | written } else { held.derived & !written };
    }

    fn stores(&mut self, insn: &Instruction, held: &mut Held, source: u16) {
        let Some(at) = slot(insn) else { return };
        held.slots.retain(|s| s.0 != at);
        if source != 0 && insn.mnemonic() == Mnemonic::Mov && held.slots.len() < MAX_SLOTS {
            held.slots.push((at, held.derived & source == 0));
        }
    }
}

/// The registers that a thunk may jump through.
const REGISTERS: [Register; 15] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RBX,
    Register::RBP,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];
