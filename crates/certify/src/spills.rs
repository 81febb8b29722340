//! Registers of callers on the stack: the runtime refuses stores to them, if the description says where they are.

use crate::graph::{Node, Number};
use crate::mode::Mode;
use crate::module::Module;
use crate::state::{KEPT, RSP, State};
use crate::tables;
use crate::value::{Atom, Val};
use crate::walk::Walk;
use guardrail_abi::{self as abi, layout};
use iced_x86::{Code, FlowControl};

const RBP: usize = 5;
/// Bytes of a word of the stack.
const WORD: i64 = 8;
/// Most instructions between a question to the runtime and where its registers are restored.
const FAR: usize = 256;

impl Module<'_> {
    /// Reads what the description says of frames.
    pub fn read_texts(&mut self, faults: &mut Vec<String>) {
        use layout::{module, text as row};
        let Some(rows) = self.rows(module::TEXTS, module::N_TEXTS, row::BYTES) else {
            return faults.push("a table of its description lies elsewhere".into());
        };
        for at in rows {
            let (Some((index, end)), Some(description)) = (self.pointer(at + row::END), self.section())
            else {
                faults.push("its description has frames of what is no code".into());
                continue;
            };
            let code = &self.elf.sections[index as usize];
            let spills = self.spills(at);
            let whole = code.exec() && end == code.size && description.long(at + row::LEN) == code.size;
            if !whole || spills.is_none() || self.texts.insert(index, spills.unwrap_or_default()).is_some() {
                faults.push(format!("its description has impossible frames of {}", code.name));
            }
        }
    }

    /// The rows of one section, in their order; an empty option for thunks.
    fn spills(&self, at: usize) -> Option<Option<Vec<(u32, u32)>>> {
        use layout::{spill, text as row};
        let section = self.section()?;
        if section.reloc_at((at + row::SPILLS) as u64).is_none() {
            return (section.long(at + row::SPILLS) == 0).then_some(None);
        }
        let rows = self.rows(at + row::SPILLS, at + row::N_SPILLS, spill::BYTES)?;
        let rows =
            rows.into_iter().map(|row| (section.word(row + spill::AT), section.word(row + spill::WORDS)));
        let rows: Vec<(u32, u32)> = rows.collect();
        rows.is_sorted_by_key(|row| row.0).then_some(Some(rows))
    }
}

impl Walk<'_, '_> {
    /// Where something is called: each word that holds a register of the caller must be in the description.
    /// `asks`: what is called is a thunk that asks the runtime.
    pub fn spilled(&mut self, at: Number, node: &Node, state: &State, asks: bool) {
        // The kernel copies replacements to where they belong.
        if !self.last || self.module.elf.sections[node.place.0 as usize].name == tables::REPLACEMENTS {
            return;
        }
        let rows = self.module.texts.get(&node.place.0);
        match (self.module.mode(at), rows) {
            (Mode::Own, Some(Some(rows))) => {
                let offset = node.behind().1.saturating_sub(1);
                let after = rows.partition_point(|row| u64::from(row.0) <= offset);
                let words = after.checked_sub(1).map_or(0, |row| rows[row].1);
                let low = state.sp().plus(if asks { self.saved(node) } else { 0 });
                if !self.covers(words, low, state) {
                    self.fault(at, "its description misses a register that is saved on the stack");
                }
            }
            // What life calls leaves nothing behind.
            (Mode::Life, _) | (Mode::Call | Mode::Entry | Mode::Ask, Some(None)) => {}
            _ => self.fault(at, "its description lacks the frames of this code"),
        }
    }

    /// Whether words are all that hold registers of the caller, from a place of the stack on.
    fn covers(&self, words: u32, low: Val, state: &State) -> bool {
        let by_rbp = words & abi::SPILL_BY_RBP != 0;
        let (rbp, top) = (state.regs[RBP], Atom::Init(RSP));
        let is_end = |value: Val| self.values.single(value) == Some(top) && value.off == WORD;
        let is_top = |slot: Val| self.values.single(slot) == Some(top);
        // The first of several is the one by which a frame that is aligned is left.
        let leaves = |slot: &Val| {
            let others = state.slots.iter().filter(|(_, value)| is_end(*value));
            !is_top(*slot)
                && others.into_iter().all(|(other, _)| other.base != slot.base || other.off <= slot.off)
        };
        let is_kept = |slot: &Val, value: &Val| match self.values.single(*value) {
            Some(Atom::Init(RSP)) => value.off == WORD && leaves(slot),
            Some(Atom::Init(register)) => value.off == 0 && KEPT.contains(&register),
            _ => false,
        };
        let has = |far: i64| {
            let word =
                u32::try_from(far / WORD).ok().filter(|word| far % WORD == 0 && *word < abi::SPILL_WORDS);
            word.is_some_and(|word| words >> word & 1 != 0)
        };
        let held = state.slots.iter().filter(|(slot, value)| {
            let scratch = slot.base == low.base && slot.off < low.off;
            is_kept(slot, value) && !scratch
        });
        held.into_iter().all(|(slot, _)| match is_top(*slot) {
            true if by_rbp => words & abi::SPILL_TOP != 0 && slot.off == -WORD,
            true => has(-WORD - slot.off),
            false => by_rbp && slot.base == rbp.base && has(rbp.off.wrapping_sub(slot.off)),
        })
    }

    /// Bytes that code around a question to the runtime has pushed, and pops before the instruction that it asks for.
    fn saved(&self, node: &Node) -> i64 {
        let graph = &self.module.graph;
        let mut place = node.behind();
        let note = graph.at(place).map(|number| &graph.nodes[number as usize]);
        let site = note.filter(|note| note.insn.code() == Code::Test_EAX_imm32).map(|note| {
            let far = i64::from(note.insn.immediate32() as i32);
            (note.place.0, note.behind().1.wrapping_add_signed(far))
        });
        for _ in 0..FAR {
            if Some(place) == site {
                return 0;
            }
            let Some(next) = graph.at(place).map(|number| &graph.nodes[number as usize]) else { return 0 };
            let pops = |node: &&Node| matches!(node.insn.code(), Code::Pop_r64 | Code::Popfq);
            if pops(&next) {
                let mut count = 0;
                let mut at = Some(next);
                while let Some(popped) = at.filter(pops) {
                    count += WORD;
                    at = graph.at(popped.behind()).map(|number| &graph.nodes[number as usize]);
                }
                return count;
            }
            // The first is the note of what is asked for. Where control goes elsewhere, nothing is restored any more.
            if !matches!(next.insn.flow_control(), FlowControl::Next | FlowControl::Call) {
                return 0;
            }
            place = next.behind();
        }
        0
    }
}
