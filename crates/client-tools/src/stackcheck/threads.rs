//! How deep each thread's stack was.

use super::stacks::Kind;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// A thread that goes deeper by less is not looked at again, for that takes time.
const STEP: u64 = 128;
/// Threads that are remembered; the shallowest go.
const MAX: usize = 4096;

/// The deepest that a thread was on a kind of stack.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Name and number.
    pub name: String,
    /// The stack.
    pub kind: Kind,
    /// How many bytes of the stack were in use.
    pub depth: u64,
    /// The functions then, the innermost first, and the bytes of each.
    pub frames: Vec<(u64, u64)>,
}

/// All threads, by task and stack.
#[derive(Default)]
pub struct Threads(Mutex<HashMap<(u64, Kind), Thread>>);

impl Threads {
    /// Deeper than the thread was, and by so much that it is worth a look.
    pub fn is_news(&self, task: u64, kind: Kind, depth: u64) -> bool {
        let threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        threads.get(&(task, kind)).is_none_or(|thread| depth >= thread.depth + STEP)
    }

    /// Notes it. A task that came to the place of another has another name; the deeper one of both stays.
    pub fn note(&self, task: u64, kind: Kind, name: String, depth: u64, frames: Vec<(u64, u64)>) {
        let mut threads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= MAX
            && let Some(&least) = threads.iter().min_by_key(|(_, thread)| thread.depth).map(|(key, _)| key)
        {
            threads.remove(&least);
        }
        threads.insert((task, kind), Thread { name, kind, depth, frames });
    }

    /// All of them, the deepest first.
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
