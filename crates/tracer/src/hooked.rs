//! Hooked functions that were entered and have not returned.

use rustc_hash::FxHashSet;
use std::sync::{Mutex, PoisonError};

/// More calls than threads could ever have open; beyond it entries are of threads that died inside.
const MAX_OPEN: usize = 1 << 16;

/// Open calls: hook number and rsp, which points at the return address and tells threads apart. A call may sleep and
/// return on another vCPU, so the set is everybody's.
#[derive(Debug, Default)]
pub struct Hooked(Mutex<FxHashSet<(u32, u64)>>);

impl Hooked {
    /// The hook was entered.
    pub fn enter(&self, hook: u32, rsp: u64) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert((hook, rsp));
    }

    /// A return that may be the hook's; true where it is.
    pub fn leave(&self, hook: u32, rsp: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(hook, rsp))
    }
}

#[cfg(test)]
mod tests {
    use super::Hooked;

    #[test]
    fn a_return_ends_only_what_was_entered_with_its_stack() {
        let hooked = Hooked::default();
        hooked.enter(3, 0x100);
        assert!(!hooked.leave(4, 0x100));
        assert!(!hooked.leave(3, 0x108));
        assert!(hooked.leave(3, 0x100));
        assert!(!hooked.leave(3, 0x100));
    }
}
