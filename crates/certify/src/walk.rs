//! Follows the code of a component along all ways, until nothing more is learned. A component is the code
//! that jumps connect.

use crate::data;
use crate::elf::Place;
use crate::graph::{NONE, Node, Number, Way};
use crate::mode::{Ask, Mode};
use crate::module::Module;
use crate::state::{Fact, Flags, KEPT, RAX, RCX, RDI, RDX, REGISTERS, RSI, RSP, State};
use crate::tables;
use crate::value::{Atom, Val, Values};
use guardrail_abi as abi;
use iced_x86::{ConditionCode, FlowControl, InstructionInfoFactory};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// What was found in the code.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What is wrong, by the instruction's number.
    pub faults: BTreeSet<(Number, String)>,
    /// How often each kind of proof was made.
    pub counts: Counts,
    /// Actions that thunks perform: row and thunk.
    pub actions: Vec<(u32, Number)>,
    /// Functions of the kernel that a thunk calls.
    pub wrapped: Vec<(u32, Number)>,
    /// Descriptions of entries that thunks use, with the thunk.
    pub entries: Vec<(u32, Number)>,
    /// Functions that thunks of entries call, with the thunk.
    pub functions: Vec<(Place, Number)>,
    /// Stubs, with the function of the runtime that each jumps to.
    pub stubs: Vec<(Number, u32)>,
    /// Instructions with privileges.
    pub privileged: Vec<Number>,
    /// Words of their callers' stacks that functions write: arguments of their own.
    pub words: FxHashMap<Number, i64>,
    /// Functions of the module that are called.
    pub called: FxHashSet<Number>,
    /// Jumps from functions to others, which take their arguments over.
    pub tails: Vec<(Number, Number)>,
}

/// How stores and calls were proven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Stores that a check allows.
    pub checked: usize,
    /// Stores into the function's own stack frame.
    pub frame: usize,
    /// Stores into per-CPU variables of the module, or of the kernel by name.
    pub own: usize,
    /// Stores that write what was there.
    pub same: usize,
    /// Stores in code that the kernel replaces.
    pub replaced: usize,
    /// Calls and jumps to an address that a check allows.
    pub calls: usize,
    /// Calls of functions of the kernel past a thunk, for lack of one.
    pub plain: usize,
    /// Returns of functions that were proven.
    pub returns: usize,
}

/// Follows one component.
pub struct Walk<'a, 'm> {
    pub module: &'a Module<'m>,
    pub values: Values,
    pub info: InstructionInfoFactory,
    pub found: Found,
    /// The root that the component belongs to, for thunks.
    pub root: Number,
    /// All roots of the component.
    pub roots: Vec<Number>,
    /// Whether nothing changes any more, so that faults are faults.
    pub last: bool,
    /// What the function asks, for thunks of checks.
    pub asked: Option<Ask>,
    /// Rows of actions that a thunk performs before its function, with the instruction.
    pub before: BTreeSet<(u32, Number)>,
    /// Rows of actions that it performs after the function.
    pub after: BTreeSet<u32>,
    blocks: FxHashMap<Number, Block>,
}

/// What is known where a block begins.
struct Block {
    state: State,
    /// What is known along each way to it: the instruction before, and which of its ways.
    ways: Vec<((Number, usize), State)>,
    /// Registers whose value depends on the way for good.
    mixed: u16,
    visits: u16,
}

/// Bytes of stores that may go to user memory.
const SIZES: [i64; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Blocks to be followed, each before those behind it.
type Open = BTreeSet<(u32, Number)>;

/// After so many changes registers whose value has depended on the way are taken to do so for good.
const SETTLED: u16 = 20;
/// After so many changes nothing is taken for proven where a block begins.
const PATIENCE: u16 = 200;

impl<'a, 'm> Walk<'a, 'm> {
    /// Nothing followed yet.
    pub fn new(module: &'a Module<'m>) -> Walk<'a, 'm> {
        Walk {
            module,
            values: Values::default(),
            info: InstructionInfoFactory::new(),
            found: Found::default(),
            root: NONE,
            roots: Vec::new(),
            last: false,
            asked: None,
            before: BTreeSet::new(),
            after: BTreeSet::new(),
            blocks: FxHashMap::default(),
        }
    }

    /// Follows the component of these roots.
    pub fn component(&mut self, roots: &[Number]) {
        self.values.clear();
        self.blocks.clear();
        self.before.clear();
        self.after.clear();
        self.asked = None;
        self.last = false;
        self.roots = roots.to_vec();
        self.root = roots.first().copied().unwrap_or(NONE);
        let module = self.module;
        let mut open: Open = roots.iter().map(|root| (module.ranks[*root as usize], *root)).collect();
        for root in roots {
            let state = State::entry(&mut self.values);
            let ways = vec![((NONE, 0), state.clone())];
            self.blocks.insert(*root, Block { state, ways, mixed: 0, visits: 0 });
        }
        while let Some((_, number)) = open.pop_first() {
            self.block(number, &mut open);
        }
        self.last = true;
        let mut leaders: Vec<Number> = self.blocks.keys().copied().collect();
        leaders.sort_unstable();
        for number in leaders {
            self.block(number, &mut open);
        }
    }

    /// Reports what is wrong with an instruction.
    pub fn fault(&mut self, number: Number, detail: impl Into<String>) {
        if self.last {
            self.found.faults.insert((number, detail.into()));
        }
    }

    /// Counts a proof.
    pub fn count(&mut self, which: impl Fn(&mut Counts) -> &mut usize) {
        if self.last {
            *which(&mut self.found.counts) += 1;
        }
    }

    /// The instruction.
    pub fn node(&self, number: Number) -> &'a Node {
        &self.module.graph.nodes[number as usize]
    }

    /// Follows a block from its first instruction on.
    fn block(&mut self, first: Number, open: &mut Open) {
        let Some(mut state) = self.blocks.get(&first).map(|block| block.state.clone()) else { return };
        let (mut number, mut ways) = (first, Vec::new());
        loop {
            let graph = &self.module.graph;
            ways.clear();
            ways.extend(graph.ways(number));
            let others = ways.iter().any(|(way, _)| matches!(way, Way::Fault(_) | Way::Replaced));
            let before = others.then(|| state.clone());
            self.step(number, &mut state);
            self.leaves(number, &state);
            let mut next = None;
            for (which, (way, to)) in ways.iter().copied().enumerate() {
                if to == NONE {
                    self.fault(number, "it leads to what is no instruction");
                    continue;
                }
                let simple = matches!(way, Way::Next | Way::Return);
                if simple && !self.module.leaders[to as usize] {
                    next = Some(to);
                    continue;
                }
                let mut then = match (way, &before) {
                    (Way::Fault(_) | Way::Replaced, Some(before)) => before.clone(),
                    _ => state.clone(),
                };
                self.along(number, way, &mut then);
                if self.module.graph.roots.contains(&to) && way != Way::Replaced {
                    self.ends(number, &then);
                    if self.last {
                        let tails = self.roots.iter().map(|root| (*root, to));
                        self.found.tails.extend(tails);
                    }
                } else if !self.last {
                    self.arrive((number, which), to, then, open);
                }
            }
            let Some(to) = next else { return };
            self.along(number, Way::Next, &mut state);
            number = to;
        }
    }

    /// Control comes to a block with this knowledge: what all ways to it share is known there.
    fn arrive(&mut self, from: (Number, usize), to: Number, state: State, open: &mut Open) {
        let Some(block) = self.blocks.get_mut(&to) else {
            let ways = vec![(from, state.clone())];
            self.blocks.insert(to, Block { state, ways, mixed: 0, visits: 0 });
            open.insert((self.module.ranks[to as usize], to));
            return;
        };
        match block.ways.iter_mut().find(|way| way.0 == from) {
            Some(way) if way.1 == state => return,
            Some(way) => way.1 = state,
            None => block.ways.push((from, state)),
        }
        let (mut shared, mut mixed) = (block.ways[0].1.clone(), 0);
        for (_, other) in &block.ways[1..] {
            shared.join(other, &mut self.values, to, &mut mixed);
        }
        if block.visits > SETTLED {
            block.mixed |= mixed;
            shared.mix(&mut self.values, to, block.mixed);
        }
        if block.visits > PATIENCE {
            shared.facts.clear();
            shared.writable.clear();
        }
        if shared != block.state {
            block.visits = block.visits.saturating_add(1);
            block.state = shared;
            open.insert((self.module.ranks[to as usize], to));
        }
    }

    /// What is known in addition along one of the ways behind an instruction.
    fn along(&mut self, number: Number, way: Way, state: &mut State) {
        let insn = &self.node(number).insn;
        if let Way::Fault(kind) = way {
            return self.after_fault(number, kind, state);
        }
        if insn.flow_control() != FlowControl::ConditionalBranch || way == Way::Replaced {
            return;
        }
        let taken = way == Way::Taken;
        let (equal, negative) = match (insn.condition_code(), taken) {
            (ConditionCode::e, true) | (ConditionCode::ne, false) => (Some(true), None),
            (ConditionCode::ne, true) | (ConditionCode::e, false) => (Some(false), None),
            (ConditionCode::s, true) | (ConditionCode::ns, false) => (None, Some(true)),
            (ConditionCode::ns, true) | (ConditionCode::s, false) => (None, Some(false)),
            _ => return self.own_branch(number, state),
        };
        self.own_branch(number, state);
        match state.flags {
            Flags::Tags(address, count, wanted) if equal == Some(true) => {
                self.tags_equal(address, count, wanted, state);
            }
            Flags::Low(val) if equal == Some(true) => state.show(Fact::Aligned(val)),
            Flags::Sign(val) if negative == Some(false) => {
                SIZES.iter().for_each(|size| state.show(Fact::User(val, *size)));
            }
            Flags::Half(val) => {
                if equal == Some(true) {
                    state.show(Fact::Zero(val));
                }
                self.decided(val, equal, negative, state);
            }
            _ => {}
        }
    }

    /// A check stands in the block of its stores: behind a branch of the module's own another is needed.
    fn own_branch(&self, number: Number, state: &mut State) {
        let checks = matches!(state.flags, Flags::Tags(..) | Flags::Frames | Flags::Low(_) | Flags::Sign(_));
        if !checks && self.module.mode(number) == Mode::Own {
            state.forget_rights();
        }
    }

    /// The tags of a table equal a number: what that shows.
    fn tags_equal(&mut self, address: Val, count: u8, wanted: u32, state: &mut State) {
        let tag = wanted as u8;
        let all = u32::from(tag)
            * if count == 4 {
                0x0101_0101
            } else if count == 2 {
                0x0101
            } else {
                1
            };
        if wanted != all || tag >> 4 != self.module.domain {
            return;
        }
        let Some(slot) = self.values.without(address, Atom::Table) else { return };
        let Some(atom) = self.values.single(slot) else { return };
        let (far, slots) = (slot.off.wrapping_mul(abi::SLOT.into()), i64::from(count) * i64::from(abi::SLOT));
        let shift = abi::SLOT_SHIFT as u8;
        let only = count == 1 && slot.off == 0;
        match (tag & 15, atom) {
            (abi::WRITE, Atom::Ror(val, bits)) if bits == shift => state.show_writable(val.plus(far), slots),
            (abi::CALL, Atom::Ror(val, bits)) if bits == shift && only => state.show(Fact::Call(val)),
            (abi::SKB, Atom::Ror(val, bits)) if bits == shift && only => state.show(Fact::Packet(val)),
            (abi::WRITE, Atom::Shr(val, bits)) if bits == shift => match state.shows(Fact::Aligned(val)) {
                true => state.show_writable(val.plus(far), slots),
                false => state.show_writable(val.plus(far), 1),
            },
            (abi::WRITE, Atom::Shr(val, bits)) if val.off == 0 && bits < shift => {
                if let Some(Atom::Ror(val, more)) = self.values.single(val)
                    && more + bits == shift
                {
                    state.show_writable(val.plus(far), 1 << more);
                }
            }
            _ => {}
        }
    }

    /// A thunk has looked at the result of one of its calls of the runtime.
    fn decided(&mut self, val: Val, equal: Option<bool>, negative: Option<bool>, state: &mut State) {
        let Some(Atom::Fresh(call, RAX)) = self.values.single(val).filter(|_| val.off == 0) else { return };
        let name = self.module.imported(self.node(call)).unwrap_or_default();
        let entry = name == abi::symbol::ENTER;
        if !entry && !data::is_action(name) {
            return;
        }
        match (equal, negative) {
            (Some(true), _) if entry => state.show(Fact::Entered),
            // The function is left out.
            (Some(false), _) => state.show(Fact::Called),
            (_, Some(true)) if entry => state.show(Fact::Closed),
            _ => {}
        }
    }

    /// What the kernel's handlers of faults change.
    fn after_fault(&mut self, number: Number, kind: u32, state: &mut State) {
        state.flags = Flags::Unknown;
        // Some elements may have been stored.
        if self.node(number).insn.is_string_instruction() {
            for moved in [RCX, RSI, RDI] {
                state.regs[usize::from(moved)] = self.values.atom(Atom::Fresh(number, moved));
            }
        }
        if kind == tables::EX_DEFAULT {
            return;
        }
        let register = (kind >> 8 & 15) as u8;
        if !tables::HANDLERS.contains(&(kind & 255)) || (tables::fills(kind) && register == RSP) {
            self.fault(number, "the kernel's handler of its faults does what cannot be followed");
        }
        for lost in [RAX, RCX, RDX, register] {
            if lost != RSP {
                state.regs[usize::from(lost)] = self.values.atom(Atom::Fresh(number, lost));
            }
        }
        state.forget_rights();
    }

    /// The function ends with this instruction, by a return or by a jump to another function: its frame must
    /// be gone, and the registers that it must keep be as they were.
    pub fn ends(&mut self, number: Number, state: &State) {
        for register in KEPT {
            let whole = self.values.atom(Atom::Init(register));
            // The register of a call gets the runtime's answer.
            let answer = self.module.mode(number) == Mode::Ask && self.asked == Some(Ask::Call(register));
            if state.regs[usize::from(register)] != whole && !answer {
                let what = match register {
                    RSP => "it leaves the function while the stack pointer is elsewhere".to_owned(),
                    _ => format!("it leaves the function with another {}", REGISTERS[usize::from(register)]),
                };
                self.fault(number, what);
            }
        }
        let back = self.values.atom(Atom::Return);
        if state.slot(state.sp()) != Some(back) {
            self.fault(number, "it leaves the function after its return address may have been written");
        }
    }
}

/// The roots of each component: those that jumps connect.
pub fn components(module: &Module<'_>) -> Vec<Vec<Number>> {
    let graph = &module.graph;
    let mut parent: Vec<Number> = (0..graph.nodes.len() as Number).collect();
    fn find(parent: &mut [Number], mut number: Number) -> Number {
        while parent[number as usize] != number {
            parent[number as usize] = parent[parent[number as usize] as usize];
            number = parent[number as usize];
        }
        number
    }
    for number in 0..graph.nodes.len() as Number {
        if !graph.live[number as usize] {
            continue;
        }
        for (way, to) in graph.ways(number) {
            if to != NONE && (way == Way::Replaced || !graph.roots.contains(&to)) {
                let (first, second) = (find(&mut parent, number), find(&mut parent, to));
                parent[first.max(second) as usize] = first.min(second);
            }
        }
    }
    let mut found: FxHashMap<Number, Vec<Number>> = FxHashMap::default();
    for root in &graph.roots {
        found.entry(find(&mut parent, *root)).or_default().push(*root);
    }
    let mut all: Vec<Vec<Number>> = found.into_values().collect();
    all.sort_unstable();
    all
}
