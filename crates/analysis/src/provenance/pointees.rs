//! The objects that pointers came from, by number.

use crate::machine::{Object, State};
use crate::value_flow::{Pointer, Reach};
use guardrail_knowledge::effect::Class;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Bits of a number that select its place; the bits above grow whenever the place is used anew.
const PLACE_BITS: u32 = 18;
const PLACES: usize = 1 << PLACE_BITS;
const GENERATIONS: u32 = (1 << (32 - PLACE_BITS)) - 1;
/// Most freed objects that are remembered.
const MAX_DEAD: usize = 1 << 13;

/// An object that pointers came from.
#[derive(Debug)]
struct Pointee {
    /// 0 where the place is not in use.
    number: u32,
    start: u64,
    end: u64,
    serial: u64,
    /// Its address was stored in an object.
    held: bool,
    /// The object as it was when it was freed; `None` while it is allocated.
    dead: Option<Box<Object>>,
}

/// An access that left the object that its pointer came from.
#[derive(Clone, Debug)]
pub enum Stray {
    /// The memory was freed and allocated again.
    Reused {
        /// The object that the pointer came from.
        old: Object,
        /// The object that is there now.
        new: Object,
    },
    /// The access is beside it.
    Beside {
        /// The object that the pointer came from.
        from: Object,
        /// The object that is accessed; `None` where none is known there.
        to: Option<Object>,
        /// The address of the first byte that is accessed outside of the object.
        at: u64,
    },
}

/// The objects by number, and by serial number of their allocation.
#[derive(Debug, Default)]
pub(super) struct Pointees {
    table: Vec<Pointee>,
    unused: Vec<u32>,
    by_serial: FxHashMap<u64, u32>,
    dead: VecDeque<u32>,
}

impl Pointees {
    fn get(&self, number: u32) -> Option<&Pointee> {
        self.table.get(number as usize % PLACES).filter(|pointee| pointee.number == number)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Pointee> {
        self.table.get_mut(number as usize % PLACES).filter(|pointee| pointee.number == number)
    }

    /// The start of an object that is allocated.
    pub(super) fn start(&self, number: u32) -> Option<u64> {
        self.get(number).filter(|pointee| pointee.dead.is_none()).map(|pointee| pointee.start)
    }

    /// The start of an object that is allocated, at the first store of its address.
    #[inline]
    pub(super) fn first_held(&mut self, pointer: Pointer) -> Option<u64> {
        let pointee = self.get_mut(pointer.from)?;
        let first = !pointee.held && pointee.dead.is_none() && pointer.value == Some(pointee.start);
        pointee.held |= first;
        first.then_some(pointee.start)
    }

    /// The number of an object, which gets one unless it has one. `None` where there are too many.
    pub(super) fn allocated(&mut self, object: &Object) -> Option<u32> {
        let (start, end, serial) = (object.start, object.end(), object.serial);
        if let Some(&number) = self.by_serial.get(&serial) {
            let pointee = self.get_mut(number)?;
            (pointee.start, pointee.end) = (start, end);
            return Some(number);
        }
        let pointee = |number| Pointee { number, start, end, serial, held: false, dead: None };
        let number = if let Some(last) = self.unused.pop() {
            // The place 0 is not used, so no number is 0.
            let generation = (last >> PLACE_BITS).wrapping_add(1) % GENERATIONS;
            let number = (generation << PLACE_BITS) | (last % PLACES as u32);
            self.table[number as usize % PLACES] = pointee(number);
            number
        } else {
            if self.table.is_empty() {
                self.table.push(pointee(0));
            }
            if self.table.len() >= PLACES {
                return None;
            }
            let number = self.table.len() as u32;
            self.table.push(pointee(number));
            number
        };
        self.by_serial.insert(serial, number);
        Some(number)
    }

    /// An object was freed. Where its memory may be `read` on, its number ends at once.
    pub(super) fn freed(&mut self, object: &Object, read: bool) {
        let Some(&number) = self.by_serial.get(&object.serial) else { return };
        if read {
            return self.end(number);
        }
        let Some(pointee) = self.get_mut(number).filter(|pointee| pointee.dead.is_none()) else { return };
        pointee.dead = Some(Box::new(object.clone()));
        self.dead.push_back(number);
        if self.dead.len() > MAX_DEAD
            && let Some(oldest) = self.dead.pop_front()
        {
            self.end(oldest);
        }
    }

    /// The memory of an object belongs to something else. Where nobody saw a free, its number ends.
    pub(super) fn gone(&mut self, object: &Object) {
        if object.is_live()
            && let Some(&number) = self.by_serial.get(&object.serial)
        {
            self.end(number);
        }
    }

    /// A pointer was compared with one that came from elsewhere. A freed object's number ends, since its copies may
    /// stand for the other pointer. Returns whether this one may do so.
    pub(super) fn compared(&mut self, pointer: Pointer) -> bool {
        let Some(pointee) = self.get(pointer.from) else { return false };
        if pointee.dead.is_some() {
            self.end(pointer.from);
            return true;
        }
        // What equals a pointer into an object that is allocated points into this object.
        !pointer.value.is_some_and(|value| value >= pointee.start && value < pointee.end)
    }

    fn end(&mut self, number: u32) {
        if let Some(pointee) = self.get_mut(number) {
            (pointee.number, pointee.dead) = (0, None);
            let serial = pointee.serial;
            self.by_serial.remove(&serial);
            self.unused.push(number);
        }
    }

    /// Whether the access is within the object that its pointer came from, which is allocated.
    #[inline]
    pub(super) fn holds(&self, reach: &Reach) -> bool {
        self.table.get(reach.pointer.from as usize % PLACES).is_some_and(|pointee| {
            pointee.number == reach.pointer.from
                && pointee.dead.is_none()
                && reach.addr >= pointee.start
                && reach.addr.saturating_add(reach.len) <= pointee.end
        })
    }

    /// Where an access has left the object that its pointer came from; `None` where it may be right.
    #[cold]
    pub(super) fn judge(&self, state: &State, reach: &Reach) -> Option<Stray> {
        let pointee = self.get(reach.pointer.from)?;
        if let Some(old) = &pointee.dead {
            let within = reach.addr >= pointee.start && reach.addr < pointee.end;
            let (_, new) = state.objects.at(reach.addr)?;
            // Code that is not watched may have stored the new object's pointer where the old one's was.
            let other = new.is_live() && new.serial != old.serial && reach.pointer.certain;
            return (within && other).then(|| Stray::Reused { old: Object::clone(old), new: new.clone() });
        }
        let (_, from) = state.objects.at(pointee.start)?;
        if from.serial != pointee.serial || !from.is_live() {
            return None;
        }
        let at = if reach.addr >= pointee.start { reach.addr.max(pointee.end) } else { reach.addr };
        let slot = from.slot_end - from.base;
        if at < from.base.saturating_sub(slot) || at >= from.slot_end.saturating_add(slot) {
            return None;
        }
        let to = state.objects.at(at).map(|(_, to)| to);
        let wrong = match to {
            Some(to) => to.is_live() && to.serial != from.serial && at >= to.start && at < to.end(),
            // An index of unknown value may come from a difference of pointers that nobody saw.
            None => reach.pointer.value.is_some() && lies_in_slab(from),
        };
        wrong.then(|| Stray::Beside { from: from.clone(), to: to.cloned(), at })
    }
}

/// Whether an object lies among others of the slab allocator, which have the memory around it.
fn lies_in_slab(object: &Object) -> bool {
    matches!(object.class, Class::Slab | Class::Cache | Class::Managed)
}
