//! Registers and the stack frame at one place of a function.

use crate::value::{Kind, Set, Val};

/// Most stack slots that are followed.
const MAX_SLOTS: usize = 160;
/// Bytes of a slot.
const SLOT: i32 = 8;

/// Registers and the stack frame.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// By hardware number.
    pub regs: [Val; 16],
    /// By offset from the stack pointer at the entry; sorted. What is missing comes from no argument, but for `blurred`.
    slots: Vec<(i32, Val)>,
    /// The arguments from whose memory any slot may have something.
    blurred: Set,
    /// The arguments that were freed on every way here.
    pub freed: Set,
}

impl State {
    /// The state at a function's entry.
    pub fn entry() -> State {
        State { regs: [Val::TOP; 16], slots: Vec::new(), blurred: 0, freed: 0 }
    }

    /// What eight bytes of the frame hold.
    pub fn load(&self, offset: i32) -> Val {
        match self.slots.binary_search_by_key(&offset, |(place, _)| *place) {
            Ok(index) => {
                let value = self.slots[index].1;
                Val { deep: value.deep | self.blurred, ..value }
            }
            Err(_) => {
                // A word across two slots may hold parts of both.
                let around = self.slots.iter().filter(|(place, _)| (place - offset).abs() < SLOT);
                let masks = around.fold(self.blurred, |all, (_, value)| all | value.deep | value.pointers());
                Val { deep: masks, ..Val::TOP }
            }
        }
    }

    /// Stores to the frame.
    pub fn store(&mut self, offset: i32, size: i32, value: Val) {
        let whole = size == SLOT;
        self.slots.retain(|(place, _)| {
            let apart = *place >= offset.saturating_add(size) || offset >= place.saturating_add(SLOT);
            apart || (!whole && size < SLOT)
        });
        let at = match whole {
            true => offset,
            false => {
                return self.blur_range(offset, offset.saturating_add(size), value.deep | value.pointers());
            }
        };
        if value.direct | value.deep == 0
            && !value.frame
            && !matches!(value.kind, Kind::Const(_) | Kind::Fresh(_))
            && value.ty == 0
        {
            return;
        }
        match self.slots.binary_search_by_key(&at, |(place, _)| *place) {
            Ok(index) => self.slots[index].1 = value,
            Err(index) if self.slots.len() < MAX_SLOTS => self.slots.insert(index, (at, value)),
            Err(_) => self.blurred |= value.deep | value.pointers(),
        }
    }

    /// Something may have been written to a part of the frame.
    pub fn blur_range(&mut self, low: i32, high: i32, masks: Set) {
        for (place, value) in &mut self.slots {
            if *place < high && low < place.saturating_add(SLOT) {
                *value = value.join(Val { deep: masks, ..Val::TOP });
            }
        }
        self.blurred |= masks;
    }

    /// The values in the frame from an offset on.
    pub fn values_from(&self, low: i32) -> impl Iterator<Item = Val> + '_ {
        let blurred = Val { deep: self.blurred, ..Val::TOP };
        let stored =
            self.slots.iter().filter(move |(place, _)| *place >= low && *place < 0).map(|(_, value)| *value);
        stored.chain((self.blurred != 0).then_some(blurred))
    }

    /// Takes an argument for NULL wherever it is held.
    pub fn is_null(&mut self, arg: usize) {
        self.freed |= 1 << arg;
        let values = self.regs.iter_mut().chain(self.slots.iter_mut().map(|(_, value)| value));
        for value in values {
            if value.exact() == Some(arg) {
                *value = Val::number(0);
            }
        }
    }

    /// Adds what holds on another way to the same place. Returns whether that changed anything.
    pub fn join(&mut self, other: &State) -> bool {
        let mut changed = false;
        for (own, other) in self.regs.iter_mut().zip(&other.regs) {
            let joined = own.join(*other);
            changed |= joined != *own;
            *own = joined;
        }
        let mut slots = Vec::with_capacity(self.slots.len());
        let (mut a, mut b) = (self.slots.iter().peekable(), other.slots.iter().peekable());
        loop {
            let next = match (a.peek(), b.peek()) {
                (Some((x, v)), Some((y, w))) if x == y => {
                    let joined = (*x, v.join(*w));
                    a.next();
                    b.next();
                    joined
                }
                (Some((x, v)), y) if y.is_none_or(|(y, _)| x < y) => {
                    let joined = (*x, v.join(Val::TOP));
                    a.next();
                    joined
                }
                (_, Some((y, w))) => {
                    let joined = (*y, w.join(Val::TOP));
                    b.next();
                    joined
                }
                _ => break,
            };
            slots.push(next);
        }
        changed |= slots != self.slots;
        self.slots = slots;
        let (blurred, freed) = (self.blurred | other.blurred, self.freed & other.freed);
        changed |= (blurred, freed) != (self.blurred, self.freed);
        (self.blurred, self.freed) = (blurred, freed);
        changed
    }
}
