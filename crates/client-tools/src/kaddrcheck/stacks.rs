//! Call stacks, each stored once and identified by a number.

use rustc_hash::{FxHashMap, FxHasher};
use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};

/// Frames that are kept of a stack.
pub const DEPTH: usize = 10;
/// Most different stacks that are kept; later ones are unknown.
const MAX: usize = 1 << 17;

/// All stacks. The number 0 stands for no stack.
#[derive(Default)]
pub struct Stacks(Mutex<Depot>);

#[derive(Default)]
struct Depot {
    numbers: FxHashMap<u64, u32>,
    /// End index of each stack in `frames`.
    ends: Vec<u32>,
    frames: Vec<u64>,
}

impl Stacks {
    /// The number of a stack; it is stored if it is new.
    pub fn number(&self, frames: &[u64]) -> u32 {
        if frames.is_empty() {
            return 0;
        }
        let mut hasher = FxHasher::default();
        frames.iter().for_each(|&frame| hasher.write_u64(frame));
        // Two stacks with the same 64-bit hash would get one number, which is unlikely within one run.
        let key = hasher.finish();
        let mut depot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&number) = depot.numbers.get(&key) {
            return number;
        }
        if depot.ends.len() >= MAX {
            return 0;
        }
        depot.frames.extend_from_slice(&frames[..frames.len().min(DEPTH)]);
        let end = depot.frames.len() as u32;
        depot.ends.push(end);
        let number = depot.ends.len() as u32;
        depot.numbers.insert(key, number);
        number
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, number: u32) -> Vec<u64> {
        let depot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(last) = (number as usize).checked_sub(1).filter(|&last| last < depot.ends.len()) else {
            return Vec::new();
        };
        let start = if last == 0 { 0 } else { depot.ends[last - 1] as usize };
        depot.frames[start..depot.ends[last] as usize].to_vec()
    }

    /// Bytes of memory that the stacks take.
    pub fn resident(&self) -> usize {
        let depot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        depot.frames.capacity() * 8 + depot.ends.capacity() * 4 + depot.numbers.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_kept_once() {
        let stacks = Stacks::default();
        let one = stacks.number(&[1, 2, 3]);
        let two = stacks.number(&[1, 2]);
        assert_ne!(one, two);
        assert_eq!(stacks.number(&[1, 2, 3]), one);
        assert_eq!(stacks.frames(one), [1, 2, 3]);
        assert_eq!(stacks.frames(two), [1, 2]);
        assert_eq!(stacks.number(&[]), 0);
        assert!(stacks.frames(0).is_empty() && stacks.frames(99).is_empty());
    }
}
