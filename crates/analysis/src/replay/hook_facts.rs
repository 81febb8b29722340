//! What the world says about hooks, asked once for each.

use crate::machine::World;
use guardrail_knowledge::effect::Summary;
use std::sync::Arc;

/// Most hooks of which the facts are kept.
const MAX_KEPT: u64 = 4096;

/// What the world says about a hook.
#[derive(Clone, Debug)]
pub(super) struct HookFacts {
    /// What the function does.
    pub summary: Arc<Summary>,
    /// The number of its arguments, which come before what the tracer read through them.
    pub args: usize,
    /// Its link-time address; 0 where that is not known.
    pub address: u64,
    /// The log holds its returns.
    pub returns: bool,
}

impl HookFacts {
    fn ask(world: &dyn World, hook: u64) -> Option<HookFacts> {
        Some(HookFacts {
            summary: world.hook(hook)?,
            args: world.hook_args(hook),
            address: world.hook_address(hook),
            returns: world.hook_returns(hook),
        })
    }
}

/// The facts about all hooks that were met, by number.
#[derive(Debug, Default)]
pub(super) struct AllHookFacts(Vec<Option<HookFacts>>);

impl AllHookFacts {
    /// The facts about a hook; `None` where the world does not know it.
    pub fn of(&mut self, world: &dyn World, hook: u64) -> Option<HookFacts> {
        if let Some(Some(known)) = self.0.get(hook as usize) {
            return Some(known.clone());
        }
        let facts = HookFacts::ask(world, hook)?;
        if hook < MAX_KEPT {
            if self.0.len() <= hook as usize {
                self.0.resize(hook as usize + 1, None);
            }
            self.0[hook as usize] = Some(facts.clone());
        }
        Some(facts)
    }
}
