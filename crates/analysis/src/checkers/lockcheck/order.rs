//! The order in which locks are taken: a graph over classes, and the cycles in it.

use super::NAME;
use crate::checker::{Cx, Draft, Site};
use crate::checkers::names::{self, Class};
use crate::machine::State;
use crate::order::{Acquired, LockId, LockInfo};
use crate::stacks::StackId;
use guardrail_finding::{ContextInfo, Related};
use guardrail_knowledge::effect::{LockKind, LockMode};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// Most classes and most edges that are known.
const MAX_EDGES: usize = 1 << 14;
/// Longest cycle that is searched for, in edges.
const MAX_CYCLE: usize = 8;

/// How a context takes or holds a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    /// Number of the class.
    pub class: usize,
    /// As a reader that does not wait for other readers. Those of an rw_semaphore do: a writer may wait between
    /// them.
    pub reads: bool,
}

impl Hold {
    /// Whether a context that takes a lock of the class waits for one that holds it.
    pub fn waits_for(self, holder: Hold) -> bool {
        self.class == holder.class && !(self.reads && holder.reads)
    }
}

/// A lock was taken while another one was held.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    /// The lock that was held.
    pub from: Hold,
    /// The lock that was taken.
    pub to: Hold,
    /// The stacks where the first and the second lock were taken.
    pub stacks: (StackId, StackId),
    /// The other locks that were held exclusively.
    pub besides: Vec<LockId>,
    /// Code of the driver was running where one of the locks was taken.
    in_driver: bool,
    /// Names of the two locks.
    pub names: (String, String),
    /// The context that took them.
    pub context: ContextInfo,
}

/// Place of an edge in the graph: its first class, and a position there.
pub(super) type EdgeId = (usize, usize);

/// The graph of classes and edges.
#[derive(Debug, Default)]
pub(super) struct Order {
    classes: FxHashMap<(LockKind, Class), usize>,
    /// By the class of the first lock.
    edges: Vec<Vec<Edge>>,
    count: usize,
    /// Classes that order nothing: semaphores that count, which others give back than those who took them.
    counting: FxHashSet<usize>,
}

/// Whether code of a driver under check is on the near part of a stack.
fn is_in_driver(cx: &Cx<'_>, stack: StackId) -> bool {
    cx.state.stacks.get(stack).iter().any(|&at| cx.state.modules.contains(at))
}

/// The locks that a context holds exclusively, but for some.
pub(super) fn besides(held: &[Acquired], but: &[LockId]) -> Vec<LockId> {
    let exclusive = held.iter().filter(|other| other.mode == LockMode::Exclusive);
    exclusive.map(|other| other.lock).filter(|other| !but.contains(other)).collect()
}

impl Order {
    /// The class of a lock, and how the lock is taken. `None` where it is not known, or there are too many
    /// classes.
    pub fn hold(&mut self, state: &State, lock: &Acquired) -> Option<Hold> {
        let info = state.order.lock(lock.lock)?;
        let class = self.class(state, info).filter(|class| !self.counting.contains(class))?;
        Some(Hold { class, reads: info.kind == LockKind::Rw && lock.mode == LockMode::Shared })
    }

    fn class(&mut self, state: &State, info: &LockInfo) -> Option<usize> {
        let (next, key) = (self.edges.len(), (info.kind, names::class(state, info)));
        if next >= MAX_EDGES && !self.classes.contains_key(&key) {
            return None;
        }
        let class = *self.classes.entry(key).or_insert(next);
        if class == next {
            self.edges.push(Vec::new());
        }
        Some(class)
    }

    /// A context gave a semaphore back that it does not hold.
    pub fn counts(&mut self, state: &State, info: &LockInfo) {
        let class = self.class(state, info);
        self.counting.extend(class);
    }

    /// An edge of the graph.
    pub fn edge(&self, (class, at): EdgeId) -> Option<&Edge> {
        self.edges.get(class)?.get(at)
    }

    /// The edges whose first lock a context waits for that takes it as `taken`.
    pub fn after(&self, taken: Hold) -> impl Iterator<Item = (EdgeId, &Edge)> {
        let edges = self.edges.get(taken.class).into_iter().flatten().enumerate();
        edges
            .filter(move |(_, edge)| taken.waits_for(edge.from) && !self.counting.contains(&edge.to.class))
            .map(move |(at, edge)| ((taken.class, at), edge))
    }

    /// A lock was taken: `cx.context.order.held` ends with it. Returns the edges that are new.
    pub fn locked(&mut self, cx: &mut Cx<'_>, lock: &Acquired) -> Vec<EdgeId> {
        let (Some(context), state) = (cx.context, cx.state) else { return Vec::new() };
        let kind = |lock: &Acquired| state.order.lock(lock.lock).map(|info| info.kind);
        if lock.tried || kind(lock) == Some(LockKind::Rcu) || context.order.held.len() < 2 {
            return Vec::new();
        }
        let Some(to) = self.hold(state, lock) else { return Vec::new() };
        let before: Vec<Acquired> =
            context.order.held.iter().filter(|held| held.lock != lock.lock).cloned().collect();
        let mut new = Vec::new();
        for held in before.iter().filter(|held| kind(held) != Some(LockKind::Rcu)) {
            if self.count >= MAX_EDGES {
                break;
            }
            // Classes say nothing about the order of two locks of one class.
            let Some(from) = self.hold(state, held).filter(|from| from.class != to.class) else { continue };
            let in_driver = [held.stack, lock.stack].iter().any(|stack| is_in_driver(cx, *stack));
            let same = |edge: &Edge| (edge.from, edge.to) == (from, to);
            let known = self.edges[from.class].iter().position(same);
            // An edge of the driver replaces one of the kernel alone.
            if known.is_some_and(|known| !in_driver || self.edges[from.class][known].in_driver) {
                continue;
            }
            let name = |lock: &Acquired| state.order.lock(lock.lock).map(|info| names::lock(state, info));
            let edge = Edge {
                from,
                to,
                in_driver,
                stacks: (held.stack, lock.stack),
                besides: besides(&context.order.held, &[held.lock, lock.lock]),
                names: (name(held).unwrap_or_default(), name(lock).unwrap_or_default()),
                context: names::who(cx),
            };
            if let Some(path) = self.path(to, from) {
                report(cx, &edge, &path);
            }
            match known {
                Some(known) => self.edges[from.class][known] = edge,
                None => {
                    new.push((from.class, self.edges[from.class].len()));
                    self.edges[from.class].push(edge);
                    self.count += 1;
                }
            }
        }
        new
    }

    /// The edges on a shortest path from where a context waits for `taken` to where one waits for a holder of
    /// `held`; `None` where there is no path.
    fn path(&self, taken: Hold, held: Hold) -> Option<Vec<&Edge>> {
        let mut came: FxHashMap<Hold, (Hold, EdgeId)> = FxHashMap::default();
        let mut queue = VecDeque::from([(taken, 0)]);
        while let Some((at, depth)) = queue.pop_front() {
            if at.waits_for(held) {
                let mut path = Vec::new();
                let mut at = at;
                while at != taken {
                    let &(before, edge) = came.get(&at)?;
                    path.push(self.edge(edge)?);
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            if depth >= MAX_CYCLE {
                continue;
            }
            for (id, edge) in self.after(at) {
                if edge.to != taken && !came.contains_key(&edge.to) {
                    came.insert(edge.to, (at, id));
                    queue.push_back((edge.to, depth + 1));
                }
            }
        }
        None
    }
}

/// Whether a lock is held around all of these edges: it keeps them apart.
pub(super) fn guarded(besides: &[LockId], path: &[&Edge]) -> bool {
    besides.iter().any(|guard| path.iter().all(|other| other.besides.contains(guard)))
}

/// Reports the cycle that an edge closes with a path.
fn report(cx: &mut Cx<'_>, edge: &Edge, path: &[&Edge]) {
    let state = cx.state;
    // A cycle of the kernel alone is not the driver's.
    let foreign = !edge.in_driver && path.iter().all(|edge| !edge.in_driver);
    if foreign || guarded(&edge.besides, path) {
        return;
    }
    cx.report(NAME, "lock-order", Site::Stack(edge.stacks.1), || {
        let first = names::related(state, format!("{} was taken first", edge.names.0), edge.stacks.0);
        let related = std::iter::once(first).chain(path.iter().flat_map(|other| taken(state, other)));
        let way: Vec<&str> = path.iter().map(|edge| edge.names.1.as_str()).collect();
        Draft {
            related: related.collect(),
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

/// Where the two locks of an edge were taken.
pub(super) fn taken(state: &State, edge: &Edge) -> [Related; 2] {
    let (first, second) = (&edge.names.0, &edge.names.1);
    let inner =
        names::related(state, format!("elsewhere, {second} was taken while {first} was held"), edge.stacks.1);
    [
        Related { context: Some(edge.context.clone()), ..inner },
        names::related(state, format!("{first} had been taken"), edge.stacks.0),
    ]
}
