//! Functions whose entries and returns clients asked for.

use guardrail_plugin::block;
use guardrail_plugin::entries::Entries;
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
    /// The host: the kernel has laid out a module.
    ModuleLoad,
    /// The host: the kernel unloads a module.
    ModuleUnload,
    /// The host, for clients that asked for switches of threads.
    Switch,
}

/// All hooks of a plugin, by link-time addresses.
pub(crate) struct Hooks {
    wanted: Vec<(Hook, Wanted)>,
    /// Entries and returns, with hook numbers.
    pub(crate) entries: Entries<u32>,
    pub(crate) open: Hooked,
    thunks: FxHashSet<u64>,
    /// Interned lists of hooks for return callbacks. They are never freed, so equal lists exist once.
    lists: Mutex<FxHashMap<Vec<u32>, &'static Vec<u32>>>,
}

impl Hooks {
    /// Numbers the hooks in their order.
    pub(crate) fn new(wanted: Vec<(Hook, Wanted)>, return_thunks: &[u64]) -> Hooks {
        let numbered = || (0..).zip(wanted.iter().map(|(hook, _)| hook));
        let entries = numbered().map(|(number, hook)| (hook.address, number)).collect();
        Hooks {
            entries: Entries::new(entries, numbered()),
            wanted,
            open: Hooked::default(),
            thunks: return_thunks.iter().copied().collect(),
            lists: Mutex::default(),
        }
    }

    pub(crate) fn wanted(&self, number: u32) -> Option<&(Hook, Wanted)> {
        self.wanted.get(number as usize)
    }

    /// The hooks that a return at this address may end; `None` where there are none.
    pub(crate) fn returns(&self, addr: u64) -> Option<&'static Vec<u32>> {
        if !self.entries.has_returns(addr) {
            return None;
        }
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let list = lists.entry(self.entries.returns(addr));
        Some(list.or_insert_with_key(|hooks| Box::leak(Box::new(hooks.clone()))))
    }

    /// Whether the instruction returns from its function, by itself or by a jump to the kernel's return
    /// thunk.
    pub(crate) fn is_return(&self, insn: &Instruction, slide: u64) -> bool {
        block::is_return(insn, |addr| self.thunks.contains(&addr.wrapping_sub(slide)))
    }
}
