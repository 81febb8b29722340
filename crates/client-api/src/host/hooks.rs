//! Functions whose entries and returns clients asked for.

use guardrail_plugin::block;
use guardrail_plugin::hooked::Hooked;
use guardrail_trace::config::Hook;
use iced_x86::Instruction;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::{Mutex, PoisonError};

/// Number of a hooked function, in the order in which a client asked for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HookId(pub u32);

/// The receiver of a function's entries and returns.
pub(crate) enum Wanted {
    /// A client, by its number among those that run.
    Client(usize, HookId),
    /// The host itself.
    Own(Own),
}

/// Events that the host needs for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    ModuleLoad,
    ModuleUnload,
    Switch,
}

/// All hooks of a plugin, by link-time addresses.
#[derive(Default)]
pub(crate) struct Hooks {
    wanted: Vec<Wanted>,
    /// Entry addresses and hook numbers, sorted by address.
    entries: Vec<(u64, u32)>,
    /// Ranges (start, end, hook) whose returns end calls of hooks.
    returns: Vec<(u64, u64, u32)>,
    merged: Vec<(u64, u64)>,
    results: FxHashSet<u32>,
    pub(crate) open: Hooked,
    thunks: FxHashSet<u64>,
    /// Interned lists of hooks for return callbacks. They are never freed, so equal lists exist once.
    lists: Mutex<FxHashMap<Vec<u32>, &'static Vec<u32>>>,
}

impl Hooks {
    pub(crate) fn new(return_thunks: &[u64]) -> Hooks {
        Hooks { thunks: return_thunks.iter().copied().collect(), ..Hooks::default() }
    }

    pub(crate) fn want(&mut self, hook: &Hook, wanted: Wanted) {
        let number = self.wanted.len() as u32;
        self.wanted.push(wanted);
        self.entries.push((hook.address, number));
        if hook.result {
            self.results.insert(number);
            let ranges = hook.returns.iter().filter(|range| range.0 < range.1);
            self.returns.extend(ranges.map(|&(from, to)| (from, to, number)));
        }
    }

    /// Sorts the tables. Called once, when all hooks are known.
    pub(crate) fn finish(&mut self) {
        self.entries.sort_unstable();
        self.returns.sort_unstable();
        for &(from, to, _) in &self.returns {
            match self.merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => self.merged.push((from, to)),
            }
        }
    }

    pub(crate) fn wanted(&self, number: u32) -> Option<&Wanted> {
        self.wanted.get(number as usize)
    }

    /// Whether a client asked for returns of the hook.
    pub(crate) fn has_result(&self, number: u32) -> bool {
        self.results.contains(&number)
    }

    /// Hooks with entries in `from..=to`.
    pub(crate) fn entries(&self, from: u64, to: u64) -> &[(u64, u32)] {
        let low = self.entries.partition_point(|entry| entry.0 < from);
        let count = self.entries[low..].partition_point(|entry| entry.0 <= to);
        &self.entries[low..low + count]
    }

    /// The hooks that a return at this address may end; `None` where there are none.
    pub(crate) fn returns(&self, addr: u64) -> Option<&'static Vec<u32>> {
        let next = self.merged.partition_point(|range| range.0 <= addr);
        if next == 0 || addr >= self.merged[next - 1].1 {
            return None;
        }
        let end = self.returns.partition_point(|range| range.0 <= addr);
        let mut hooks: Vec<u32> =
            self.returns[..end].iter().filter(|range| addr < range.1).map(|range| range.2).collect();
        hooks.sort_unstable();
        hooks.dedup();
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        Some(lists.entry(hooks).or_insert_with_key(|hooks| Box::leak(Box::new(hooks.clone()))))
    }

    /// Whether the instruction returns from its function, by itself or by a jump to the kernel's return
    /// thunk.
    pub(crate) fn is_return(&self, insn: &Instruction, slide: u64) -> bool {
        block::is_return(insn, |addr| self.thunks.contains(&addr.wrapping_sub(slide)))
    }
}
