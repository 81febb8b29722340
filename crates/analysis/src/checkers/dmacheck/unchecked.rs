//! Results of mapping functions that nobody compares with `DMA_MAPPING_ERROR`.
//!
//! The comparison need not be in the function that maps: wrappers return the address. So it is looked for in all driver code that
//! the context runs until it returns to the kernel, and each comparison with all ones is for one mapping.

use super::NAME;
use crate::checker::{Cx, Draft};
use crate::level::Level;
use crate::machine::{Activation, Context};
use crate::stacks::StackId;
use guardrail_finding::Severity;
use rustc_hash::FxHashMap;

const MAX_CONTEXTS: usize = 1 << 12;
const MAX_PENDING: usize = 1 << 10;

#[derive(Clone, Copy, Debug)]
struct Pending {
    /// Index of the activation that the kernel entered the driver with.
    depth: usize,
    stack: StackId,
    size: u64,
}

/// Mappings that were not checked yet, by context.
#[derive(Debug, Default)]
pub(super) struct Unchecked {
    pending: FxHashMap<(u64, Level), Vec<Pending>>,
}

fn depth(context: &Context) -> Option<usize> {
    context.stack.iter().rposition(|a| matches!(a, Activation::Frame { from_kernel: true, .. }))
}

/// Tells of a mapping that was not checked, once for each way of the driver to it: who called the driver makes no difference.
fn tell(cx: &mut Cx<'_>, mapped: StackId, size: u64) {
    let state = cx.state;
    let stack = state.stacks.get(mapped);
    let is_driver = |at: &u64| state.modules.contains(*at);
    let first = stack.iter().position(is_driver).unwrap_or(0);
    let own = stack[first..].iter().take_while(|at| is_driver(at)).count();
    cx.report_as(NAME, "dma-unchecked", stack, &stack[first..first + own], || Draft {
        severity: Severity::Warning,
        ..Draft::error(format!(
            "the bus address of a {size}-byte buffer is used without a check by dma_mapping_error"
        ))
    });
}

impl Unchecked {
    /// The driver has mapped something.
    pub fn add(&mut self, context: &Context, stack: StackId, size: u64) {
        let Some(depth) = depth(context) else { return };
        if self.pending.len() >= MAX_CONTEXTS {
            self.pending.clear();
        }
        let list = self.pending.entry((context.task, context.level)).or_default();
        // What is left of runs whose end was not seen says nothing.
        list.retain(|p| p.depth <= depth);
        if list.len() < MAX_PENDING {
            list.push(Pending { depth, stack, size });
        }
    }

    /// The context has compared a value with all ones.
    pub fn checked(&mut self, context: &Context) {
        if let Some(list) = self.pending.get_mut(&(context.task, context.level)) {
            list.pop();
        }
    }

    /// The context has returned to the kernel, or has called it: what stayed unchecked is told where it was mapped.
    pub fn left(&mut self, cx: &mut Cx<'_>) {
        let Some(context) = cx.context.filter(|_| !self.is_empty()) else { return };
        let Some(list) = self.pending.get_mut(&(context.task, context.level)) else { return };
        list.retain(|p| {
            let over = p.depth >= context.stack.len();
            if over {
                tell(cx, p.stack, p.size);
            }
            !over
        });
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}
