//! Hooked functions that were entered and have not returned.

use guardrail_trace::event::MAX_ARGS;
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, PoisonError};

/// More calls than threads can have open. Beyond it, calls belong to threads that died inside.
const MAX_OPEN: usize = 1 << 16;

/// Most hooked functions that jump to one another without a return in between.
const MAX_JUMPS: usize = 16;

/// The arguments at an entry; `None` where the return does not need them.
type Kept = Option<Box<[u64; MAX_ARGS]>>;

/// One open call: the hook's number and its kept arguments.
type Call = (u32, Kept);

/// Open calls, with the arguments that their returns need. The key is rsp, which points at the return
/// address and distinguishes threads. A function that ends with a jump to another one leaves two calls
/// with one key. A call may sleep and return on another vCPU, so all vCPUs share the map.
#[derive(Debug, Default)]
pub struct Hooked(Mutex<FxHashMap<u64, (Call, Vec<Call>)>>);

impl Hooked {
    /// Adds an open call of a hook that was entered.
    pub fn enter(&self, hook: u32, rsp: u64, args: Option<[u64; MAX_ARGS]>) {
        let call = (hook, args.map(Box::new));
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        match open.entry(rsp) {
            Entry::Vacant(entry) => {
                entry.insert((call, Vec::new()));
            }
            Entry::Occupied(mut entry) => {
                let (first, more) = entry.get_mut();
                let jumps = more.len();
                match std::iter::once(first).chain(more.iter_mut()).find(|open| open.0 == hook) {
                    Some(same) => *same = call,
                    None if jumps < MAX_JUMPS => more.push(call),
                    None => {}
                }
            }
        }
    }

    /// Forgets all open calls, because nothing sees their returns.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Removes the calls of `hooks` that were entered with this stack, in the order of `hooks`. Most
    /// returns of shared functions end no call, and one lookup finds that.
    pub fn leave(&self, hooks: &[u32], rsp: u64) -> Option<Left> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut entry) = open.entry(rsp) else { return None };
        let (first, more) = entry.get_mut();
        if more.is_empty() {
            return hooks
                .contains(&first.0)
                .then(|| Left { first: ended(entry.remove().0), more: Vec::new() });
        }
        let mut calls = std::mem::take(more);
        calls.insert(0, std::mem::take(first));
        let mut left = Vec::new();
        for &hook in hooks {
            if let Some(at) = calls.iter().position(|call| call.0 == hook) {
                left.push(ended(calls.remove(at)));
            }
        }
        if calls.is_empty() {
            entry.remove();
        } else {
            *first = calls.remove(0);
            *more = calls;
        }
        let mut left = left.into_iter();
        Some(Left { first: left.next()?, more: left.collect() })
    }
}

/// Calls that one return ends, each with its kept arguments.
#[derive(Debug, PartialEq)]
pub struct Left {
    /// The call of the first matching hook.
    pub first: Ended,
    /// Further calls, of functions that jumped to one another.
    pub more: Vec<Ended>,
}

/// A hook's number, and the arguments at its entry if they were kept.
pub type Ended = (u32, Option<[u64; MAX_ARGS]>);

fn ended((hook, kept): Call) -> Ended {
    (hook, kept.map(|args| *args))
}

#[cfg(test)]
mod tests {
    use super::{Ended, Hooked};

    fn leave(hooked: &Hooked, hooks: &[u32], rsp: u64) -> Vec<Ended> {
        hooked
            .leave(hooks, rsp)
            .map_or_else(Vec::new, |left| std::iter::once(left.first).chain(left.more).collect())
    }

    #[test]
    fn a_return_ends_only_what_was_entered_with_its_stack() {
        let hooked = Hooked::default();
        hooked.enter(3, 0x100, None);
        assert_eq!(leave(&hooked, &[4], 0x100), []);
        assert_eq!(leave(&hooked, &[3], 0x108), []);
        assert_eq!(leave(&hooked, &[2, 3], 0x100), [(3, None)]);
        assert_eq!(leave(&hooked, &[2, 3], 0x100), []);
    }

    #[test]
    fn a_return_gets_the_arguments_of_its_entry() {
        let hooked = Hooked::default();
        hooked.enter(3, 0x100, Some([1, 2, 3, 4, 5, 6]));
        hooked.enter(3, 0x200, Some([7; 6]));
        assert_eq!(leave(&hooked, &[3], 0x100), [(3, Some([1, 2, 3, 4, 5, 6]))]);
        assert_eq!(leave(&hooked, &[3], 0x200), [(3, Some([7; 6]))]);
    }

    #[test]
    fn functions_that_jump_to_one_another_end_with_one_return() {
        let hooked = Hooked::default();
        hooked.enter(5, 0x100, None);
        hooked.enter(3, 0x100, Some([1; 6]));
        hooked.enter(8, 0x100, None);
        assert_eq!(leave(&hooked, &[4], 0x100), []);
        assert_eq!(leave(&hooked, &[3, 4, 8], 0x100), [(3, Some([1; 6])), (8, None)]);
        assert_eq!(leave(&hooked, &[5], 0x100), [(5, None)]);
        // A call that never returned does not block the next one.
        hooked.enter(5, 0x100, Some([1; 6]));
        hooked.enter(5, 0x100, Some([2; 6]));
        assert_eq!(leave(&hooked, &[5], 0x100), [(5, Some([2; 6]))]);
    }
}
