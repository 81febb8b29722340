//! Stores that one look at the table decides: stores of one block, relative to the same registers, which
//! nothing changes between them.
//!
//! A look covers only the slots that are stored to, so a group passes just if each of its stores would.
//! One store of 8 bytes makes known which slots these are: it lies at a multiple of 8, or else the check
//! fails.
//! A group without such a store takes the base itself for a multiple of 8, as pointers to structures are. The
//! check fails where it is not.
//! Where a check fails, the runtime is asked about each store by itself.

use crate::engine::code::writes;
use crate::engine::emit::Operand;
use crate::engine::flow::Flow;
use iced_x86::{InstructionInfo, Register};
use std::collections::BTreeSet;

/// Bytes of a slot.
const SLOT: i64 = guardrail_abi::SLOT as i64;
/// Slots from the first one on whose tags a compare can reach by an 8-bit displacement.
const REACH: i64 = 120;

/// A store that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// The number of its instruction in the section.
    pub number: u32,
    /// The address that it writes.
    pub operand: Operand,
    /// Bytes that it writes.
    pub size: u32,
}

/// How a check finds out that an address lies where it should in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// The address may lie anywhere.
    Any,
    /// The address has to be a multiple of 2 to this power. Otherwise the address of its tag becomes invalid,
    /// and the check faults.
    Rotate(u8),
    /// The address has to be a multiple of 8, which the check tests.
    Test,
}

/// What one look at the table decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The address whose tag is the first one.
    pub operand: Operand,
    /// How that address has to be aligned.
    pub align: Align,
    /// Tags that are compared at once: from which one on, and how many (1, 2 or 4).
    pub compares: Vec<(u8, u8)>,
    /// The stores that the look decides, in their order.
    pub stores: Vec<Store>,
}

/// Stores whose check is yet to be made, by what their addresses are relative to.
#[derive(Debug, Default)]
pub struct Groups {
    block: u32,
    open: Vec<Vec<Store>>,
    done: Vec<Vec<Store>>,
}

impl Groups {
    /// Adds a store; call this before [`passed`](Self::passed) for its instruction.
    pub fn store(&mut self, store: Store) {
        let of = |operand: &Operand| (operand.base, operand.index, operand.scale);
        let own = store.operand;
        let together = own.reloc.is_none() && !matches!(own.base, Register::None | Register::RIP);
        let group = self
            .open
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| together && of(&first.operand) == of(&own)));
        match group {
            Some(group) => group.push(store),
            None if together => self.open.push(vec![store]),
            None => self.done.push(vec![store]),
        }
    }

    /// The pass reaches an instruction: groups do not go on from one block to the next.
    pub fn reached(&mut self, flow: &Flow, section: usize, number: u32) {
        let block = flow.block(section, number);
        if block != self.block {
            self.block = block;
            self.end();
        }
    }

    /// Something else asks the runtime here, so no group goes on.
    pub fn end(&mut self) {
        self.done.append(&mut self.open);
    }

    /// The pass has looked at an instruction: groups end whose registers it changes.
    pub fn passed(&mut self, info: &InstructionInfo) {
        for used in info.used_registers() {
            if !writes(used.access()) {
                continue;
            }
            let changed = used.register().full_register();
            let uses = |group: &Vec<Store>| group.first().is_some_and(|store| store.operand.uses(changed));
            self.done.extend(self.open.extract_if(.., |group| uses(group)));
        }
    }

    /// The looks that check all groups.
    pub fn looks(mut self) -> Vec<Look> {
        self.done.append(&mut self.open);
        self.done.into_iter().flat_map(looks).collect()
    }
}

/// What a store's address has to be a multiple of, in bytes, so that a look decides it: its size, at most a
/// slot's.
fn natural(size: u32) -> i64 {
    i64::from(size.next_power_of_two()).min(SLOT)
}

/// How many slots a store covers.
fn slots(size: u32) -> i64 {
    i64::from(size.div_ceil(SLOT as u32))
}

/// The look that decides one store by itself.
pub fn single(store: Store) -> Look {
    let align = match natural(store.size) {
        1 => Align::Any,
        bytes => Align::Rotate(bytes.trailing_zeros() as u8),
    };
    let slots = (0..slots(store.size)).collect();
    Look { operand: store.operand, align, compares: compares(&slots), stores: vec![store] }
}

/// The looks that decide a group.
fn looks(mut rest: Vec<Store>) -> Vec<Look> {
    let mut looks = Vec::new();
    while let Some(first) = rest.first().copied() {
        let largest = rest.iter().map(|store| natural(store.size)).max().unwrap_or(1);
        // Elements of an array may be anywhere in their slots.
        let index = first.operand.index != Register::None && first.operand.scale != SLOT as u32;
        let phase = match largest {
            SLOT => rest
                .iter()
                .find(|store| natural(store.size) == SLOT)
                .map(|store| store.operand.displacement.rem_euclid(SLOT)),
            _ if index => None,
            _ => Some(0),
        };
        let Some(phase) = phase else {
            looks.extend(rest.drain(..).map(single));
            break;
        };
        let fits = |store: &Store| {
            let from = store.operand.displacement.wrapping_sub(phase);
            from.rem_euclid(natural(store.size)) == 0
        };
        let lowest = rest.iter().filter(|store| fits(store)).map(|store| store.operand.displacement).min();
        let base = lowest.map(|lowest| lowest.wrapping_sub((lowest.wrapping_sub(phase)).rem_euclid(SLOT)));
        let slots = |store: &Store| {
            let from = store.operand.displacement.wrapping_sub(base.unwrap_or(0)).div_euclid(SLOT);
            from..from + self::slots(store.size)
        };
        let stores: Vec<Store> =
            rest.extract_if(.., |store| fits(store) && (0..REACH).contains(&slots(store).start)).collect();
        match (stores.as_slice(), base) {
            ([], _) | (_, None) => {
                looks.extend(rest.drain(..).map(single));
                break;
            }
            ([store], _) => looks.push(single(*store)),
            ([store, ..], Some(base)) => {
                let operand = Operand { displacement: base, ..store.operand };
                let align = if largest == SLOT {
                    Align::Rotate(guardrail_abi::SLOT_SHIFT as u8)
                } else {
                    Align::Test
                };
                let slots = stores.iter().flat_map(slots).collect();
                looks.push(Look { operand, align, compares: compares(&slots), stores });
            }
        }
    }
    looks
}

/// The fewest comparisons of 1, 2 or 4 tags that look at these slots and at no others.
fn compares(slots: &BTreeSet<i64>) -> Vec<(u8, u8)> {
    let mut compares = Vec::new();
    let mut slots = slots.iter().copied().peekable();
    while let Some(start) = slots.next() {
        let mut end = start + 1;
        while slots.next_if_eq(&end).is_some() {
            end += 1;
        }
        let width = match end - start {
            4.. => 4,
            2.. => 2,
            _ => 1,
        };
        let mut at = start;
        while at < end {
            // The last comparison may look at some of the slots again.
            compares.push((at.min(end - width) as u8, width as u8));
            at += width;
        }
    }
    compares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(number: u32, displacement: i64, size: u32) -> Store {
        Store { number, operand: Operand { displacement, ..Operand::at(Register::RDI) }, size }
    }

    fn shown(stores: &[(i64, u32)]) -> String {
        let stores = (0..).zip(stores).map(|(number, (at, size))| store(number, *at, *size)).collect();
        let looks = looks(stores).into_iter().map(|look| {
            let numbers: Vec<u32> = look.stores.iter().map(|store| store.number).collect();
            format!("{numbers:?}: {:+} {:?} {:?}", look.operand.displacement, look.align, look.compares)
        });
        looks.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn one_store_is_looked_at_by_itself() {
        assert_eq!(shown(&[(5, 1)]), "[0]: +5 Any [(0, 1)]");
        assert_eq!(shown(&[(4, 4)]), "[0]: +4 Rotate(2) [(0, 1)]");
        assert_eq!(shown(&[(4, 16)]), "[0]: +4 Rotate(3) [(0, 2)]");
        assert_eq!(shown(&[(0, 64)]), "[0]: +0 Rotate(3) [(0, 4), (4, 4)]");
    }

    #[test]
    fn only_slots_that_are_stored_to_are_looked_at() {
        // The store of 8 bytes shows that the base is 4 more than a multiple of 8.
        assert_eq!(
            shown(&[(12, 8), (28, 4), (32, 4), (20, 1)]),
            "[0, 1, 2, 3]: +12 Rotate(3) [(0, 2), (1, 2)]"
        );
        assert_eq!(shown(&[(8, 8), (0, 4), (40, 2)]), "[0, 1, 2]: +0 Rotate(3) [(0, 2), (5, 1)]");
        assert_eq!(shown(&[(4, 4), (8, 4)]), "[0, 1]: +0 Test [(0, 2)]");
        assert_eq!(
            shown(&[(-8, 8), (0, 8), (8, 8), (16, 8), (24, 8)]),
            "[0, 1, 2, 3, 4]: -8 Rotate(3) [(0, 4), (1, 4)]"
        );
    }

    #[test]
    fn what_does_not_fit_stays_by_itself() {
        assert_eq!(shown(&[(0, 8), (10, 4)]), "[0]: +0 Rotate(3) [(0, 1)]\n[1]: +10 Rotate(2) [(0, 1)]");
        assert_eq!(shown(&[(0, 8), (4096, 8)]), "[0]: +0 Rotate(3) [(0, 1)]\n[1]: +4096 Rotate(3) [(0, 1)]");
        assert_eq!(shown(&[(i64::MIN, 8), (i64::MAX - 7, 8)]).lines().count(), 2);
    }

    #[test]
    fn entries_are_compared_in_few_steps() {
        let compares = |slots: &[i64]| compares(&slots.iter().copied().collect());
        assert_eq!(compares(&[0, 1, 2, 5, 7, 8]), [(0, 2), (1, 2), (5, 1), (7, 2)]);
        assert_eq!(compares(&[3, 4, 5, 6, 7, 8, 9]), [(3, 4), (6, 4)]);
    }
}
