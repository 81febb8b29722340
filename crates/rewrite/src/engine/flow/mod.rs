//! Finds which registers and flags hold a value that is still needed, at each instruction of a module.
//!
//! Code of the kernel's own compiler keeps to the calling convention of the System V ABI. `-pg` rules out
//! that it does otherwise between functions of a file.
//! Functions in assembly have conventions of their own.
//! Where a call is followed by a use of what an ordinary call would destroy, its callee is taken for one of
//! those ([`Flow::own`]).
//! A callee that uses more than arguments is taken for one as well. Before the calls of such functions
//! everything is needed.
//!
//! The analysis therefore asks two questions.
//! One is what may be needed: each call may use all registers for arguments.
//! The other is what is surely used, by an instruction that reads it.

mod set;
mod spills;
mod steps;

pub use set::Set;
pub use spills::Words;
use steps::{Own, Step, Steps, Sure};

use crate::engine::code::{At, Code};
use crate::engine::object::{Object, reloc};
use crate::engine::tables::{EX_ROW, JUMP_ROW, TRACER, named};
use crate::error::{Result, refused};
use iced_x86::FlowControl;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Most passes over all code; the largest modules take a few dozen.
const ROUNDS: usize = 1000;

/// What is needed at each instruction of a module.
#[derive(Clone, Debug)]
pub struct Flow {
    needed: HashMap<usize, Vec<Set>>,
    blocks: HashMap<usize, Vec<u32>>,
    /// Instructions that may fault, where the kernel then goes on elsewhere: section and instruction.
    faults: HashSet<At>,
    spills: HashMap<usize, Vec<Words>>,
    /// Functions that do not keep to the usual convention, by name, as far as their callers in this module
    /// show it.
    pub own: BTreeSet<String>,
    /// The module's own functions after whose calls registers are used that a call may change.
    /// Code that is put into them must not change more than they do.
    pub keeping: BTreeSet<String>,
}

impl Flow {
    /// Looks at all code of a module.
    pub fn of(object: &Object, codes: &[Code]) -> Result<Flow> {
        let edges = edges(object, codes);
        let (mut own, mut keeping) = (Own::default(), BTreeSet::new());
        loop {
            let steps: Vec<(usize, Vec<Step>)> = codes
                .iter()
                .map(|code| (code.section, Steps { object, codes, code, edges: &edges, own: &own }.all()))
                .collect();
            let sure = solve(&steps, |step| step.sure)?;
            let before = own.len();
            for (code, (section, steps)) in codes.iter().zip(&steps) {
                for (number, step) in (0u32..).zip(steps) {
                    let Some(callee) = &step.calls else { continue };
                    let after = sure[section].get(number as usize + 1).copied().unwrap_or_default();
                    // A function that never returns may be called last in another, with nothing behind the
                    // call.
                    let falls = step.falls && code.function_of(number) == code.function_of(number + 1);
                    let compiled = callee.at.is_some_and(|(section, at)| traced(object, codes, section, at));
                    let keeps = falls && !compiled && after.and(Set::LOST.without(Set::RESULTS)) != Set::NONE;
                    let usual = Set::ARGUMENTS.with(Set::KEPT);
                    let takes = callee
                        .at
                        .is_some_and(|(section, at)| sure[&section][at as usize].without(usual) != Set::NONE);
                    if keeps && callee.at.is_some() {
                        keeping.insert(callee.name.clone());
                    }
                    if (keeps || takes) && !callee.name.is_empty() {
                        own.names.insert(callee.name.clone());
                    } else if keeps {
                        own.places.insert((*section, number));
                    }
                }
            }
            if own.len() == before {
                let may = |step: &Step| {
                    let leaves = step.leaves.unwrap_or_default();
                    Sure { uses: step.uses, sets: step.sets, leaves, ..Sure::default() }
                };
                let needed = solve(&steps, may)?;
                let own = own.names;
                let (blocks, faults) = (blocks(object, codes, &steps), faults(object, codes));
                let spills = spills::find(object, codes, &steps);
                return Ok(Flow { needed, blocks, faults, spills, own, keeping });
            }
        }
    }

    /// The number of an instruction's block. Instructions of one block run in their order, from the first to
    /// the last or not at all.
    pub fn block(&self, section: usize, insn: u32) -> u32 {
        // Where nothing is known, each instruction has its own block.
        self.blocks.get(&section).and_then(|blocks| blocks.get(insn as usize)).copied().unwrap_or(!insn)
    }

    /// Whether the kernel goes on elsewhere when the instruction faults, as when it writes to user memory.
    pub fn may_fault(&self, section: usize, insn: u32) -> bool {
        self.faults.contains(&(section, insn))
    }

    /// The words of the frame that hold registers of the caller when an instruction is about to run.
    pub fn spills(&self, section: usize, insn: u32) -> Words {
        self.spills.get(&section).and_then(|words| words.get(insn as usize)).copied().unwrap_or_default()
    }

    /// What is needed when an instruction is about to run.
    pub fn needed(&self, section: usize, insn: u32) -> Set {
        self.needed.get(&section).and_then(|needed| needed.get(insn as usize)).copied().unwrap_or(Set::ALL)
    }
}

fn faults(object: &Object, codes: &[Code]) -> HashSet<At> {
    let of_code = codes.iter().flat_map(|code| {
        let entries = named(object, "__ex_table", code.section).into_iter();
        entries
            .filter(|(offset, _)| offset.is_multiple_of(EX_ROW))
            .filter_map(|(_, at)| Some((code.section, code.starting(at)?)))
    });
    of_code.collect()
}

/// For each instruction the number of its block, as [`Flow::block`] returns it.
fn blocks(object: &Object, codes: &[Code], steps: &[(usize, Vec<Step>)]) -> HashMap<usize, Vec<u32>> {
    let mut begins: HashMap<usize, Vec<bool>> =
        steps.iter().map(|(section, steps)| (*section, vec![false; steps.len() + 1])).collect();
    let mut begin = |section: usize, insn: u32| {
        if let Some(begins) = begins.get_mut(&section).and_then(|begins| begins.get_mut(insn as usize)) {
            *begins = true;
        }
    };
    for (code, (section, steps)) in codes.iter().zip(steps) {
        for (number, (step, insn)) in (0..).zip(steps.iter().zip(&code.insns)) {
            step.to.iter().for_each(|(section, target)| begin(*section, *target));
            let next = insn.insn.flow_control() == FlowControl::Next && step.falls;
            if !next || !step.to.is_empty() || step.leaves.is_some() {
                begin(*section, number + 1);
            }
        }
    }
    let of_section: HashMap<usize, &Code> = codes.iter().map(|code| (code.section, code)).collect();
    let mut name = |section: usize, offset: u64| {
        if let Some(insn) = of_section.get(&section).and_then(|code| code.starting(offset)) {
            begin(section, insn);
        }
    };
    for symbol in &object.symbols {
        if let Some(section) = symbol.section() {
            name(section, symbol.value);
        }
    }
    for (index, section) in object.sections.iter().enumerate() {
        let code = of_section.get(&index);
        for reloc in &section.relocs {
            let bias = match code {
                Some(code) => {
                    code.holding(reloc.offset).map_or(0, |holding| code.insns[holding as usize].bias(reloc))
                }
                // Branches end with their distance.
                None if section.exec() && reloc::relative(reloc.kind) => 4,
                None => 0,
            };
            // Tables of stack frames may name any place, which no jump reaches.
            if section.name != ".orc_unwind_ip"
                && let Some((at, offset)) = object.target(reloc.symbol, reloc.addend.wrapping_add(bias))
            {
                name(at, offset);
            }
        }
    }
    let number = |begins: &Vec<bool>| {
        let mut block = 0;
        begins
            .iter()
            .map(|begins| {
                block += u32::from(*begins);
                block
            })
            .collect()
    };
    begins.iter().map(|(section, begins)| (*section, number(begins))).collect()
}

/// Where control goes on beyond what instructions show: static branches, and faults.
fn edges(object: &Object, codes: &[Code]) -> HashMap<At, Vec<At>> {
    let mut edges: HashMap<At, Vec<At>> = HashMap::new();
    for (table, size, to) in [("__jump_table", JUMP_ROW, 4), ("__ex_table", EX_ROW, 4)] {
        // Row, then word within it: where in the code.
        let mut words: HashMap<(u64, u64), At> = HashMap::new();
        for code in codes {
            for (offset, at) in named(object, table, code.section) {
                if let Some(insn) = code.starting(at) {
                    words.insert((offset / size, offset % size), (code.section, insn));
                }
            }
        }
        for ((entry, word), from) in &words {
            if let (0, Some(to)) = (*word, words.get(&(*entry, to))) {
                let edges = edges.entry(*from).or_default();
                edges.push(*to);
                // A site that jumps now falls through when the kernel has patched it.
                if jumps(codes, *from) {
                    edges.push((from.0, from.1 + 1));
                }
            }
        }
    }
    edges
}

/// Whether the instruction is a jump without a condition.
fn jumps(codes: &[Code], (section, insn): At) -> bool {
    let insn = Code::find(codes, section).and_then(|code| code.insns.get(insn as usize));
    insn.is_some_and(|insn| insn.insn.flow_control() == FlowControl::UnconditionalBranch)
}

/// Whether the function that begins there calls the tracer first, so that it was compiled with `-pg`.
/// What then seems to be used behind its calls are variables that have no value there.
fn traced(object: &Object, codes: &[Code], section: usize, insn: u32) -> bool {
    let Some(code) = Code::find(codes, section) else { return false };
    let first = code.insns.iter().skip(insn as usize).take(2);
    first.flat_map(|insn| insn.relocs(&object.sections[section])).any(|reloc| object.name(reloc) == TRACER)
}

/// The least sets that fit all steps.
fn solve(steps: &[(usize, Vec<Step>)], of: impl Fn(&Step) -> Sure) -> Result<HashMap<usize, Vec<Set>>> {
    let mut needed: HashMap<usize, Vec<Set>> =
        steps.iter().map(|(section, steps)| (*section, vec![Set::NONE; steps.len()])).collect();
    let mut rounds = 0;
    let mut changed = true;
    while changed {
        changed = false;
        rounds += 1;
        if rounds > ROUNDS {
            return refused("its code", "it goes back and forth more often than any compiler's");
        }
        for (section, steps) in steps {
            for (number, step) in steps.iter().enumerate().rev() {
                let Sure { uses, sets, leaves: mut after, elsewhere, ends } = of(step);
                for (section, target) in &step.to {
                    let there = needed[section][*target as usize];
                    after = after.with(if elsewhere { there.and(Set::KEPT) } else { there });
                }
                let own = &needed[section];
                if step.falls && !ends {
                    after = after.with(own.get(number + 1).copied().unwrap_or(Set::ALL));
                }
                let before = after.without(sets).with(uses);
                if before != own[number] {
                    changed = true;
                    if let Some(own) = needed.get_mut(section) {
                        own[number] = before;
                    }
                }
            }
        }
    }
    Ok(needed)
}
