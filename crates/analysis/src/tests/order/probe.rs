//! A checker that records how the accesses to slots of memory are ordered.

use crate::checker::{Checker, Cx};
use crate::order::{Acquired, Entry, LockId, Now, Step};
use crate::tests::kernel::HEAP;
use crate::value_flow::{InsnCtx, Value};
use guardrail_trace::event::Access;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What the checker saw of a written.
#[derive(Clone, Debug, Default)]
pub struct Written {
    pub now: Now,
    /// Earlier accesses that come before it, by hard and by full order, and those with a common lock.
    pub after: Vec<u64>,
    pub after_fully: Vec<u64>,
    pub common: Vec<u64>,
    pub strand: String,
    pub states: Vec<String>,
    pub per_cpu: bool,
}

/// What the checker saw in the run.
#[derive(Debug, Default)]
pub struct Seen {
    pub writes: BTreeMap<u64, Written>,
    pub log: Vec<String>,
    pub steps: Vec<Step>,
    pub entries: Vec<Entry>,
}

/// Records accesses: stores to `HEAP + 64 n`.
#[derive(Debug, Default)]
pub struct Probe(pub Rc<RefCell<Seen>>);

impl Checker for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }
    fn needs_sync(&self) -> bool {
        true
    }
    fn store(&mut self, cx: &mut Cx<'_>, _: &InsnCtx, access: Access, _: Value) {
        let (Some(context), Some(at)) = (cx.context, access.addr.checked_sub(HEAP)) else { return };
        if at >= 64 * 100 {
            return;
        }
        let (now, order) = (context.order.now, &cx.state.order);
        let mut seen = self.0.borrow_mut();
        let mut written = Written { now, per_cpu: order.per_cpu.contains(access.addr), ..Written::default() };
        for (&n, earlier) in &seen.writes {
            let before = (earlier.now.strand, earlier.now.clock);
            if order.ordered(before, now.strand) {
                written.after.push(n);
            }
            if order.ordered_fully(before, now.strand) {
                written.after_fully.push(n);
            }
            if order.common(earlier.now.locks, now.locks).is_some() {
                written.common.push(n);
            }
        }
        written.strand = order.describe(now.strand);
        written.states = context.order.entries.last().map(|a| order.states_of(a)).unwrap_or_default();
        seen.writes.insert(at / 64, written);
    }
    fn entered(&mut self, cx: &mut Cx<'_>, entry: &Entry) {
        let mut seen = self.0.borrow_mut();
        let depth = cx.context.map_or(0, |c| c.order.entries.len());
        seen.log.push(format!("enter {depth}"));
        seen.entries.push(entry.clone());
    }
    fn left(&mut self, cx: &mut Cx<'_>, _: &Entry) {
        let depth = cx.context.map_or(0, |c| c.order.entries.len());
        self.0.borrow_mut().log.push(format!("leave {depth}"));
    }
    fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) {
        let what = cx.state.order.lock(lock.lock).map(|l| (l.kind, l.address, l.name));
        let who = if lock.by_kernel { " by kernel" } else { "" };
        self.0.borrow_mut().log.push(format!("lock {} {what:?}{who}", lock.lock.0));
    }
    fn unlocked(&mut self, _: &mut Cx<'_>, lock: LockId, held: Option<&Acquired>, _: bool) {
        let held = if held.is_some() { "" } else { " not held" };
        self.0.borrow_mut().log.push(format!("unlock {}{held}", lock.0));
    }
    fn moved(&mut self, _: &mut Cx<'_>, step: &Step) {
        self.0.borrow_mut().steps.push(step.clone());
    }
}
