//! What was worked out of the driver's instructions, so that it need not be again.

use rustc_hash::FxHashMap;

/// Most instructions of which a fact is kept.
const MAX_KEPT: usize = 1 << 16;

/// A fact about instructions, by their addresses.
#[derive(Debug)]
pub(super) struct ByCode<T>(FxHashMap<u64, T>);

impl<T> Default for ByCode<T> {
    fn default() -> Self {
        ByCode(FxHashMap::default())
    }
}

impl<T: Copy> ByCode<T> {
    /// The fact about the instruction at `pc`; `work_out` makes it where it is not known.
    pub fn of(&mut self, pc: u64, work_out: impl FnOnce() -> T) -> T {
        if let Some(&fact) = self.0.get(&pc) {
            return fact;
        }
        let fact = work_out();
        if self.0.len() < MAX_KEPT {
            self.0.insert(pc, fact);
        }
        fact
    }

    /// Code around the instruction has run: the fact may be another.
    pub fn forget(&mut self, pc: u64) {
        self.0.remove(&pc);
    }

    /// The addresses belong to other code.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
