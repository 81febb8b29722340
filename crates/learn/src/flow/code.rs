//! A function's instructions and blocks.

use crate::unit::{MAX_BYTES, Target, Unit};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};
use rustc_hash::{FxHashMap, FxHashSet};

/// Where a branch leads that leaves the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// A function of the same unit, by its number.
    Local(usize),
    /// A function of another unit.
    Extern(String),
    /// What a register or memory holds.
    Indirect,
    /// Nothing that could be a function.
    Nowhere,
}

/// A row of instructions that is entered at its start only.
#[derive(Clone, Debug)]
pub struct Block {
    /// The first of its instructions, and the one behind the last.
    pub range: (usize, usize),
    /// The blocks that may follow. The first is the one to which the last instruction jumps.
    pub next: Vec<usize>,
    /// Whether the next block in memory is among `next`, as the last of them.
    pub falls: bool,
}

/// A function's instructions and blocks.
#[derive(Debug)]
pub struct Body {
    /// All instructions, in the order of addresses in each part.
    pub code: Vec<Instruction>,
    /// The first is the entry.
    pub blocks: Vec<Block>,
    /// Whether some bytes are no code.
    pub odd: bool,
}

/// A callee of a call, or of a jump that leaves the function; `None` where the instruction is neither.
pub fn callee(unit: &Unit, insn: &Instruction) -> Option<Callee> {
    match insn.flow_control() {
        FlowControl::IndirectBranch | FlowControl::IndirectCall => return Some(Callee::Indirect),
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {}
        _ => return None,
    }
    // The four bytes of a direct branch's target are its last.
    let place = insn.next_ip().wrapping_sub(4);
    let target = match unit.relocation(place).filter(|_| insn.len() >= 5) {
        Some(Target::Extern(name, _)) => return Some(named(name)),
        Some(Target::Local(address)) => *address,
        None => insn.near_branch_target(),
    };
    Some(match unit.function_at(target) {
        Some(function) if unit.functions()[function].start == target => {
            let names = &unit.functions()[function].names;
            let indirect = names.iter().any(|name| is_indirect(name));
            if indirect { Callee::Indirect } else { Callee::Local(function) }
        }
        _ => Callee::Nowhere,
    })
}

fn named(name: &str) -> Callee {
    if is_indirect(name) { Callee::Indirect } else { Callee::Extern(name.to_owned()) }
}

/// Whether a function calls what a register holds.
pub fn is_indirect(name: &str) -> bool {
    name.starts_with("__x86_indirect_")
}

/// The register of a call through a thunk, or of an indirect call.
pub fn indirect_register(unit: &Unit, insn: &Instruction) -> Option<Register> {
    if insn.op_count() > 0 && insn.op0_kind() == iced_x86::OpKind::Register {
        return Some(insn.op0_register());
    }
    let place = insn.next_ip().wrapping_sub(4);
    let thunk = match unit.relocation(place) {
        Some(Target::Extern(name, _)) => name.as_str(),
        Some(Target::Local(_)) => return None,
        None => {
            let function = unit.function_at(insn.near_branch_target())?;
            unit.functions()[function].names.iter().find(|name| is_indirect(name))?
        }
    };
    const NAMES: [(&str, Register); 15] = [
        ("rax", Register::RAX),
        ("rcx", Register::RCX),
        ("rdx", Register::RDX),
        ("rbx", Register::RBX),
        ("rbp", Register::RBP),
        ("rsi", Register::RSI),
        ("rdi", Register::RDI),
        ("r8", Register::R8),
        ("r9", Register::R9),
        ("r10", Register::R10),
        ("r11", Register::R11),
        ("r12", Register::R12),
        ("r13", Register::R13),
        ("r14", Register::R14),
        ("r15", Register::R15),
    ];
    let name = thunk.rsplit('_').next()?;
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, register)| *register)
}

/// The local address to which a branch leads.
fn branch_target(unit: &Unit, insn: &Instruction) -> Option<u64> {
    if !matches!(insn.flow_control(), FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch) {
        return None;
    }
    match unit.relocation(insn.next_ip().wrapping_sub(4)).filter(|_| insn.len() >= 5) {
        Some(Target::Local(address)) => Some(*address),
        Some(Target::Extern(..)) => None,
        None => Some(insn.near_branch_target()),
    }
}

/// Decodes all parts of a function, and calls `visit` for each instruction.
fn decode(unit: &Unit, function: usize, mut visit: impl FnMut(Instruction)) -> Option<bool> {
    let mut parts = vec![function];
    let (mut at, mut bytes, mut odd) = (0, 0, false);
    while let Some(&part) = parts.get(at) {
        at += 1;
        let function = &unit.functions()[part];
        bytes += function.end - function.start;
        if bytes > MAX_BYTES {
            return None;
        }
        let all = unit.bytes(function.start).unwrap_or_default();
        let code = &all[..all.len().min((function.end - function.start) as usize)];
        let mut decoder = Decoder::with_ip(64, code, function.start, DecoderOptions::NONE);
        while decoder.can_decode() {
            let insn = decoder.decode();
            if insn.is_invalid() {
                odd = true;
                continue;
            }
            let targets =
                branch_target(unit, &insn).into_iter().chain(unit.hidden(insn.ip()).iter().copied());
            for target in targets {
                let other = unit.function_at(target).filter(|other| unit.functions()[*other].is_part());
                if let Some(other) = other.filter(|other| !parts.contains(other)) {
                    parts.push(other);
                }
            }
            visit(insn);
        }
    }
    Some(odd)
}

/// The functions that a function calls or jumps to; also code that it leads to by hidden jumps.
pub fn callees(unit: &Unit, function: usize) -> Vec<Callee> {
    let mut found = Vec::new();
    let own = unit.functions()[function].start;
    let decoded = decode(unit, function, |insn| {
        if insn.flow_control() != FlowControl::Next
            && let Some(callee) = callee(unit, &insn)
            && !found.contains(&callee)
            && callee != Callee::Indirect
        {
            found.push(callee);
        }
    });
    let outside = |callee: &Callee| match callee {
        Callee::Local(other) => {
            let other = &unit.functions()[*other];
            !other.is_part() || other.start == own
        }
        Callee::Extern(_) => true,
        _ => false,
    };
    found.retain(outside);
    if decoded.is_some() { found } else { Vec::new() }
}

/// Reads a function's code; `None` where it is too large.
pub fn body(unit: &Unit, function: usize) -> Option<Body> {
    let mut code: Vec<Instruction> = Vec::new();
    let odd = decode(unit, function, |insn| code.push(insn))?;
    let index: FxHashMap<u64, usize> = code.iter().enumerate().map(|(at, insn)| (insn.ip(), at)).collect();
    let mut leaders: FxHashSet<usize> = FxHashSet::default();
    leaders.insert(0);
    for (at, insn) in code.iter().enumerate() {
        let branch = branch_target(unit, insn);
        let hidden = unit.hidden(insn.ip());
        leaders.extend(branch.iter().chain(hidden).filter_map(|target| index.get(target)));
        let ends =
            !matches!(insn.flow_control(), FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall);
        let gap = code.get(at + 1).is_some_and(|next| next.ip() != insn.next_ip());
        if (ends && insn.mnemonic() != Mnemonic::Ud2) || !hidden.is_empty() || gap {
            leaders.insert(at + 1);
        }
    }
    let mut starts: Vec<usize> = leaders.into_iter().filter(|at| *at < code.len()).collect();
    starts.sort_unstable();
    let number: FxHashMap<usize, usize> = starts.iter().enumerate().map(|(block, at)| (*at, block)).collect();
    let mut blocks = Vec::with_capacity(starts.len());
    for (block, &start) in starts.iter().enumerate() {
        let end = starts.get(block + 1).copied().unwrap_or(code.len());
        let last = &code[end - 1];
        let target = |address: &u64| index.get(address).and_then(|at| number.get(at)).copied();
        let mut next: Vec<usize> = branch_target(unit, last).iter().filter_map(target).collect();
        next.extend(unit.hidden(last.ip()).iter().filter_map(target));
        let stops = matches!(
            last.flow_control(),
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
        ) || matches!(last.code(), Code::Int3 | Code::Iretq);
        let falls = !stops && code.get(end).is_some_and(|behind| behind.ip() == last.next_ip());
        if falls {
            next.push(block + 1);
        }
        blocks.push(Block { range: (start, end), next, falls });
    }
    Some(Body { code, blocks, odd })
}
