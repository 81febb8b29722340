//! What the tracer needs to walk the kernel's stacks, and which stacks the log has.

use guardrail_binfmt::orc;
use guardrail_plugin::unwind::Unwinder;
use guardrail_trace::config::TracerConfig;
use guardrail_trace::event::MAX_STACKS;
use rustc_hash::FxHashMap;
use std::sync::{PoisonError, RwLock};

/// Walks stacks, where the kernel has tables for it.
pub struct Stacks {
    /// The kernel's unwinder; `None` where the log has no stacks.
    pub unwinder: Option<Unwinder>,
    /// Ranges of loaded modules, and the address of each module's `struct module`.
    modules: RwLock<Vec<(u64, u64, u64)>>,
}

impl Stacks {
    /// Reads the kernel's tables. An error is one sentence for the user.
    pub fn new(config: &TracerConfig) -> Result<Stacks, String> {
        let mut unwinder = None;
        if let Some(unwind) = &config.unwind {
            let file = &unwind.tables;
            let bytes = std::fs::read(file).map_err(|e| {
                format!("cannot read the kernel's unwind tables {file}: {e}; start the run anew")
            })?;
            let size = usize::try_from(unwind.places_size).unwrap_or(usize::MAX);
            let rules = bytes
                .split_at_checked(size)
                .and_then(|(places, entries)| orc::Unwinder::of_tables(unwind.places_at, places, entries));
            let rules = rules.ok_or_else(|| format!("the kernel's unwind tables {file} are malformed"))?;
            unwinder = Some(Unwinder::new(rules, config.kernel_text, unwind.module.clone()));
        }
        Ok(Stacks { unwinder, modules: RwLock::default() })
    }

    /// Notes a module that was loaded, with its regions (start, size, flags).
    pub fn add_module(&self, module: u64, regions: &[(u64, u64, u64)]) {
        let mut modules = self.modules.write().unwrap_or_else(PoisonError::into_inner);
        modules.extend(regions.iter().map(|&(from, size, _)| (from, from.saturating_add(size), module)));
    }

    /// Forgets a module that is unloaded.
    pub fn remove_module(&self, module: u64) {
        self.modules.write().unwrap_or_else(PoisonError::into_inner).retain(|range| range.2 != module);
        if let Some(unwinder) = &self.unwinder {
            unwinder.forget(Some(module));
        }
    }

    /// Address of the `struct module` of the loaded module that contains this address.
    pub fn module_at(&self, addr: u64) -> Option<u64> {
        let modules = self.modules.read().unwrap_or_else(PoisonError::into_inner);
        modules.iter().find(|range| (range.0..range.1).contains(&addr)).map(|range| range.2)
    }
}

/// The stacks that a vCPU's ring defines: their words and numbers.
#[derive(Default)]
pub struct KnownStacks(FxHashMap<Box<[u64]>, u64>);

impl KnownStacks {
    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The number of a stack, and whether it is new; 0 where there are too many.
    pub fn number(&mut self, words: &[u64]) -> (u64, bool) {
        if let Some(&number) = self.0.get(words) {
            return (number, false);
        }
        let next = self.count() + 1;
        if next > MAX_STACKS {
            return (0, false);
        }
        self.0.insert(words.into(), next);
        (next, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_numbered_up_to_a_bound() {
        let mut known = KnownStacks::default();
        for number in 1..=MAX_STACKS {
            assert_eq!(known.number(&[number, 7]), (number, true));
        }
        assert_eq!(known.number(&[5, 7]), (5, false));
        assert_eq!(known.number(&[5, 8]), (0, false));
    }
}
