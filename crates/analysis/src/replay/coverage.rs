//! Which functions and blocks of the watched modules ran.

use super::Replay;
use crate::machine::{BlockInfo, Module, find};
use guardrail_finding::ModuleCoverage;
use rustc_hash::FxHashSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most blocks that are counted.
const MAX_BLOCKS: usize = 1 << 20;

/// The blocks that ran, by module: function, and offset in it. They are the same in every load of a module.
#[derive(Debug, Default)]
pub(super) struct Ran {
    modules: BTreeMap<String, FxHashSet<(Arc<str>, u64)>>,
    blocks: usize,
}

/// True for a function of the source: not the padding before one, nor a part that the compiler moved away.
fn counts(name: &str) -> bool {
    !name.starts_with("__pfx_") && !name.starts_with("__cfi_") && !name.contains(".cold")
}

impl Replay {
    /// Notes that a block ran.
    pub(super) fn cover(&mut self, block: &BlockInfo) {
        if block.ran.replace(true) || self.ran.blocks >= MAX_BLOCKS {
            return;
        }
        let Some((_, module)) = self.state.modules.at(block.code.addr) else { return };
        let Some(function) = find(&module.map.functions, block.code.addr) else { return };
        let place = (Arc::clone(&function.name), block.code.addr - function.start);
        let known = self.ran.modules.entry(module.name.clone()).or_default();
        self.ran.blocks += usize::from(known.insert(place));
    }

    /// What ran of each module, in the order of names.
    pub(super) fn coverage(&self) -> Vec<ModuleCoverage> {
        let loaded: BTreeMap<&str, &Module> =
            self.state.modules.list().iter().map(|module| (module.name.as_str(), module)).collect();
        let of = |(name, module): (&str, &Module)| {
            let functions = module.map.functions.iter().filter(|function| counts(&function.name));
            let functions: BTreeSet<u64> = functions.map(|function| function.start).collect();
            let ran = self.ran.modules.get(name);
            let entered = ran.into_iter().flatten().filter(|(function, _)| counts(function));
            let entered: BTreeSet<&str> = entered.map(|(function, _)| function.as_ref()).collect();
            ModuleCoverage {
                module: name.to_owned(),
                functions_run: entered.len().min(functions.len()) as u64,
                functions: functions.len() as u64,
                blocks: ran.map_or(0, |blocks| blocks.len() as u64),
            }
        };
        loaded.into_iter().map(of).collect()
    }
}
