//! Locks that hooked functions hold while they run.

use crate::order::{Acquired, Name};
use rustc_hash::FxHashMap;

/// Most tasks that are known at a time, and most locks of one.
const MAX_TASKS: usize = 8192;
const MAX_PER_TASK: usize = 64;

/// A lock that is held as long as a hooked function runs.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub hook: u64,
    pub rsp: u64,
    pub lock: Acquired,
    /// Objects that the function acquires before it calls the driver.
    pub acquires: Vec<Name>,
    /// Index of the context that holds it; `None` until the function calls the driver.
    pub context: Option<usize>,
}

/// The locks of running hooked functions, by task.
#[derive(Debug, Default)]
pub(super) struct Holds {
    by_task: FxHashMap<u64, Vec<Hold>>,
}

impl Holds {
    /// A function begins that holds a lock.
    pub fn add(&mut self, task: u64, hold: Hold) {
        if self.by_task.len() >= MAX_TASKS {
            self.by_task.clear();
        }
        let holds = self.by_task.entry(task).or_default();
        if holds.len() < MAX_PER_TASK {
            holds.push(hold);
        }
    }

    /// The locks that a task's hooked functions hold.
    pub fn of(&mut self, task: u64) -> impl Iterator<Item = &mut Hold> {
        self.by_task.get_mut(&task).into_iter().flatten()
    }

    /// Removes the locks of a task that are `over`, and returns them.
    pub fn end(&mut self, task: u64, over: impl Fn(&Hold) -> bool) -> Vec<Hold> {
        let Some(holds) = self.by_task.get_mut(&task) else { return Vec::new() };
        let ended = holds.extract_if(.., |hold| over(hold)).collect();
        if holds.is_empty() {
            self.by_task.remove(&task);
        }
        ended
    }
}
