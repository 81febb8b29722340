//! Records the deepest stack of each thread.

use super::stacks::Kind;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The least growth in bytes for a new record. Smaller growth is ignored, because a look takes time.
const STEP: u64 = 128;
/// Most threads that are kept; the shallowest are dropped.
const MAX: usize = 4096;

/// The deepest stack of a thread on one kind of stack.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Name and pid of the thread, as `name/pid`.
    pub name: String,
    /// Kind of the stack.
    pub kind: Kind,
    /// Bytes of the stack that were in use.
    pub depth: u64,
    /// The functions at that time, innermost first, with the bytes of each.
    pub frames: Vec<(u64, u64)>,
}

/// All threads, by task and kind of stack.
#[derive(Default)]
pub struct Threads(Mutex<HashMap<(u64, Kind), Thread>>);

impl Threads {
    /// Whether the stack is deeper than the thread's record, by enough to look.
    pub fn is_news(&self, task: u64, kind: Kind, depth: u64) -> bool {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.get(&(task, kind)).is_none_or(|thread| depth >= thread.depth + STEP)
    }

    /// Records a depth. A new task at the address of an old one has another name, and the deeper of both
    /// is kept.
    pub fn note(&self, task: u64, kind: Kind, name: String, depth: u64, frames: Vec<(u64, u64)>) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= MAX
            && let Some(&least) = threads.iter().min_by_key(|(_, thread)| thread.depth).map(|(key, _)| key)
        {
            threads.remove(&least);
        }
        threads.insert((task, kind), Thread { name, kind, depth, frames });
    }

    /// All threads, deepest first.
    pub fn deepest(&self) -> Vec<Thread> {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<Thread> = threads.values().cloned().collect();
        all.sort_by_key(|thread| std::cmp::Reverse(thread.depth));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_are_kept() {
        let threads = Threads::default();
        assert!(threads.is_news(1, Kind::Thread, 100));
        threads.note(1, Kind::Thread, "one/1".into(), 1000, Vec::new());
        assert!(!threads.is_news(1, Kind::Thread, 1000 + STEP - 1));
        assert!(threads.is_news(1, Kind::Thread, 1000 + STEP) && threads.is_news(1, Kind::Interrupt, 10));
        for task in 2..2 + MAX as u64 {
            threads.note(task, Kind::Thread, format!("more/{task}"), 500, Vec::new());
        }
        let all = threads.deepest();
        assert_eq!((all.len(), all[0].depth), (MAX, 1000));
    }
}
