//! Call stacks, each kept once.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of a stack; 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// More stacks than this are not distinguished.
const MAX_STACKS: usize = 1 << 18;
/// Most addresses that are kept of a stack.
pub const MAX_FRAMES: usize = 16;

/// Largest size of a kernel stack, in bytes.
pub const STACK_SIZE: u64 = 16 << 10;

/// Whether two addresses may lie on one stack.
pub fn same_stack(a: u64, b: u64) -> bool {
    a.abs_diff(b) < STACK_SIZE
}

/// All stacks seen. The first address of a stack is that of an instruction, the others are return addresses.
#[derive(Debug, Default)]
pub struct Stacks {
    ids: FxHashMap<Arc<[u64]>, StackId>,
    table: Vec<Arc<[u64]>>,
}

impl Stacks {
    /// The number of a stack; 0 where there are too many.
    pub fn intern(&mut self, frames: &[u64]) -> StackId {
        let frames = &frames[..frames.len().min(MAX_FRAMES)];
        if frames.is_empty() {
            return StackId(0);
        }
        if let Some(&id) = self.ids.get(frames) {
            return id;
        }
        if self.table.len() >= MAX_STACKS {
            return StackId(0);
        }
        let frames: Arc<[u64]> = frames.into();
        self.table.push(frames.clone());
        let id = StackId(self.table.len() as u32);
        self.ids.insert(frames, id);
        id
    }

    /// The addresses of a stack, innermost first.
    pub fn get(&self, id: StackId) -> &[u64] {
        (id.0 as usize).checked_sub(1).and_then(|i| self.table.get(i)).map_or(&[], |s| s)
    }
}
