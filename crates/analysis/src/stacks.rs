//! Call stacks, each kept once.

use guardrail_trace::event::StackFrame;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of a stack; 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Number of a stack of the kernel above the driver; 0 where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OuterId(pub u32);

/// More stacks than this are not distinguished. From half of it on, stacks get no outer part.
const MAX_STACKS: usize = 1 << 19;
/// Most stacks above the driver that are kept.
const MAX_OUTER: usize = 1 << 17;
/// Most addresses that are kept of the near part of a stack.
pub const MAX_FRAMES: usize = 16;

/// Largest size of a kernel stack, in bytes.
pub const STACK_SIZE: u64 = 16 << 10;

/// Whether two addresses may lie on one stack.
pub fn same_stack(a: u64, b: u64) -> bool {
    a.abs_diff(b) < STACK_SIZE
}

/// A call stack in two parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallTrace {
    /// What the log's events show: the address of an instruction, then return addresses. Checkers and
    /// fingerprints use no other part.
    pub near: Vec<u64>,
    /// The stack above the driver's function that the kernel called last.
    pub outer: OuterId,
}

impl CallTrace {
    /// A stack of one instruction.
    pub fn at(pc: u64) -> CallTrace {
        CallTrace { near: vec![pc], outer: OuterId::default() }
    }
}

/// An address of a whole stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address of an instruction, or a return address.
    pub address: u64,
    /// The address is a return address.
    pub is_return: bool,
    /// It is in the outer part only.
    pub outer: bool,
    /// The place before it lies on another stack.
    pub switched: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    near: Arc<[u64]>,
    outer: OuterId,
    /// The stack with the same near part and no outer one.
    plain: StackId,
}

/// All stacks seen. The first address of a stack is that of an instruction, the others are return addresses.
#[derive(Debug, Default)]
pub struct Stacks {
    ids: FxHashMap<Arc<[u64]>, StackId>,
    whole: FxHashMap<(StackId, OuterId), StackId>,
    table: Vec<Entry>,
    outer_ids: FxHashMap<Arc<[u64]>, OuterId>,
    outer: Vec<Arc<[u64]>>,
}

impl Stacks {
    /// The number of a stack; 0 where there are too many.
    pub fn intern(&mut self, near: &[u64], outer: OuterId) -> StackId {
        let near = &near[..near.len().min(MAX_FRAMES)];
        let plain = self.plain(near);
        if plain == StackId(0) || outer == OuterId(0) {
            return plain;
        }
        if let Some(&id) = self.whole.get(&(plain, outer)) {
            return id;
        }
        if self.table.len() >= MAX_STACKS / 2 {
            return plain;
        }
        let near = Arc::clone(&self.table[plain.0 as usize - 1].near);
        let id = self.push(Entry { near, outer, plain });
        self.whole.insert((plain, outer), id);
        id
    }

    fn plain(&mut self, near: &[u64]) -> StackId {
        if near.is_empty() {
            return StackId(0);
        }
        if let Some(&id) = self.ids.get(near) {
            return id;
        }
        if self.table.len() >= MAX_STACKS {
            return StackId(0);
        }
        let near: Arc<[u64]> = near.into();
        let plain = StackId(self.table.len() as u32 + 1);
        self.ids.insert(Arc::clone(&near), plain);
        self.push(Entry { near, outer: OuterId(0), plain })
    }

    fn push(&mut self, entry: Entry) -> StackId {
        self.table.push(entry);
        StackId(self.table.len() as u32)
    }

    /// Changes the addresses of all stacks so far, of which no two may become one. A later stack with an old address is another.
    pub fn readdress(&mut self, to: impl Fn(u64) -> u64) {
        // A return address names the call before it.
        let moved = |is_return: bool, at: u64| {
            let back = u64::from(is_return);
            to(at.wrapping_sub(back)).wrapping_add(back)
        };
        for i in 0..self.table.len() {
            let near = self.table[i].near.iter().enumerate();
            let new: Arc<[u64]> = near.map(|(i, &at)| moved(i > 0, at)).collect();
            if new == self.table[i].near {
                continue;
            }
            if let Some(id) = self.ids.remove(&self.table[i].near) {
                self.ids.insert(Arc::clone(&new), id);
            }
            self.table[i].near = new;
        }
        for i in 0..self.outer.len() {
            let word = |&word: &u64| {
                let frame = StackFrame::decode(word);
                let address = moved(!frame.interrupted, frame.address);
                StackFrame { address, ..frame }.encode()
            };
            let new: Arc<[u64]> = self.outer[i].iter().map(word).collect();
            if new == self.outer[i] {
                continue;
            }
            if let Some(id) = self.outer_ids.remove(&self.outer[i]) {
                self.outer_ids.insert(Arc::clone(&new), id);
            }
            self.outer[i] = new;
        }
    }

    fn entry(&self, id: StackId) -> Option<&Entry> {
        (id.0 as usize).checked_sub(1).and_then(|i| self.table.get(i))
    }

    /// The addresses of a stack's near part, innermost first.
    pub fn get(&self, id: StackId) -> &[u64] {
        self.entry(id).map_or(&[], |entry| &entry.near)
    }

    /// The stack as a trace.
    pub fn trace(&self, id: StackId) -> CallTrace {
        self.entry(id).map_or_else(CallTrace::default, |entry| CallTrace {
            near: entry.near.to_vec(),
            outer: entry.outer,
        })
    }

    /// The number that all stacks with this near part share.
    pub fn near(&self, id: StackId) -> StackId {
        self.entry(id).map_or(StackId(0), |entry| entry.plain)
    }

    /// The number of an outer stack, from its words in the log; 0 where there are too many.
    pub fn intern_outer(&mut self, words: &[u64]) -> OuterId {
        if let Some(&id) = self.outer_ids.get(words) {
            return id;
        }
        if words.is_empty() || self.outer.len() >= MAX_OUTER {
            return OuterId(0);
        }
        let words: Arc<[u64]> = words.into();
        self.outer.push(Arc::clone(&words));
        let id = OuterId(self.outer.len() as u32);
        self.outer_ids.insert(words, id);
        id
    }

    /// The frames of an outer stack, innermost first.
    pub fn outer_frames(&self, id: OuterId) -> impl Iterator<Item = StackFrame> + '_ {
        let words = (id.0 as usize).checked_sub(1).and_then(|i| self.outer.get(i));
        words.into_iter().flat_map(|words| words.iter()).map(|&word| StackFrame::decode(word))
    }

    /// The whole stack, innermost first. All places of the near part are in it, in their order.
    pub fn places(&self, trace: &CallTrace) -> Vec<Place> {
        let inner =
            |(i, &address): (usize, &u64)| Place { address, is_return: i > 0, outer: false, switched: false };
        // The near part has the address behind an interrupted instruction.
        let key = |place: &Place| place.address.wrapping_add(u64::from(!place.is_return));
        let near = &trace.near;
        let outer = self.outer_frames(trace.outer).map(|frame| Place {
            address: frame.address,
            is_return: !frame.interrupted,
            outer: true,
            switched: frame.switched,
        });
        let mut outer: Vec<Place> = outer.collect();
        // The outer part begins where the kernel called the driver last.
        let Some(from) = outer.first().and_then(|first| near.iter().position(|&at| at == key(first))) else {
            return near.iter().enumerate().map(inner).collect();
        };
        let mut places: Vec<Place> = near[..from].iter().enumerate().map(inner).collect();
        let mut at = 0;
        for (i, address) in near.iter().enumerate().skip(from) {
            match outer[at..].iter().position(|place| key(place) == *address) {
                Some(further) => {
                    outer[at + further].outer = false;
                    places.extend_from_slice(&outer[at..=at + further]);
                    at += further + 1;
                }
                // The walk has not come so far, or the near part leads to another stack.
                None => places.push(inner((i, address))),
            }
        }
        places.extend_from_slice(&outer[at..]);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(frames: &[(u64, bool, bool)]) -> Vec<u64> {
        let word = |&(address, interrupted, switched): &(u64, bool, bool)| {
            StackFrame { address, interrupted, switched }.encode()
        };
        frames.iter().map(word).collect()
    }

    #[test]
    fn the_outer_part_distinguishes_stacks_and_not_their_near_part() {
        let mut stacks = Stacks::default();
        let one = stacks.intern_outer(&words(&[(1, false, false)]));
        let two = stacks.intern_outer(&words(&[(2, false, false)]));
        let ids = [one, two, OuterId(0)].map(|outer| stacks.intern(&[7, 8], outer));
        assert!(ids[0] != ids[1] && ids[1] != ids[2]);
        assert_eq!(ids.map(|id| stacks.near(id)), [ids[2]; 3]);
        assert_eq!(stacks.intern(&[7, 8], one), ids[0]);
        assert_eq!(stacks.trace(ids[1]), CallTrace { near: vec![7, 8], outer: two });
        assert_eq!(stacks.get(ids[0]), [7, 8]);
    }

    #[test]
    fn stacks_so_far_get_other_addresses_and_keep_their_numbers() {
        let mut stacks = Stacks::default();
        let outer = stacks.intern_outer(&words(&[(9, false, false), (5, true, true), (6, false, false)]));
        let (old, other) = (stacks.intern(&[5, 6, 8], outer), stacks.intern(&[4, 5], OuterId(0)));
        // Code from 5 to 7: a call at its end returns to 7.
        let to = |at| if (5..7).contains(&at) { at + 100 } else { at };
        stacks.readdress(to);
        assert_eq!((stacks.get(old), stacks.get(other)), (&[105, 106, 8][..], &[4, 5][..]));
        let frames: Vec<u64> = stacks.outer_frames(outer).map(|frame| frame.address).collect();
        assert_eq!(frames, [9, 105, 106]);
        let new = stacks.intern(&[5, 6, 8], outer);
        assert!(new != old && stacks.near(new) != stacks.near(old));
        assert_eq!(stacks.intern(&[105, 106, 8], outer), old);
        let third = stacks.intern(&[4, 8], OuterId(0));
        assert_eq!(stacks.get(third), [4, 8]);
        stacks.readdress(to);
        assert_eq!(stacks.get(old), [105, 106, 8]);
    }

    #[test]
    fn a_whole_stack_has_every_near_place_in_order() {
        let mut stacks = Stacks::default();
        // The kernel called the driver (20), which was called by the kernel before (40), with 30 between.
        let frames = [(20, false, false), (30, false, false), (40, false, false), (49, true, true)];
        let outer = stacks.intern_outer(&words(&frames));
        let shown = |near: &[u64]| -> Vec<(u64, bool, bool)> {
            let trace = CallTrace { near: near.to_vec(), outer };
            stacks.places(&trace).iter().map(|p| (p.address, p.outer, p.switched)).collect()
        };
        let near = |address| (address, false, false);
        let (between, interrupted) = ((30, true, false), (49, true, true));
        assert_eq!(shown(&[10, 20, 40]), [near(10), near(20), between, near(40), interrupted]);
        // A place that the walk has not found keeps its place among the near ones.
        assert_eq!(shown(&[10, 20, 99, 40]), [near(10), near(20), near(99), between, near(40), interrupted]);
        // Without the place where they join, nothing is known about the way from one to the other.
        assert_eq!(shown(&[10, 40]), [near(10), near(40)]);
        assert_eq!(shown(&[]), []);
    }
}
