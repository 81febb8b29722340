//! What is known at a place in the code: values of registers and of the stack, and what checks have shown.

use crate::value::{Atom, Base, Val, Values};

/// Names of registers by number.
pub const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];
/// Numbers of registers.
pub const RAX: u8 = 0;
pub const RCX: u8 = 1;
pub const RDX: u8 = 2;
pub const RSP: u8 = 4;
pub const RSI: u8 = 6;
pub const RDI: u8 = 7;
/// Registers that a function must leave as they were: RBX, RSP, RBP, R12 to R15.
pub const KEPT: [u8; 7] = [3, RSP, 5, 12, 13, 14, 15];
/// Registers that a call may change.
pub const LOST: [u8; 9] = [RAX, RCX, RDX, RSI, RDI, 8, 9, 10, 11];
/// Registers of arguments, in their order.
pub const ARGUMENTS: [u8; 6] = [RDI, RSI, RDX, RCX, 8, 9];

/// What the flags say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flags {
    /// Nothing that is followed.
    #[default]
    Unknown,
    /// How so many tags at an address compare with a number.
    Tags(Val, u8, u32),
    /// Whether the kernel holds nothing on any stack.
    Frames,
    /// Whether the lowest three bits are all 0.
    Low(Val),
    /// The sign of a value of 8 bytes, and whether it is 0.
    Sign(Val),
    /// The sign of the lower half of a value, and whether it is 0.
    Half(Val),
}

/// What was shown on every way to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fact {
    /// The address is a multiple of 8.
    Aligned(Val),
    /// The address is not in the kernel's half, or the runtime was asked about so many bytes there.
    User(Val, i64),
    /// The domain may call this address.
    Call(Val),
    /// The range of so many elements, of 2 to this power bytes, at an address is writable.
    Range(Val, Val, u8),
    /// So many bytes of a per-CPU variable are writable.
    PerCpu(Val, u32),
    /// A packet of the domain begins here.
    Packet(Val),
    /// The lower half of a value is 0.
    Zero(Val),
    /// A thunk has performed the action in this row.
    Done(u32),
    /// A thunk has asked the runtime.
    Asked,
    /// A thunk has called its function.
    Called,
    /// A thunk's entry is noted.
    Entered,
    /// A thunk's entry is over, or was refused.
    Closed,
}

/// Bytes from a base that are writable, from the first to before the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes {
    pub base: Base,
    pub from: i64,
    pub to: i64,
}

/// What is known at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The registers by number.
    pub regs: [Val; 16],
    pub flags: Flags,
    /// What words of the stack hold, by address.
    pub slots: Vec<(Val, Val)>,
    /// What was shown, in order.
    pub facts: Vec<Fact>,
    /// Which bytes are writable, in order; ranges of one base do not touch.
    pub writable: Vec<Bytes>,
}

impl State {
    /// Where a function begins.
    pub fn entry(values: &mut Values) -> State {
        let mut regs = [Val::default(); 16];
        for (number, register) in (0..).zip(&mut regs) {
            *register = values.atom(Atom::Init(number));
        }
        let back = values.atom(Atom::Return);
        let slots = vec![(regs[usize::from(RSP)], back)];
        State { regs, flags: Flags::Unknown, slots, facts: Vec::new(), writable: Vec::new() }
    }

    /// The stack pointer.
    pub fn sp(&self) -> Val {
        self.regs[usize::from(RSP)]
    }

    /// Whether something was shown.
    pub fn shows(&self, fact: Fact) -> bool {
        self.facts.binary_search(&fact).is_ok()
    }

    /// Notes what was shown.
    pub fn show(&mut self, fact: Fact) {
        if let Err(at) = self.facts.binary_search(&fact) {
            self.facts.insert(at, fact);
        }
    }

    /// Notes that bytes are writable.
    pub fn show_writable(&mut self, address: Val, bytes: i64) {
        let Some(mut to) = address.off.checked_add(bytes) else { return };
        let (base, mut from) = (address.base, address.off);
        self.writable.retain(|range| {
            let touches = range.base == base && range.from <= to && range.to >= from;
            if touches {
                from = from.min(range.from);
                to = to.max(range.to);
            }
            !touches
        });
        let at = self.writable.partition_point(|range| (range.base, range.from) < (base, from));
        self.writable.insert(at, Bytes { base, from, to });
    }

    /// Whether all these bytes were shown to be writable.
    pub fn writes(&self, address: Val, bytes: i64) -> bool {
        let Some(to) = address.off.checked_add(bytes) else { return false };
        self.writable
            .iter()
            .any(|range| range.base == address.base && range.from <= address.off && to <= range.to)
    }

    /// Forgets what a call may have changed, but for what a thunk has done.
    pub fn forget_rights(&mut self) {
        self.writable.clear();
        self.facts.retain(|fact| {
            matches!(
                fact,
                Fact::Done(_) | Fact::Asked | Fact::Called | Fact::Entered | Fact::Closed | Fact::Zero(_)
            )
        });
    }

    /// What a word of the stack holds.
    pub fn slot(&self, address: Val) -> Option<Val> {
        self.slots.iter().find(|slot| slot.0 == address).map(|slot| slot.1)
    }

    /// Forgets the words of the stack that a store of so many bytes overlaps.
    pub fn overwrite(&mut self, address: Val, bytes: i64) {
        self.slots.retain(|(slot, _)| {
            slot.base != address.base
                || slot.off.saturating_add(8) <= address.off
                || address.off.saturating_add(bytes) <= slot.off
        });
    }

    /// Keeps what another way to the block at `place` knows as well. `mixed` gets the registers that differ.
    pub fn join(&mut self, other: &State, values: &mut Values, place: u32, mixed: &mut u16) {
        let mut callable = Vec::new();
        for number in 0..16u8 {
            let (own, others) = (self.regs[usize::from(number)], other.regs[usize::from(number)]);
            if own != others {
                *mixed |= 1 << number;
                let value = values.atom(Atom::Phi(place, number));
                self.regs[usize::from(number)] = value;
                // Whichever it is, it may be called.
                if self.shows(Fact::Call(own)) && other.shows(Fact::Call(others)) {
                    callable.push(Fact::Call(value));
                }
            }
        }
        if self.flags != other.flags {
            self.flags = Flags::Unknown;
        }
        self.slots.retain(|slot| other.slot(slot.0) == Some(slot.1));
        self.facts.retain(|fact| other.shows(*fact));
        callable.into_iter().for_each(|fact| self.show(fact));
        self.writable = self.both(other);
    }

    /// Makes registers depend on the way to the block at `place`.
    pub fn mix(&mut self, values: &mut Values, place: u32, mixed: u16) {
        for number in (0..16u8).filter(|number| mixed & 1 << number != 0) {
            let value = values.atom(Atom::Phi(place, number));
            if self.shows(Fact::Call(self.regs[usize::from(number)])) {
                self.show(Fact::Call(value));
            }
            self.regs[usize::from(number)] = value;
        }
    }

    /// The bytes that are writable by both.
    fn both(&self, other: &State) -> Vec<Bytes> {
        if self.writable == other.writable {
            return self.writable.clone();
        }
        let mut both = Vec::new();
        for own in &self.writable {
            for range in other.writable.iter().filter(|range| range.base == own.base) {
                let (from, to) = (own.from.max(range.from), own.to.min(range.to));
                if from < to {
                    both.push(Bytes { base: own.base, from, to });
                }
            }
        }
        both.sort_unstable();
        both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(values: &mut Values) -> State {
        values.clear();
        State::entry(values)
    }

    #[test]
    fn ranges_grow_together_and_shrink_to_what_both_know() {
        let mut values = Values::default();
        let mut one = state(&mut values);
        let at = one.regs[7];
        one.show_writable(at, 8);
        one.show_writable(at.plus(16), 4);
        assert!(one.writes(at, 8) && one.writes(at.plus(18), 2));
        assert!(!one.writes(at, 9) && !one.writes(at.plus(8), 1) && !one.writes(one.regs[6], 1));
        let mut other = one.clone();
        one.show_writable(at.plus(8), 8);
        assert!(one.writes(at, 20));
        other.show_writable(at.plus(8), 2);
        one.join(&other, &mut values, 1, &mut 0);
        assert!(one.writes(at, 10) && one.writes(at.plus(16), 4) && !one.writes(at, 11));
        one.forget_rights();
        assert!(!one.writes(at, 1));
    }

    #[test]
    fn what_differs_depends_on_the_way() {
        let mut values = Values::default();
        let mut one = state(&mut values);
        let mut other = one.clone();
        other.regs[3] = Val::number(1);
        other.slots.clear();
        let mut mixed = 0;
        one.join(&other, &mut values, 9, &mut mixed);
        assert_eq!((mixed, one.regs[3]), (1 << 3, values.atom(Atom::Phi(9, 3))));
        assert!(one.slots.is_empty());
    }
}
