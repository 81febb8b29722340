//! Finds which words of a function's frame hold registers of its caller, at each instruction.
//!
//! A function pushes a register that it must keep before it changes it, and pops it before it returns. Between, the
//! word belongs to the caller: no store by pointer may change it. In a frame that is aligned, the word with the address
//! by which the frame is left is such a one too.
//!
//! Where ways meet, a word counts only if it holds the same on each. Nothing is known of code that no way leads to from
//! where a function begins.

use super::steps::Step;
use crate::engine::code::{At, Code, writes};
use crate::engine::object::Object;
use crate::engine::tables::warnings;
use iced_x86::{
    Code as Opcode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register,
};
use std::collections::{BTreeSet, HashMap, HashSet};

/// What the names of the parts of functions contain that other parts jump to.
const COLD: &str = ".cold";
/// The section of the code that tests what the processor can, and bytes of one such test at most: an instruction that
/// tests, and two jumps.
const TESTS: &str = ".altinstr_aux";
const TEST: u64 = 20;
/// Bytes of a distance, which counts from its own end.
const DISTANCE: i64 = 4;
/// Bytes of a word of the stack.
const WORD: i16 = 8;
const RSP: usize = 4;
const RBP: usize = 5;

/// Words of a frame, a bit each, from the lowest bit down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Whether the first is the one that RBP points to. Else it is the one below the return address.
    pub by_rbp: bool,
    /// Whether the one below the return address is such a word, where the first is another.
    pub top: bool,
    pub bits: u32,
}

/// Where a place on the stack counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The word above the return address.
    Frame,
    /// Where a frame that is aligned begins.
    Aligned,
}

/// A place on the stack: so many bytes below a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    base: Base,
    down: i16,
}

impl Place {
    /// The place some bytes above; `None` where that is too far for any frame.
    fn above(self, bytes: i64) -> Option<Place> {
        let down = i64::from(self.down).checked_sub(bytes)?;
        Some(Place { down: i16::try_from(down).ok()?, ..self })
    }
}

/// What is known where an instruction begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// Registers that hold the address of a place on the stack, by number.
    points: [Option<Place>; 16],
    /// Registers that hold what the caller left in them, a bit each.
    whole: u16,
    /// Where the values of registers lie that must be kept, by number. That of RSP is the frame's end, in a frame that
    /// is aligned.
    spills: [Option<Place>; 16],
}

/// What a function must keep, RSP aside.
fn kept(register: usize) -> bool {
    register == 3 || register == RBP || register >= 12
}

fn number(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

impl State {
    /// Where a function begins: nothing but the return address is on the stack.
    fn entry() -> State {
        let mut points = [None; 16];
        points[RSP] = Some(Place { base: Base::Frame, down: WORD });
        let whole = (0..16).filter(|register| kept(*register)).map(|register| 1 << register).sum();
        State { points, whole, spills: [None; 16] }
    }

    /// Keeps what another way knows as well; returns whether anything changed.
    fn join(&mut self, other: &State) -> bool {
        let before = self.clone();
        for register in 0..16 {
            if self.points[register] != other.points[register] {
                self.points[register] = None;
            }
            if self.spills[register] != other.spills[register] {
                self.spills[register] = None;
            }
        }
        self.whole &= other.whole;
        *self != before
    }

    /// The words that hold registers of the caller.
    fn words(&self) -> Words {
        let first = |base| match (base, self.points[RBP]) {
            (Base::Frame, _) => Some(2 * WORD),
            (Base::Aligned, Some(Place { base: Base::Aligned, down })) => Some(down),
            (Base::Aligned, _) => None,
        };
        let bits = |base| {
            let of = |place: &Place| Some(bit(place.down - first(base).filter(|_| place.base == base)?));
            self.spills.iter().flatten().filter_map(of).fold(0, |all, bit| all | bit)
        };
        match (bits(Base::Aligned), bits(Base::Frame)) {
            (0, bits) => Words { by_rbp: false, top: false, bits },
            (bits, frame) => Words { by_rbp: true, top: frame & 1 != 0, bits },
        }
    }

    /// A register gets another value.
    fn lose(&mut self, register: usize) {
        self.points[register] = None;
        self.whole &= !(1 << register);
    }

    /// The stack pointer has moved: what is below it is no longer there.
    fn drop_below(&mut self) {
        let Some(sp) = self.points[RSP] else { return };
        for spill in &mut self.spills {
            if spill.is_some_and(|place| place.base == sp.base && place.down > sp.down) {
                *spill = None;
            }
        }
    }

    /// The value of a register is stored to a word.
    fn spill(&mut self, register: usize, place: Place) {
        if self.whole >> register & 1 != 0 {
            self.spills[register].get_or_insert(place);
        } else if self.points[register] == Some(Place { base: Base::Frame, down: 0 })
            && place.base == Base::Aligned
        {
            self.spills[RSP].get_or_insert(place);
        }
    }

    /// A register gets what a word holds.
    fn restore(&mut self, register: usize, place: Option<Place>) {
        self.lose(register);
        if place.is_some() && self.spills[register] == place {
            self.whole |= 1 << register;
        } else if place.is_some() && self.spills[RSP] == place {
            self.points[register] = Some(Place { base: Base::Frame, down: 0 });
        }
    }

    /// So many bytes at a place are overwritten with something else.
    fn overwrite(&mut self, place: Place, bytes: i16) {
        for spill in &mut self.spills {
            let over = |own: Place| {
                own.base == place.base && own.down > place.down - bytes && own.down - WORD < place.down
            };
            if spill.is_some_and(over) {
                *spill = None;
            }
        }
    }

    fn pop(&mut self, register: usize) {
        let place = self.points[RSP];
        self.points[RSP] = place.and_then(|place| place.above(WORD.into()));
        self.restore(register, place);
        self.drop_below();
    }

    /// The place that an operand in memory names; `None` where it lies elsewhere, or is not known.
    fn place(&self, insn: &Instruction) -> Option<Place> {
        let base = number(insn.memory_base()).filter(|_| insn.memory_base().is_gpr64())?;
        let plain = insn.memory_index() == Register::None && insn.segment_prefix() == Register::None;
        self.points[base].filter(|_| plain)?.above(insn.memory_displacement64() as i64)
    }

    /// Follows one instruction.
    fn step(&mut self, insn: &Instruction, info: &mut InstructionInfoFactory) {
        let (to, from) = (insn.op0_register(), insn.op1_register());
        let own = number(to).unwrap_or_default();
        let register = |operand| insn.op_kind(operand) == OpKind::Register;
        match insn.code() {
            Opcode::Push_r64 => {
                let place = self.points[RSP].and_then(|sp| sp.above((-WORD).into()));
                self.points[RSP] = place;
                if let Some(place) = place {
                    self.overwrite(place, WORD);
                    self.spill(own, place);
                }
                return;
            }
            Opcode::Pop_r64 => return self.pop(own),
            Opcode::Leaveq => {
                self.points[RSP] = self.points[RBP];
                return self.pop(RBP);
            }
            Opcode::Mov_rm64_r64 | Opcode::Mov_r64_rm64 if register(0) && register(1) => {
                let from = number(from).unwrap_or_default();
                if own != from {
                    self.lose(own);
                    self.points[own] = self.points[from];
                }
            }
            Opcode::Mov_r64_rm64 => {
                let place = self.place(insn);
                self.restore(own, place);
            }
            Opcode::Mov_rm64_r64 => {
                if let Some(place) = self.place(insn) {
                    let from = number(from).unwrap_or_default();
                    let same = self.whole >> from & 1 != 0 && self.spills[from] == Some(place);
                    if !same {
                        self.overwrite(place, WORD);
                        self.spill(from, place);
                    }
                }
            }
            Opcode::Lea_r64_m => {
                let place = self.place(insn);
                self.lose(own);
                self.points[own] = place;
            }
            _ if to.is_gpr64() && register(0) && self.moves(insn, own) => {}
            _ => self.other(insn, info),
        }
        self.drop_below();
    }

    /// Follows an addition to a register, or its alignment; false for others.
    fn moves(&mut self, insn: &Instruction, own: usize) -> bool {
        let immediate = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64)
            && insn.op_count() == 2;
        let by = if immediate { insn.immediate(1) as i64 } else { 0 };
        let old = self.points[own];
        let new = match insn.mnemonic() {
            Mnemonic::Add if immediate => old.and_then(|place| place.above(by)),
            Mnemonic::Sub if immediate => old.and_then(|place| place.above(by.checked_neg()?)),
            Mnemonic::And if immediate && own == RSP && by < 0 => {
                let before = |place: Place| place.base == Base::Frame;
                old.filter(|place| before(*place)).map(|_| Place { base: Base::Aligned, down: 0 })
            }
            _ => return false,
        };
        self.lose(own);
        self.points[own] = new;
        true
    }

    /// What other instructions write is not known.
    fn other(&mut self, insn: &Instruction, info: &mut InstructionInfoFactory) {
        let sp = self.points[RSP];
        let used = info.info(insn);
        for register in used.used_registers().iter().filter(|used| writes(used.access())) {
            if let Some(number) = number(register.register()) {
                self.lose(number);
            }
        }
        if insn.is_stack_instruction() {
            self.points[RSP] = sp.and_then(|sp| sp.above(insn.stack_pointer_increment().into()));
            if let Some(place) = self.points[RSP].filter(|_| insn.stack_pointer_increment() < 0) {
                self.overwrite(place, WORD);
            }
        }
        // A push writes where the stack pointer leads, not to its operand.
        let pushes = insn.is_stack_instruction() && insn.stack_pointer_increment() < 0;
        let stores = !pushes && used.used_memory().iter().any(|memory| writes(memory.access()));
        if let Some(place) = self.place(insn).filter(|_| stores) {
            self.overwrite(place, i16::try_from(insn.memory_size().size()).unwrap_or(i16::MAX));
        }
    }

    /// A call changes registers; the stack is as before.
    fn call(&mut self) {
        for register in (0..16).filter(|&register| register != RSP && !kept(register)) {
            self.lose(register);
        }
    }
}

/// The bit for a word so many bytes below the first; 0 where no word is there.
fn bit(bytes: i16) -> u32 {
    let word = bytes / WORD;
    if bytes >= 0 && bytes % WORD == 0 { 1u32.checked_shl(word as u32).unwrap_or(0) } else { 0 }
}

/// What is known of the words of frames, for one module.
struct Search<'a> {
    codes: &'a [Code],
    steps: HashMap<usize, &'a [Step]>,
    /// Where functions begin, but for parts that others jump to: all that is known there is the return address.
    functions: HashSet<At>,
    /// Where jumps lead.
    targets: HashSet<At>,
    /// `ud2` instructions behind which the function goes on.
    warnings: HashSet<At>,
    /// Where jumps lead that the kernel replaces.
    tests: HashMap<At, Vec<At>>,
    /// What is known where blocks begin.
    states: HashMap<At, State>,
    open: BTreeSet<At>,
    info: InstructionInfoFactory,
    found: HashMap<usize, Vec<Words>>,
}

/// The words with registers of callers, for each section of code and each of its instructions.
pub fn find(object: &Object, codes: &[Code], steps: &[(usize, Vec<Step>)]) -> HashMap<usize, Vec<Words>> {
    let functions: HashSet<At> = codes
        .iter()
        .flat_map(|code| code.functions.iter().map(move |function| (code.section, function)))
        .filter(|(_, function)| !object.symbols[function.symbol].name.contains(COLD))
        .map(|(section, function)| (section, function.insns.start))
        .collect();
    let warnings = codes.iter().flat_map(|code| {
        let places = warnings(object, code.section).into_iter();
        places.filter_map(|at| Some((code.section, code.starting(at)?)))
    });
    let tests = tests(object, codes);
    let jumps = steps.iter().flat_map(|(_, steps)| steps).flat_map(|step| &step.to);
    let mut search = Search {
        codes,
        steps: steps.iter().map(|(section, steps)| (*section, steps.as_slice())).collect(),
        targets: jumps.chain(tests.values().flatten()).copied().collect(),
        tests,
        warnings: warnings.collect(),
        states: functions.iter().map(|function| (*function, State::entry())).collect(),
        open: functions.iter().copied().collect(),
        functions,
        info: InstructionInfoFactory::new(),
        found: codes.iter().map(|code| (code.section, vec![Words::default(); code.insns.len()])).collect(),
    };
    while let Some(at) = search.open.pop_first() {
        search.block(at);
    }
    search.found
}

/// Where the jumps lead that the kernel replaces by what it knows of the processor: to code that tests it, and from there
/// to one of two places; or on.
fn tests(object: &Object, codes: &[Code]) -> HashMap<At, Vec<At>> {
    let place = |symbol, addend: i64| {
        let (section, offset) = object.target(symbol, addend)?;
        Some((section, Code::find(codes, section)?.starting(offset)?))
    };
    let mut found = HashMap::new();
    for code in codes {
        let jumps = (0..)
            .zip(&code.insns)
            .filter(|(_, insn)| insn.fixed && insn.insn.flow_control() == FlowControl::UnconditionalBranch);
        for (number, insn) in jumps {
            let mut to = vec![(code.section, number + 1)];
            let reloc = insn.relocs(&object.sections[code.section]).first();
            let there = reloc
                .and_then(|reloc| object.target(reloc.symbol, reloc.addend.wrapping_add(insn.bias(reloc))));
            if let Some((section, at)) = there.filter(|(section, _)| object.sections[*section].name == TESTS)
            {
                let near = object.sections[section]
                    .relocs
                    .iter()
                    .filter(|reloc| reloc.offset.checked_sub(at).is_some_and(|far| far < TEST));
                to.extend(near.filter_map(|reloc| place(reloc.symbol, reloc.addend.wrapping_add(DISTANCE))));
            }
            found.insert((code.section, number), to);
        }
    }
    found
}

impl Search<'_> {
    /// Control comes to a block with this knowledge.
    fn arrive(&mut self, at: At, state: &State) {
        let changed = match self.states.get_mut(&at) {
            _ if self.functions.contains(&at) => false,
            Some(known) => known.join(state),
            None => {
                self.states.insert(at, state.clone());
                true
            }
        };
        if changed {
            self.open.insert(at);
        }
    }

    /// Follows a block from its first instruction on.
    fn block(&mut self, (section, first): At) {
        let (Some(code), Some(mut state)) =
            (Code::find(self.codes, section), self.states.get(&(section, first)).cloned())
        else {
            return;
        };
        let steps = self.steps[&section];
        for number in first.. {
            let at = (section, number);
            let (Some(insn), Some(step)) = (code.insns.get(number as usize), steps.get(number as usize))
            else {
                return;
            };
            if number != first && code.function_of(number) != code.function_of(first) {
                // The call before never returns.
                return;
            }
            if number != first && self.targets.contains(&at) {
                return self.arrive(at, &state);
            }
            if let Some(found) = self.found.get_mut(&section) {
                found[number as usize] = state.words();
            }
            match insn.insn.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => state.call(),
                FlowControl::Next => state.step(&insn.insn, &mut self.info),
                _ => {}
            }
            let tests = self.tests.get(&at).cloned().unwrap_or_default();
            for to in step.to.iter().chain(&tests) {
                self.arrive(*to, &state);
            }
            let ends = insn.insn.mnemonic() == Mnemonic::Ud2 && !self.warnings.contains(&at);
            if !step.falls || ends {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// The words behind each instruction of a function.
    fn words(code: &[u8]) -> Vec<Words> {
        let (mut state, mut info) = (State::entry(), InstructionInfoFactory::new());
        let step = |insn| {
            state.step(&insn, &mut info);
            state.words()
        };
        Decoder::new(64, code, DecoderOptions::NONE).into_iter().map(step).collect()
    }

    fn frame(bits: u32) -> Words {
        Words { by_rbp: false, top: false, bits }
    }

    #[test]
    fn words_count_from_push_to_pop() {
        // push %r15; push %rbx; sub $24,%rsp; xor %ebx,%ebx; push %rbx; pop %rax; add $24,%rsp; pop %rbx; pop %r15
        let code = [
            0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 24, 0x31, 0xdb, 0x53, 0x58, 0x48, 0x83, 0xc4, 24, 0x5b, 0x41,
            0x5f,
        ];
        assert_eq!(words(&code), [1, 3, 3, 3, 3, 3, 3, 1, 0].map(frame));
    }

    #[test]
    fn words_count_where_they_are_stored() {
        // sub $16,%rsp; mov %rbx,8(%rsp); mov %rdi,%rbx; mov %rbx,(%rsp); mov 8(%rsp),%rbx; mov %rsi,8(%rsp)
        let code = [
            0x48, 0x83, 0xec, 16, 0x48, 0x89, 0x5c, 0x24, 8, 0x48, 0x89, 0xfb, 0x48, 0x89, 0x1c, 0x24, 0x48,
            0x8b, 0x5c, 0x24, 8, 0x48, 0x89, 0x74, 0x24, 8,
        ];
        assert_eq!(words(&code), [0, 1, 1, 1, 1, 0].map(frame));
    }

    #[test]
    fn frames_that_are_aligned_count_from_rbp() {
        // lea 8(%rsp),%r10; and $-32,%rsp; push -8(%r10); push %rbp; mov %rsp,%rbp; push %r12; push %r10; sub $64,%rsp
        let code = [
            0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xe0, 0x41, 0xff, 0x72, 0xf8, 0x55, 0x48, 0x89,
            0xe5, 0x41, 0x54, 0x41, 0x52, 0x48, 0x83, 0xec, 64,
        ];
        let found = words(&code);
        let aligned = |top| move |bits| Words { by_rbp: true, top, bits };
        assert_eq!(found[4..], [1, 3, 7, 7].map(aligned(false)));
        assert_eq!(found[..4], [0; 4].map(frame));
        // push %r13; lea 16(%rsp),%r13; and $-16,%rsp; push -8(%r13); push %rbp; mov %rsp,%rbp; push %r14; push %r13
        let code = [
            0x41, 0x55, 0x4c, 0x8d, 0x6c, 0x24, 16, 0x48, 0x83, 0xe4, 0xf0, 0x41, 0xff, 0x75, 0xf8, 0x55,
            0x48, 0x89, 0xe5, 0x41, 0x56, 0x41, 0x55,
        ];
        assert_eq!(words(&code)[5..], [1, 3, 7].map(aligned(true)));
    }

    #[test]
    fn where_ways_meet_only_common_words_count() {
        let mut one = State::entry();
        let mut other = one.clone();
        let mut info = InstructionInfoFactory::new();
        for (state, code) in [(&mut one, [0x53, 0x55]), (&mut other, [0x53, 0x50])] {
            for insn in &mut Decoder::new(64, &code, DecoderOptions::NONE) {
                state.step(&insn, &mut info);
            }
        }
        assert!(one.join(&other) && !one.join(&other));
        assert_eq!(one.words(), frame(1));
    }
}
