//! The order in which locks are taken: a graph over classes, and the cycles in it.

use super::NAME;
use crate::checker::{Cx, Draft, Site};
use crate::checkers::names::{self, Class};
use crate::order::{Acquired, LockId};
use crate::stacks::StackId;
use guardrail_finding::{ContextInfo, Related};
use guardrail_knowledge::effect::{LockKind, LockMode};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Most classes and edges that are known.
const MAX_EDGES: usize = 1 << 14;
/// Longest cycle that is searched for, in edges.
const MAX_CYCLE: usize = 8;

/// A lock of class `to` was taken while one of class `from` was held.
#[derive(Clone, Debug)]
struct Edge {
    to: usize,
    /// The stacks where the first and the second lock were taken.
    stacks: (StackId, StackId),
    /// The other locks that were held exclusively.
    besides: Vec<LockId>,
    /// Both locks were taken as readers.
    shared: bool,
    /// Code of the driver was running where one of the locks was taken.
    in_driver: bool,
    names: (String, String),
    context: ContextInfo,
}

/// The graph of classes and edges.
#[derive(Debug, Default)]
pub(super) struct Order {
    classes: FxHashMap<(LockKind, Class), usize>,
    edges: Vec<Vec<Edge>>,
    count: usize,
}

/// Whether code of a driver under check is on the near part of a stack.
fn is_in_driver(cx: &Cx<'_>, stack: StackId) -> bool {
    cx.state.stacks.get(stack).iter().any(|&at| cx.state.modules.contains(at))
}

impl Order {
    fn class(&mut self, kind: LockKind, class: Class) -> usize {
        let next = self.edges.len();
        let id = *self.classes.entry((kind, class)).or_insert(next);
        if id == next {
            self.edges.push(Vec::new());
        }
        id
    }

    /// A lock was taken: `cx.context.order.held` ends with it.
    pub(super) fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) {
        let Some(context) = cx.context else { return };
        let state = cx.state;
        let Some(info) = state.order.lock(lock.lock).cloned() else { return };
        if lock.tried || info.kind == LockKind::Rcu || context.order.held.len() < 2 || self.count >= MAX_EDGES
        {
            return;
        }
        let to = self.class(info.kind, names::class(state, &info));
        let before: Vec<Acquired> =
            context.order.held.iter().filter(|held| held.lock != lock.lock).cloned().collect();
        for held in before {
            let Some(first) = state.order.lock(held.lock).cloned() else { continue };
            if first.kind == LockKind::Rcu {
                continue;
            }
            let from = self.class(first.kind, names::class(state, &first));
            // Classes say nothing about the order of two locks of one class.
            if from == to {
                continue;
            }
            let in_driver = [held.stack, lock.stack].iter().any(|stack| is_in_driver(cx, *stack));
            let known = self.edges[from].iter().position(|edge| edge.to == to);
            // An edge of the driver replaces one of the kernel alone.
            if known.is_some_and(|known| !in_driver || self.edges[from][known].in_driver) {
                continue;
            }
            let edge = Edge {
                to,
                in_driver,
                stacks: (held.stack, lock.stack),
                besides: context
                    .order
                    .held
                    .iter()
                    .filter(|other| other.mode == LockMode::Exclusive)
                    .map(|other| other.lock)
                    .filter(|&other| other != held.lock && other != lock.lock)
                    .collect(),
                shared: held.mode == LockMode::Shared && lock.mode == LockMode::Shared,
                names: (names::lock(state, &first), names::lock(state, &info)),
                context: names::who(cx),
            };
            if let Some(path) = self.path(to, from) {
                self.report(cx, &edge, &path);
            }
            match known {
                Some(known) => self.edges[from][known] = edge,
                None => {
                    self.edges[from].push(edge);
                    self.count += 1;
                }
            }
        }
    }

    /// The edges on a shortest path from class `from` to class `to`; `None` where there is no path.
    fn path(&self, from: usize, to: usize) -> Option<Vec<Edge>> {
        let mut came: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        let mut queue = VecDeque::from([(from, 0)]);
        while let Some((at, depth)) = queue.pop_front() {
            if at == to {
                let mut path = Vec::new();
                let mut at = to;
                while at != from {
                    let &(before, index) = came.get(&at)?;
                    path.push(self.edges[before][index].clone());
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            if depth >= MAX_CYCLE {
                continue;
            }
            for (index, edge) in self.edges[at].iter().enumerate() {
                if edge.to != from && !came.contains_key(&edge.to) {
                    came.insert(edge.to, (at, index));
                    queue.push_back((edge.to, depth + 1));
                }
            }
        }
        None
    }

    fn report(&self, cx: &mut Cx<'_>, edge: &Edge, path: &[Edge]) {
        let state = cx.state;
        // Readers do not exclude each other. A lock that is held around all of the cycle keeps the orders
        // apart.
        let readers = edge.shared && path.iter().all(|edge| edge.shared);
        let guarded = edge.besides.iter().any(|guard| path.iter().all(|other| other.besides.contains(guard)));
        // A cycle of the kernel alone is not the driver's.
        let foreign = !edge.in_driver && path.iter().all(|edge| !edge.in_driver);
        if readers || guarded || foreign {
            return;
        }
        cx.report(NAME, "lock-order", Site::Stack(edge.stacks.1), || {
            let mut related =
                vec![names::related(state, format!("{} was taken first", edge.names.0), edge.stacks.0)];
            for other in path {
                let (first, second) = (&other.names.0, &other.names.1);
                let taken = format!("elsewhere, {second} was taken while {first} was held");
                related.push(Related {
                    context: Some(other.context.clone()),
                    ..names::related(state, taken, other.stacks.1)
                });
                related.push(names::related(state, format!("{first} had been taken"), other.stacks.0));
            }
            let way: Vec<&str> = path.iter().map(|edge| edge.names.1.as_str()).collect();
            Draft {
                related,
                ..Draft::error(format!(
                    "{} is taken while {} is held, and elsewhere the other way round ({} -> {})",
                    edge.names.1,
                    edge.names.0,
                    path.first().map_or("", |edge| edge.names.0.as_str()),
                    way.join(" -> "),
                ))
            }
        });
    }
}
