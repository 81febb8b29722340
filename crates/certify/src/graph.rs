//! The code of a module as a graph: every instruction that control can reach, and where it goes on.

use crate::elf::{Elf, Place, Reloc, Target};
use crate::mode::Mode;
use crate::tables::{self, Tables};
use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    Mnemonic, OpKind,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The number of an instruction in [`Graph::nodes`].
pub type Number = u32;

/// An instruction.
#[derive(Clone, Debug)]
pub struct Node {
    pub place: Place,
    pub insn: Instruction,
    /// Where its displacement and immediate lie in its bytes.
    pub offsets: ConstantOffsets,
    /// Whether it writes to memory, other than by moving the stack pointer.
    pub stores: bool,
    /// Where control goes on: a range of [`Graph::edges`].
    edges: (u32, u32),
    /// The function that it calls or jumps to directly; `None` for other instructions.
    pub to: Option<Dest>,
}

impl Node {
    /// The place behind it.
    pub fn behind(&self) -> Place {
        (self.place.0, self.place.1 + self.insn.len() as u64)
    }

    /// Whether it calls.
    pub fn calls(&self) -> bool {
        matches!(self.insn.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
    }
}

/// Where a direct branch leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dest {
    Code(Place),
    Import(u32),
}

/// How control goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// With what stands behind it.
    Next,
    /// With what stands behind a call, once it returns.
    Return,
    /// By a jump.
    Taken,
    /// Elsewhere, after a fault: the type of the row, with its data.
    Fault(u32),
    /// Where the kernel has put something else in its place.
    Replaced,
}

/// An edge before or after its end is known by number.
#[derive(Clone, Copy, Debug)]
struct Edge {
    way: Way,
    to: Place,
    number: Number,
}

/// A number that no instruction has.
pub const NONE: Number = Number::MAX;

/// The graph.
#[derive(Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Numbers of instructions by offset, for each section.
    starts: FxHashMap<Place, Number>,
    /// Where control may begin: by a call, or by a pointer.
    pub roots: BTreeSet<Number>,
    /// Which instructions can be reached.
    pub live: Vec<bool>,
    /// Functions that never return.
    endless: FxHashSet<Number>,
    /// Ranges of code that is not looked at.
    trusted: Vec<(Place, u64)>,
}

/// The place in code that an instruction names which is not a branch.
pub fn named(elf: &Elf, node: &Node) -> Option<Place> {
    let section = &elf.sections[node.place.0 as usize];
    let relocs = section.relocs_in(node.place.1, node.behind().1);
    relocs.iter().find_map(|reloc| {
        let Target::In(target) = reloc.target else { return None };
        let at = reloc.addend.wrapping_add(bias(reloc, node.behind().1)) as u64;
        elf.sections[target as usize].exec().then_some((target, at))
    })
}

/// Whether a place in code is within a function. Messages name the place that they are from; control cannot
/// go there by its address, which is nobody's right to call.
pub fn label(elf: &Elf, place: Place) -> bool {
    elf.function(place).is_some() && !elf.begins(place)
}

/// What is added to a relocation's addend where its field counts from the end of an instruction.
pub fn bias(reloc: &Reloc, end: u64) -> i64 {
    if reloc.relative() { end as i64 - reloc.offset as i64 } else { 0 }
}

impl Graph {
    /// Takes all code apart that can be reached. Code of the functions in `trusted` is left out.
    pub fn build(elf: &Elf, tables: &Tables, trusted: &[&str]) -> Graph {
        let of_trust = elf.functions.iter().filter(|function| trusted.contains(&function.name.as_str()));
        let trusted = of_trust.map(|function| (function.place, function.size)).collect();
        let mut graph = Graph { trusted, ..Graph::default() };
        let pointed = pointers(elf);
        let mut begun: BTreeSet<Place> = pointed.clone();
        let mut open: Vec<Place> = pointed.into_iter().collect();
        open.extend(elf.functions.iter().map(|function| function.place));
        // A thunk is one however it is reached.
        let thunks = elf.functions.iter().filter(|function| guarding(elf, function.place));
        begun.extend(thunks.map(|function| function.place));
        graph.of_trusted(elf, &mut begun, &mut open);
        while let Some(place) = open.pop() {
            graph.decode(elf, tables, place, &mut begun, &mut open);
        }
        graph.link();
        for place in begun {
            graph.roots.extend(graph.starts.get(&place));
        }
        graph.complete(elf);
        graph.find_endless(elf);
        graph.live = graph.reach(graph.roots.iter().copied());
        graph
    }

    /// The instruction that begins at a place.
    pub fn at(&self, place: Place) -> Option<Number> {
        self.starts.get(&place).copied()
    }

    /// Whether a place is in code that is not looked at.
    pub fn trusts(&self, place: Place) -> bool {
        self.trusted.iter().any(|(start, size)| {
            start.0 == place.0 && (start.1..start.1.saturating_add(*size)).contains(&place.1)
        })
    }

    /// Where control goes on after an instruction; the number is [`NONE`] where there is no instruction.
    pub fn ways(&self, number: Number) -> impl Iterator<Item = (Way, Number)> + '_ {
        let node = &self.nodes[number as usize];
        let ends = matches!(node.to, Some(Dest::Code(to)) if self.at(to).is_some_and(|to| self.endless.contains(&to)));
        let edges = &self.edges[node.edges.0 as usize..node.edges.1 as usize];
        edges
            .iter()
            .filter(move |edge| !(ends && edge.way == Way::Return))
            .map(|edge| (edge.way, edge.number))
    }

    /// Functions that code which is not looked at calls.
    fn of_trusted(&mut self, elf: &Elf, begun: &mut BTreeSet<Place>, open: &mut Vec<Place>) {
        for (start, size) in self.trusted.clone() {
            let section = &elf.sections[start.0 as usize];
            let end = start.1.saturating_add(size).min(section.data.len() as u64);
            let bytes = section.data.get(start.1 as usize..end as usize).unwrap_or_default();
            let mut decoder = Decoder::with_ip(64, bytes, start.1, DecoderOptions::NONE);
            while decoder.can_decode() {
                let insn = decoder.decode();
                if insn.is_invalid() {
                    break;
                }
                let place = (start.0, insn.ip());
                let to = dest(elf, place, &insn);
                let offsets = decoder.get_constant_offsets(&insn);
                let node = Node { place, insn, offsets, stores: false, edges: (0, 0), to };
                let named = match node.to {
                    Some(Dest::Code(to)) => Some(to).filter(|to| node.calls() || elf.begins(*to)),
                    _ => named(elf, &node),
                };
                if let Some(place) = named.filter(|place| !self.trusts(*place)) {
                    begun.insert(place);
                    open.push(place);
                }
            }
        }
    }

    fn decode(
        &mut self,
        elf: &Elf,
        tables: &Tables,
        place: Place,
        begun: &mut BTreeSet<Place>,
        open: &mut Vec<Place>,
    ) {
        let (mut at, mut info) = (place, InstructionInfoFactory::new());
        // What stands behind is mostly what comes next.
        loop {
            let Some(section) = elf.sections.get(at.0 as usize).filter(|section| section.exec()) else {
                return;
            };
            if self.starts.contains_key(&at) || self.trusts(at) {
                return;
            }
            let Some(bytes) = section.data.get(at.1 as usize..).filter(|bytes| !bytes.is_empty()) else {
                return;
            };
            let mut decoder = Decoder::with_ip(64, bytes, at.1, DecoderOptions::NONE);
            let insn = decoder.decode();
            if insn.is_invalid() {
                return;
            }
            let number = self.nodes.len() as Number;
            self.starts.insert(at, number);
            let first = self.edges.len() as u32;
            let to = dest(elf, at, &insn);
            let offsets = decoder.get_constant_offsets(&insn);
            let stores = crate::writing::stores(&insn, &mut info);
            let mut node = Node { place: at, insn, offsets, stores, edges: (first, first), to };
            match node.to {
                Some(Dest::Code(to)) if node.calls() && to != node.behind() => {
                    begun.insert(to);
                    open.push(to);
                }
                None => {
                    if let Some(named) = named(elf, &node).filter(|named| !label(elf, *named)) {
                        begun.insert(named);
                        open.push(named);
                    }
                }
                _ => {}
            }
            self.add_edges(elf, tables, &node);
            node.edges.1 = self.edges.len() as u32;
            let next =
                self.edges[first as usize..].iter().find(|edge| matches!(edge.way, Way::Next | Way::Return));
            let next = next.map(|edge| edge.to);
            open.extend(
                self.edges[first as usize..].iter().map(|edge| edge.to).filter(|to| Some(*to) != next),
            );
            self.nodes.push(node);
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }

    fn add_edges(&mut self, elf: &Elf, tables: &Tables, node: &Node) {
        let mut add = |way, to| self.edges.push(Edge { way, to, number: NONE });
        let flow = node.insn.flow_control();
        let jumps = matches!(node.insn.mnemonic(), Mnemonic::Xbegin)
            || matches!(flow, FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch);
        if let Some(Dest::Code(to)) = node.to.filter(|_| jumps) {
            add(Way::Taken, to);
        }
        // Thunks are looked at as a whole, behind a call that never returns too.
        let thunk = guarding(elf, node.place);
        let way = match flow {
            FlowControl::Call | FlowControl::IndirectCall => match node.to {
                Some(Dest::Import(import)) if tables::no_return(elf.import(import)) && !thunk => None,
                _ => Some(Way::Return),
            },
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => None,
            _ if node.insn.mnemonic() == Mnemonic::Ud2 && tables.warnings.contains(&node.place) => {
                Some(Way::Next)
            }
            FlowControl::Exception => None,
            _ if matches!(node.insn.mnemonic(), Mnemonic::Int3 | Mnemonic::Ud2) => None,
            _ => Some(Way::Next),
        };
        if let Some(way) = way {
            match tables.ends.get(&node.behind()) {
                Some(ends) if elf.sections[node.place.0 as usize].name == tables::REPLACEMENTS => {
                    ends.iter().for_each(|end| add(way, *end));
                }
                _ => add(way, node.behind()),
            }
        }
        if let Some(to) = tables.branches.get(&node.place) {
            add(Way::Taken, *to);
            if node.to.is_some() {
                add(Way::Next, node.behind());
            }
        }
        for fixup in tables.fixups.get(&node.place).into_iter().flatten() {
            add(Way::Fault(fixup.kind), fixup.to);
        }
        for one in tables.replacements.get(&node.place).into_iter().flatten() {
            add(Way::Replaced, one.code.unwrap_or(one.behind));
        }
    }

    fn link(&mut self) {
        for edge in &mut self.edges {
            edge.number = self.starts.get(&edge.to).copied().unwrap_or(NONE);
        }
        let trusted = std::mem::take(&mut self.trusted);
        let inside = |place: Place| {
            trusted.iter().any(|(start, size)| {
                start.0 == place.0 && (start.1..start.1.saturating_add(*size)).contains(&place.1)
            })
        };
        // What leads into trusted code is as good as a return.
        if !trusted.is_empty() {
            for node in &mut self.nodes {
                let edges = &mut self.edges[node.edges.0 as usize..node.edges.1 as usize];
                let mut kept = node.edges.0;
                for number in 0..edges.len() {
                    if !inside(edges[number].to) {
                        edges.swap(number, (kept - node.edges.0) as usize);
                        kept += 1;
                    }
                }
                node.edges.1 = kept;
            }
        }
        self.trusted = trusted;
    }

    /// Adds the functions that nothing leads to. Those that another one jumps to come last, since they may be
    /// parts of it.
    fn complete(&mut self, elf: &Elf) {
        let mut reached = self.reach(self.roots.iter().copied());
        let entered: FxHashSet<Number> = self
            .edges
            .iter()
            .filter(|edge| edge.way != Way::Next && edge.way != Way::Return)
            .map(|edge| edge.number)
            .collect();
        for jumped_to in [false, true] {
            for function in &elf.functions {
                let Some(number) = self.at(function.place) else { continue };
                if !reached[number as usize] && (jumped_to || !entered.contains(&number)) {
                    self.roots.insert(number);
                    self.reach_from(number, &mut reached);
                }
            }
        }
    }

    fn reach(&self, from: impl Iterator<Item = Number>) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        from.for_each(|number| self.reach_from(number, &mut reached));
        reached
    }

    fn reach_from(&self, from: Number, reached: &mut [bool]) {
        let mut open = vec![from];
        while let Some(number) = open.pop() {
            if std::mem::replace(&mut reached[number as usize], true) {
                continue;
            }
            open.extend(
                self.ways(number).map(|way| way.1).filter(|to| *to != NONE && !reached[*to as usize]),
            );
        }
    }

    /// Finds the functions from which no way leads to a return. Only candidates are looked at: those that call
    /// something that never returns.
    fn find_endless(&mut self, elf: &Elf) {
        loop {
            let found: Vec<Number> = self
                .roots
                .iter()
                .copied()
                .filter(|root| !self.endless.contains(root) && !self.returns(elf, *root))
                .collect();
            if found.is_empty() {
                return;
            }
            self.endless.extend(found);
        }
    }

    fn returns(&self, elf: &Elf, root: Number) -> bool {
        let (mut seen, mut open) = (FxHashSet::default(), vec![root]);
        while let Some(number) = open.pop() {
            if number == NONE {
                return true;
            }
            if !seen.insert(number) || (number != root && self.endless.contains(&number)) {
                continue;
            }
            let node = &self.nodes[number as usize];
            if let Some(Dest::Import(import)) = node.to.filter(|_| node.calls())
                && tables::no_return(elf.import(import))
            {
                continue;
            }
            let leaves = match node.insn.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => true,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => match node.to {
                    Some(Dest::Import(import)) => !tables::no_return(elf.import(import)),
                    Some(Dest::Code(to)) => self.at(to).is_none(),
                    None => true,
                },
                _ => false,
            };
            if leaves {
                return true;
            }
            open.extend(self.ways(number).map(|way| way.1));
        }
        false
    }

    /// The instructions that can be reached.
    pub fn living(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().zip(&self.live).filter(|(_, live)| **live).map(|(node, _)| node)
    }

    /// Pairs of instructions that can be reached and overlap.
    pub fn overlaps(&self) -> Vec<(Place, Place)> {
        let mut live: Vec<&Node> = self.living().collect();
        live.sort_unstable_by_key(|node| node.place);
        let pairs = live
            .windows(2)
            .filter(|pair| pair[0].behind() > pair[1].place && pair[0].place.0 == pair[1].place.0);
        pairs.map(|pair| (pair[0].place, pair[1].place)).collect()
    }
}

/// Whether guarding has added the code at a place.
fn guarding(elf: &Elf, place: Place) -> bool {
    let section = elf.sections.get(place.0 as usize);
    section.is_some_and(|section| section.exec() && crate::mode::mode(&section.name) != Mode::Own)
}

/// Places in code to which data points, beside the kernel's tables.
fn pointers(elf: &Elf) -> BTreeSet<Place> {
    let data = elf
        .sections
        .iter()
        .filter(|section| section.alloc() && !section.exec() && !tables::is_table(section));
    let places = data.flat_map(|section| &section.relocs).filter_map(|reloc| reloc.place());
    places.filter(|place| elf.sections[place.0 as usize].exec()).collect()
}

/// Where a direct branch leads.
fn dest(elf: &Elf, place: Place, insn: &Instruction) -> Option<Dest> {
    let near = (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::NearBranch64);
    if !near || matches!(insn.code(), Code::INVALID) {
        return None;
    }
    let end = place.1 + insn.len() as u64;
    let relocs = elf.sections[place.0 as usize].relocs_in(place.1, end);
    Some(match relocs.first() {
        None => Dest::Code((place.0, insn.near_branch64())),
        Some(reloc) => match reloc.target {
            Target::In(section) => Dest::Code((section, reloc.addend.wrapping_add(bias(reloc, end)) as u64)),
            Target::Import(import) => Dest::Import(import),
        },
    })
}

/// The order in which control comes to instructions, as far as there are no loops.
pub fn ranks(graph: &Graph) -> Vec<u32> {
    let (mut ranks, mut last) = (vec![0; graph.nodes.len()], u32::MAX - 1);
    let mut seen = vec![false; graph.nodes.len()];
    for root in &graph.roots {
        // An instruction, and how many of its ways were followed.
        let mut path: Vec<(Number, usize)> = vec![(*root, 0)];
        while let Some((number, which)) = path.last_mut() {
            let (number, next) = (*number, *which);
            *which += 1;
            if next == 0 && std::mem::replace(&mut seen[number as usize], true) {
                path.pop();
                continue;
            }
            match graph.ways(number).nth(next) {
                Some((_, to)) if to != NONE && !seen[to as usize] => path.push((to, 0)),
                Some(_) => {}
                None => {
                    ranks[number as usize] = last;
                    last -= 1;
                    path.pop();
                }
            }
        }
    }
    ranks
}

/// Which instructions begin blocks.
pub fn leaders(graph: &Graph) -> Vec<bool> {
    let mut leads = vec![false; graph.nodes.len()];
    let mut seen: FxHashSet<Number> = FxHashSet::default();
    for number in (0..graph.nodes.len() as Number).filter(|number| graph.live[*number as usize]) {
        for (way, to) in graph.ways(number).filter(|way| way.1 != NONE) {
            if !seen.insert(to) || !matches!(way, Way::Next | Way::Return) {
                leads[to as usize] = true;
            }
        }
    }
    graph.roots.iter().for_each(|root| leads[*root as usize] = true);
    leads
}
