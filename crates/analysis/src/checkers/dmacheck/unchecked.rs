//! Results of mapping functions that are never compared with `DMA_MAPPING_ERROR`.
//!
//! The comparison need not be in the function that maps: wrappers return the address. So the checker watches
//! all driver code that the context runs until it returns to the kernel. Each comparison with all ones counts
//! for one mapping.

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
    /// Index of the activation in which the kernel called the driver.
    depth: usize,
    stack: StackId,
    size: u64,
}

/// Mappings that are not checked yet, by what runs ([`Context::key`]).
#[derive(Debug, Default)]
pub(super) struct Unchecked {
    pending: FxHashMap<(u64, Level), Vec<Pending>>,
}

fn depth(context: &Context) -> Option<usize> {
    context.stack.iter().rposition(|a| matches!(a, Activation::Frame { from_kernel: true, .. }))
}

/// Reports a mapping that was not checked, once for each path inside the driver to it. The callers of the
/// driver make no difference.
fn tell(cx: &mut Cx<'_>, mapped: StackId, size: u64) {
    let state = cx.state;
    let stack = state.stacks.get(mapped);
    let is_driver = |at: &u64| state.modules.contains(*at);
    let first = stack.iter().position(is_driver).unwrap_or(0);
    let own = stack[first..].iter().take_while(|at| is_driver(at)).count();
    cx.report_as(NAME, "dma-unchecked", &state.stacks.trace(mapped), &stack[first..first + own], || Draft {
        severity: Severity::Warning,
        ..Draft::error(format!(
            "the bus address of a {size}-byte buffer is used without a check by dma_mapping_error"
        ))
    });
}

impl Unchecked {
    /// The driver has mapped a buffer of `size` bytes.
    pub fn add(&mut self, context: &Context, stack: StackId, size: u64) {
        let Some(depth) = depth(context) else { return };
        if self.pending.len() >= MAX_CONTEXTS {
            self.pending.clear();
        }
        let list = self.pending.entry(context.key()).or_default();
        // Mappings of runs whose end was not seen prove nothing.
        list.retain(|p| p.depth <= depth);
        if list.len() < MAX_PENDING {
            list.push(Pending { depth, stack, size });
        }
    }

    /// The context has compared a value with all ones.
    pub fn checked(&mut self, context: &Context) {
        if let Some(list) = self.pending.get_mut(&context.key()) {
            list.pop();
        }
    }

    /// The context has returned to the kernel, or has called it. Mappings that are still unchecked are
    /// reported where they were mapped.
    pub fn left(&mut self, cx: &mut Cx<'_>) {
        let Some(context) = cx.context.filter(|_| !self.is_empty()) else { return };
        let Some(list) = self.pending.get_mut(&context.key()) else { return };
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
