//! Hooked functions that were entered and have not returned.

use guardrail_trace::event::MAX_ARGS;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, PoisonError};

/// More calls than threads could ever have open; beyond it entries are of threads that died inside.
const MAX_OPEN: usize = 1 << 16;

/// The arguments at an entry, where the return needs them.
type Kept = Option<Box<[u64; MAX_ARGS]>>;

/// Open calls, with the arguments of those whose return needs them. The key is the hook's number and rsp, which points at
/// the return address and tells threads apart. A call may sleep and return on another vCPU, so the map is everybody's.
#[derive(Debug, Default)]
pub struct Hooked(Mutex<FxHashMap<(u32, u64), Kept>>);

impl Hooked {
    /// The hook was entered.
    pub fn enter(&self, hook: u32, rsp: u64, args: Option<[u64; MAX_ARGS]>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert((hook, rsp), args.map(Box::new));
    }

    /// A return that may be the hook's: what was kept at its entry, where it is.
    #[allow(clippy::option_option)]
    pub fn leave(&self, hook: u32, rsp: u64) -> Option<Option<[u64; MAX_ARGS]>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&(hook, rsp)).map(|args| args.map(|args| *args))
    }
}

#[cfg(test)]
mod tests {
    use super::Hooked;

    #[test]
    fn a_return_ends_only_what_was_entered_with_its_stack() {
        let hooked = Hooked::default();
        hooked.enter(3, 0x100, None);
        assert_eq!(hooked.leave(4, 0x100), None);
        assert_eq!(hooked.leave(3, 0x108), None);
        assert_eq!(hooked.leave(3, 0x100), Some(None));
        assert_eq!(hooked.leave(3, 0x100), None);
    }

    #[test]
    fn a_return_gets_the_arguments_of_its_entry() {
        let hooked = Hooked::default();
        hooked.enter(3, 0x100, Some([1, 2, 3, 4, 5, 6]));
        hooked.enter(3, 0x200, Some([7; 6]));
        assert_eq!(hooked.leave(3, 0x100), Some(Some([1, 2, 3, 4, 5, 6])));
        assert_eq!(hooked.leave(3, 0x200), Some(Some([7; 6])));
    }
}
