//! Classes that interrupts take, and what their handlers wait for: classes that are held with interrupts on.

use super::NAME;
use super::order::{self, Edge, EdgeId, Hold, Order};
use crate::checker::{Cx, Draft, Site};
use crate::checkers::names;
use crate::level::Level;
use crate::order::{Acquired, LockId};
use crate::stacks::StackId;
use guardrail_finding::ContextInfo;
use guardrail_knowledge::effect::LockKind;
use rustc_hash::{FxHashMap, FxHashSet};

/// Hardware interrupts are 0, softirqs are 1.
type Interrupt = usize;

const INTERRUPTS: [&str; 2] = ["an interrupt handler", "a softirq"];
const ON: [&str; 2] = ["interrupts", "softirqs"];

/// A class was held while interrupts were on.
#[derive(Clone, Debug)]
struct Outside {
    lock: LockId,
    /// Where it was taken.
    stack: StackId,
    /// The word for what was done with interrupts on.
    word: &'static str,
    /// The other locks that were held exclusively.
    besides: Vec<LockId>,
}

/// Why an interrupt waits for a class.
#[derive(Clone, Debug)]
enum Why {
    /// It takes the class.
    Taken(StackId, ContextInfo),
    /// It waits for the first one, and who holds that takes the class by this edge.
    Over(Hold, EdgeId),
}

/// What is known about interrupts and classes.
#[derive(Debug, Default)]
pub(super) struct Usages {
    inside: FxHashMap<(Interrupt, Hold), Why>,
    outside: FxHashMap<(Interrupt, Hold), Outside>,
    /// The classes whose holders were reported.
    reported: FxHashSet<(Interrupt, usize)>,
}

/// Whether interrupts spin for locks of this kind.
fn spins(cx: &Cx<'_>, lock: &Acquired) -> bool {
    cx.state.order.lock(lock.lock).is_some_and(|info| matches!(info.kind, LockKind::Spin | LockKind::Rw))
}

impl Usages {
    /// A lock was taken, which made `new` edges; what is off is as it was after the lock.
    pub fn locked(&mut self, cx: &mut Cx<'_>, graph: &mut Order, lock: &Acquired, new: &[EdgeId]) {
        for interrupt in 0..ON.len() {
            for &id in new {
                self.follow(cx, graph, interrupt, id);
            }
        }
        let (Some(context), true) = (cx.context, spins(cx, lock)) else { return };
        let Some(hold) = graph.hold(cx.state, lock) else { return };
        for (interrupt, level) in [Level::Hardirq, Level::Softirq].into_iter().enumerate() {
            if context.level == level && !lock.tried && !self.inside.contains_key(&(interrupt, hold)) {
                self.waits(cx, graph, interrupt, hold, Why::Taken(lock.stack, names::who(cx)));
            }
        }
        self.held(cx, graph, lock, hold, "taken");
    }

    /// A lock is about to be released. What was off when it was taken may be on now.
    pub fn unlocked(&mut self, cx: &mut Cx<'_>, graph: &mut Order, lock: &Acquired) {
        if spins(cx, lock)
            && let Some(hold) = graph.hold(cx.state, lock)
        {
            self.held(cx, graph, lock, hold, "held");
        }
    }

    /// The context holds a lock.
    fn held(&mut self, cx: &mut Cx<'_>, graph: &Order, lock: &Acquired, hold: Hold, word: &'static str) {
        let Some(context) = cx.context else { return };
        let off = context.order.now.off;
        // A hardware interrupt can hit the lock in a softirq as well as in a task.
        let on = [
            context.level <= Level::Softirq && !off.irqs,
            context.level == Level::Process && !off.softirqs && !off.irqs,
        ];
        for interrupt in (0..ON.len()).filter(|&interrupt| on[interrupt]) {
            // One that no other lock guards replaces one that a lock does.
            let known = self.outside.get(&(interrupt, hold));
            if known.is_some_and(|known| known.besides.is_empty()) {
                continue;
            }
            let besides = order::besides(&context.order.held, &[lock.lock]);
            if known.is_none() || besides.is_empty() {
                let outside = Outside { lock: lock.lock, stack: lock.stack, word, besides };
                self.outside.insert((interrupt, hold), outside);
                for reads in [false, true] {
                    self.check(cx, graph, interrupt, Hold { reads, ..hold });
                }
            }
        }
    }

    /// An edge is new: an interrupt that waits for its first lock waits for the second one as well.
    fn follow(&mut self, cx: &mut Cx<'_>, graph: &Order, interrupt: Interrupt, id: EdgeId) {
        let Some(edge) = graph.edge(id) else { return };
        for reads in [false, true] {
            let before = Hold { reads, ..edge.from };
            if before.waits_for(edge.from)
                && self.inside.contains_key(&(interrupt, before))
                && !self.inside.contains_key(&(interrupt, edge.to))
            {
                self.waits(cx, graph, interrupt, edge.to, Why::Over(before, id));
            }
        }
    }

    /// Interrupts wait for a class, and so for all that its holders wait for.
    fn waits(&mut self, cx: &mut Cx<'_>, graph: &Order, interrupt: Interrupt, hold: Hold, why: Why) {
        self.inside.insert((interrupt, hold), why);
        let mut queue = vec![hold];
        while let Some(at) = queue.pop() {
            self.check(cx, graph, interrupt, at);
            for (id, edge) in graph.after(at) {
                self.inside.entry((interrupt, edge.to)).or_insert_with(|| {
                    queue.push(edge.to);
                    Why::Over(at, id)
                });
            }
        }
    }

    /// Reports a class that interrupts wait for, if it is held while they are on.
    fn check(&mut self, cx: &mut Cx<'_>, graph: &Order, interrupt: Interrupt, at: Hold) {
        if self.reported.contains(&(interrupt, at.class)) {
            return;
        }
        let (path, first, Some(Why::Taken(stack, context))) = self.way(graph, interrupt, at) else { return };
        let holders = [false, true].map(|reads| Hold { reads, ..at });
        let outside = holders.into_iter().filter(|holder| at.waits_for(*holder));
        let mut outside = outside.filter_map(|holder| self.outside.get(&(interrupt, holder)));
        let guarded = |outside: &&Outside| !path.is_empty() && order::guarded(&outside.besides, &path);
        let Some(outside) = outside.find(|outside| !guarded(outside)) else { return };
        // Where interrupts take a class that is held while they are on, what is taken under it is no other fault.
        if !path.is_empty() && self.reported.contains(&(interrupt, first.class)) {
            return;
        }
        let state = cx.state;
        let Some(info) = state.order.lock(outside.lock) else { return };
        cx.report(NAME, "irq-inversion", Site::Stack(outside.stack), || {
            let name = names::lock(state, info);
            let (on, inside) = (ON[interrupt], INTERRUPTS[interrupt]);
            let held = format!("the {} {name} is {} with {on} on", names::kind(info.kind), outside.word);
            let waits = match path.first().map(|edge| edge.names.0.as_str()) {
                None => format!("and also in {inside}"),
                Some(first) => {
                    let way: Vec<&str> = path.iter().map(|edge| edge.names.1.as_str()).collect();
                    format!(
                        "and elsewhere under {first}, which {inside} takes ({first} -> {})",
                        way.join(" -> ")
                    )
                }
            };
            let mut related = vec![names::related(state, format!("taken in {inside}"), *stack)];
            related[0].context = Some(context.clone());
            related.extend(path.iter().flat_map(|edge| order::taken(state, edge)));
            Draft { related, ..Draft::error(format!("{held}, {waits}")) }
        });
        self.reported.insert((interrupt, at.class));
    }

    /// Why interrupts wait for a class: the edges to it, the class that they take, and where they take it.
    fn way<'g>(
        &self,
        graph: &'g Order,
        interrupt: Interrupt,
        at: Hold,
    ) -> (Vec<&'g Edge>, Hold, Option<&Why>) {
        let (mut path, mut first) = (Vec::new(), at);
        let mut why = self.inside.get(&(interrupt, first));
        while let Some(Why::Over(before, id)) = why {
            path.extend(graph.edge(*id));
            first = *before;
            why = self.inside.get(&(interrupt, first));
        }
        path.reverse();
        (path, first, why)
    }
}
