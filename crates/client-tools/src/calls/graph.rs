//! Open calls, and statistics of those that ended.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// A hash map with a fast hasher. Its keys are addresses, which need no protection from chosen keys.
type Map<K, V> = HashMap<K, V, BuildHasherDefault<rustc_hash::FxHasher>>;

/// Bytes of a kernel stack. Calls further apart are on different stacks.
const STACK: u64 = 1 << 14;
/// Most calls that may be open at once; more than fit on a kernel stack.
const MAX_OPEN: usize = 1 << 10;
/// Most functions and most pairs that are kept.
const MAX_KNOWN: usize = 1 << 20;

/// A call that has not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    function: u64,
    rsp: u64,
    entered: u64,
    caller: u64,
    /// Instructions of the calls that it made.
    callees: u64,
}

impl Open {
    /// Makes a call that begins now.
    pub fn new(function: u64, rsp: u64, entered: u64, caller: u64) -> Open {
        Open { function, rsp, entered, caller, callees: 0 }
    }

    /// Stack pointer at the call's first instruction.
    pub fn stack(&self) -> u64 {
        self.rsp
    }
}

/// Statistics of one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Number of calls that began.
    pub calls: u64,
    /// Number of calls that returned.
    pub returned: u64,
    /// Number of returned calls outside any other call of the same function.
    pub outermost: u64,
    /// Instructions of the outermost calls, including their callees.
    pub inclusive: u64,
    /// Instructions of the function itself, without callees.
    pub own: u64,
    /// Instructions of the longest call.
    pub longest: u64,
    /// One more than the instructions of the shortest call; 0 before the first return.
    shortest: u64,
}

impl Function {
    /// Instructions of the shortest call.
    pub fn shortest(&self) -> u64 {
        self.shortest.saturating_sub(1)
    }
}

/// Statistics of all calls on a vCPU.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Statistics of each function, by address.
    pub functions: Map<u64, Function>,
    /// Number of calls and their instructions, by caller and callee.
    pub edges: Map<(u64, u64), (u64, u64)>,
    /// Number of calls that ended without a return.
    pub unfinished: u64,
}

impl Graph {
    /// Counts a call that begins.
    pub fn began(&mut self, caller: u64, callee: u64, unfinished: u64) {
        self.unfinished += unfinished;
        if self.functions.len() < MAX_KNOWN || self.functions.contains_key(&callee) {
            self.functions.entry(callee).or_default().calls += 1;
        }
        if self.edges.len() < MAX_KNOWN || self.edges.contains_key(&(caller, callee)) {
            self.edges.entry((caller, callee)).or_default().0 += 1;
        }
    }

    fn ended(&mut self, call: &Open, length: u64, outermost: bool) {
        if let Some(known) = self.functions.get_mut(&call.function) {
            known.returned += 1;
            known.own += length.saturating_sub(call.callees);
            known.longest = known.longest.max(length);
            known.shortest = if known.shortest == 0 { length + 1 } else { known.shortest.min(length + 1) };
            if outermost {
                known.outermost += 1;
                known.inclusive += length;
            }
        } else if self.functions.len() < MAX_KNOWN {
            // The call began on another vCPU.
            self.functions.insert(call.function, Function::default());
            return self.ended(call, length, outermost);
        }
        if self.edges.len() < MAX_KNOWN || self.edges.contains_key(&(call.caller, call.function)) {
            self.edges.entry((call.caller, call.function)).or_default().1 += length;
        }
    }

    /// Adds the statistics of another vCPU.
    pub fn merge(&mut self, other: &Graph) {
        for (&address, more) in &other.functions {
            let known = self.functions.entry(address).or_default();
            known.calls += more.calls;
            known.returned += more.returned;
            known.outermost += more.outermost;
            known.inclusive += more.inclusive;
            known.own += more.own;
            known.longest = known.longest.max(more.longest);
            known.shortest = match (known.shortest, more.shortest) {
                (0, one) | (one, 0) => one,
                (one, other) => one.min(other),
            };
        }
        for (&key, more) in &other.edges {
            let known = self.edges.entry(key).or_default();
            *known = (known.0 + more.0, known.1 + more.1);
        }
        self.unfinished += other.unfinished;
    }
}

/// The innermost open function for a call that begins with this stack pointer.
pub fn caller(open: &[Open], rsp: u64) -> Option<u64> {
    open.iter().rfind(|call| !is_over(call, rsp)).map(|call| call.function)
}

/// Whether the stack has shrunk below the call's frame, so that the call cannot return there anymore.
fn is_over(call: &Open, rsp: u64) -> bool {
    call.rsp < rsp && rsp - call.rsp < STACK
}

/// Opens a call. Returns how many earlier calls it ends without a return.
pub fn enter(open: &mut Vec<Open>, call: Open) -> u64 {
    let before = open.len();
    while open.last().is_some_and(|last| is_over(last, call.rsp)) || open.len() >= MAX_OPEN {
        open.pop();
    }
    let unfinished = before - open.len();
    open.push(call);
    unfinished as u64
}

/// Handles a return with this stack pointer. It ends the call that began with that stack pointer, and
/// the functions that the call jumped to.
pub fn leave(open: &mut Vec<Open>, rsp: u64, now: u64, graph: &mut Graph) {
    let Some(first) = open.iter().rposition(|call| call.rsp == rsp) else { return };
    let abandoned = open.len() - 1 - first;
    graph.unfinished += abandoned as u64;
    // Calls that ended without a return have still run their callees.
    open[first].callees += open[first + 1..].iter().map(|call| call.callees).sum::<u64>();
    open.truncate(first + 1);
    while let Some(call) = open.pop_if(|call| call.rsp == rsp) {
        // The return instruction belongs to the function.
        let length = now.wrapping_sub(call.entered).wrapping_add(1);
        let outermost = open.iter().all(|below| below.function != call.function);
        graph.ended(&call, length, outermost);
        if let Some(below) = open.last_mut() {
            below.callees += length;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Run {
        open: Vec<Open>,
        graph: Graph,
    }

    impl Run {
        fn new() -> Run {
            Run { open: Vec::new(), graph: Graph::default() }
        }

        fn enter(&mut self, function: u64, rsp: u64, now: u64) {
            let caller = caller(&self.open, rsp).unwrap_or(0);
            let unfinished = enter(&mut self.open, Open::new(function, rsp, now, caller));
            self.graph.began(caller, function, unfinished);
        }

        fn leave(&mut self, rsp: u64, now: u64) {
            leave(&mut self.open, rsp, now, &mut self.graph);
        }

        fn of(&self, function: u64) -> (u64, u64, u64, u64) {
            let known = self.graph.functions[&function];
            (known.calls, known.returned, known.inclusive, known.own)
        }
    }

    #[test]
    fn instructions_are_charged_to_who_runs_them() {
        let mut run = Run::new();
        run.enter(1, 0x1000, 0);
        run.enter(2, 0x0f00, 10);
        run.leave(0x0f00, 19);
        run.enter(2, 0x0f00, 30);
        run.leave(0x0f00, 34);
        run.leave(0x1000, 49);
        assert_eq!(run.of(1), (1, 1, 50, 35));
        assert_eq!(run.of(2), (2, 2, 15, 15));
        let known = run.graph.functions[&2];
        assert_eq!((known.shortest(), known.longest), (5, 10));
        assert_eq!(run.graph.edges[&(1, 2)], (2, 15));
        assert_eq!(run.graph.edges[&(0, 1)], (1, 50));
        assert!(run.open.is_empty());
    }

    #[test]
    fn a_jump_to_a_function_ends_with_its_return() {
        let mut run = Run::new();
        run.enter(1, 0x1000, 0);
        run.enter(2, 0x1000, 4);
        run.leave(0x1000, 9);
        assert_eq!((run.of(1), run.of(2)), ((1, 1, 10, 4), (1, 1, 6, 6)));
        assert_eq!(run.graph.edges[&(1, 2)], (1, 6));
    }

    #[test]
    fn recursion_is_counted_once() {
        let mut run = Run::new();
        run.enter(1, 0x1000, 0);
        run.enter(1, 0x0f00, 10);
        run.leave(0x0f00, 19);
        run.leave(0x1000, 29);
        assert_eq!(run.of(1), (2, 2, 30, 30));
    }

    #[test]
    fn calls_that_never_return_are_given_up() {
        let mut run = Run::new();
        run.enter(1, 0x1000, 0);
        run.enter(2, 0x0f00, 5);
        // On the interrupt stack, far away; then back and out of both.
        run.enter(3, 0xf_0000, 6);
        run.leave(0xf_0000, 7);
        run.leave(0x1000, 9);
        assert_eq!(run.of(1), (1, 1, 10, 8));
        assert_eq!(run.of(2), (1, 0, 0, 0));
        assert_eq!(run.graph.unfinished, 1);
        // A return without a known call.
        run.leave(0x2000, 20);
        (0..2 * MAX_OPEN as u64).for_each(|i| run.enter(4, 0x10_0000 - i, i));
        assert!(run.open.len() <= MAX_OPEN);
    }
}
