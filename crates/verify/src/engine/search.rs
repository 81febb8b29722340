//! All states that the driver and its protocols reach together.

use super::values::{Known, Limits, PATH, SEARCH, Work, first_free};
use crate::messages::{Mail, Protocols};
use crate::program::expression::Arena;
use crate::program::{Action, Cell, Origin, Program};
use rustc_hash::FxHashMap;
use std::time::Instant;

/// Limits of a search.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// When it ends.
    pub deadline: Instant,
    /// How many states it may have.
    pub states: usize,
    /// How many states all searches of a decision may have together.
    pub work: usize,
}

/// A state of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Where the driver is.
    pub node: u32,
    /// Index of the protocols' states.
    pub modes: u32,
    /// Index of what is known of cells.
    pub known: u32,
    /// The number of the atomic message that is handled, plus 1; 0 where the driver may sleep.
    pub atomic: u8,
}

/// A step from a state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The edge of the program.
    pub edge: u32,
    /// The message that an AWAIT received, by number.
    pub received: Option<u8>,
    /// The state after it, by index.
    pub to: u32,
}

/// What a rule says against a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrong {
    /// Rule 1: the message, by number.
    Emit(u64),
    /// Rule 3: the mask.
    Await(u64),
    /// Rule 5: the protocol's index.
    End(usize),
    /// Rule 6: what sleeps.
    Sleep(String),
    /// The number that is sent, or the mask, is not known.
    Open,
}

/// A step that breaks a rule, or the end of the program in a state that does.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The state, by index.
    pub state: u32,
    /// The edge; absent at the end.
    pub edge: Option<u32>,
    /// What is wrong.
    pub what: Wrong,
}

/// The states that were found.
pub struct Graph<'p> {
    /// The program.
    pub program: &'p Program,
    /// The protocols.
    pub protocols: &'p Protocols,
    /// The expressions of the program and of the states.
    pub arena: Arena,
    /// Which cells are followed.
    pub tracked: Vec<bool>,
    /// Cells that are never followed.
    pub lost: Vec<bool>,
    /// Cells whose unknown value the device or the kernel decides.
    pub inputs: Vec<bool>,
    /// Which cells are live at each place, of those that are followed.
    live: Vec<Vec<u64>>,
    rank: Vec<u32>,
    /// Protocol states.
    pub modes: Vec<Vec<u8>>,
    mode_index: FxHashMap<Vec<u8>, u32>,
    /// What is known in states.
    pub known: Vec<Known>,
    known_index: FxHashMap<Known, u32>,
    /// All states.
    pub states: Vec<State>,
    index: FxHashMap<State, u32>,
    /// Steps from each state.
    pub steps: Vec<Vec<Step>>,
    /// The state from which each was reached first, with the step.
    pub from: Vec<Option<(u32, Step)>>,
    /// Steps that break a rule. They are not followed.
    pub violations: Vec<Violation>,
    /// Names of messages that the program may not use, with the edge.
    pub foreign: Vec<(u32, String)>,
}

/// One outcome of an action.
pub struct Outcome {
    /// What is known after it.
    pub known: Known,
    /// The protocols' states after it.
    pub modes: Vec<u8>,
    /// See [`State::atomic`].
    pub atomic: u8,
    /// The message that was received.
    pub received: Option<u8>,
    /// Whether something was forgotten.
    pub forgot: bool,
}

/// What is known before an action.
pub struct Before {
    /// Of cells.
    pub known: Known,
    /// Of protocols.
    pub modes: Vec<u8>,
    /// See [`State::atomic`].
    pub atomic: u8,
}

/// What one needs to take a step.
pub struct Stepper<'a> {
    /// The program.
    pub program: &'a Program,
    /// The protocols.
    pub protocols: &'a Protocols,
    /// Cells that are followed; all if absent.
    pub tracked: Option<&'a [bool]>,
    /// Cells that never are.
    pub lost: &'a [bool],
    /// See [`Work::inputs`].
    pub inputs: Option<&'a [bool]>,
    /// Limits of knowledge.
    pub limits: Limits,
}

/// What an action leads to.
#[derive(Default)]
pub struct Result {
    /// The outcomes.
    pub outcomes: Vec<Outcome>,
    /// What breaks a rule.
    pub wrong: Option<Wrong>,
    /// A message that the program may not use.
    pub foreign: Option<String>,
}

impl Stepper<'_> {
    /// What is known, while it changes.
    pub fn work<'a>(&'a self, arena: &'a mut Arena, known: Known) -> Work<'a> {
        let next = first_free(arena, &known);
        Work {
            arena,
            known,
            next,
            tracked: self.tracked,
            lost: self.lost,
            inputs: self.inputs,
            limits: self.limits,
            forgot: false,
        }
    }

    /// Takes an action.
    pub fn step(&self, arena: &mut Arena, before: Before, action: &Action) -> Result {
        let Before { known, mut modes, atomic } = before;
        let mut work = self.work(arena, known);
        let mut result = Result::default();
        match action {
            Action::Skip => {}
            Action::Assume(condition) => {
                if !work.assume(*condition) {
                    return result;
                }
            }
            Action::Assign(all) => work.assign(all),
            Action::Sleep(bit, name) => {
                let value = work.value(*bit);
                if atomic != 0 && work.decide(value) != Some(false) {
                    result.wrong = Some(Wrong::Sleep(name.to_string()));
                }
            }
            Action::Emit(number) => {
                let value = work.value(*number);
                let Some(number) = work.arena.number(value) else {
                    result.wrong = Some(Wrong::Open);
                    return result;
                };
                let mail = match self.protocols.mail(number) {
                    Ok(mail) => mail,
                    Err(what) => {
                        result.foreign = Some(what);
                        return result;
                    }
                };
                match self.protocols.step(&modes, mail) {
                    Some(next) => modes = next,
                    None => {
                        result.wrong = Some(Wrong::Emit(number));
                        return result;
                    }
                }
            }
            Action::Await(mask, cell) => {
                let value = work.value(*mask);
                let Some(mask) = work.arena.number(value) else {
                    result.wrong = Some(Wrong::Open);
                    return result;
                };
                let base = work.known;
                self.receive(arena, &modes, (mask, *cell), &base, &mut result);
                return result;
            }
        }
        let forgot = work.forgot;
        result.outcomes.push(Outcome { known: work.known, modes, atomic, received: None, forgot });
        result
    }

    /// Receives each awaited message that may come.
    fn receive(
        &self,
        arena: &mut Arena,
        modes: &[u8],
        (mask, cell): (u64, u32),
        base: &Known,
        result: &mut Result,
    ) {
        if !self.protocols.ends(modes, mask) {
            result.wrong = Some(Wrong::Await(mask));
        }
        for number in (0..64).filter(|number| mask >> number & 1 == 1) {
            let mail: Mail = match self.protocols.mail(number) {
                Ok(mail) => mail,
                Err(what) => {
                    result.foreign = Some(what);
                    continue;
                }
            };
            let Some(modes) = self.protocols.step(modes, mail) else { continue };
            let mut work = self.work(arena, base.clone());
            work.set(cell, 32, number);
            let atomic = if self.protocols.message(mail).sleeps { 0 } else { number as u8 + 1 };
            let known = work.known;
            result.outcomes.push(Outcome {
                known,
                modes,
                atomic,
                received: Some(number as u8),
                forgot: false,
            });
        }
    }
}

/// Why a search did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The time is up.
    Time,
    /// There are too many states.
    States,
}

impl<'p> Graph<'p> {
    /// Finds all states.
    pub fn explore(
        program: &'p Program,
        protocols: &'p Protocols,
        tracked: &[bool],
        budget: &Budget,
    ) -> std::result::Result<Graph<'p>, Stopped> {
        let lost: Vec<bool> = program.cells.iter().map(|cell| cell.lost).collect();
        let decided_outside = |cell: &Cell| {
            !cell.lost && matches!(cell.origin, Origin::Outside | Origin::Clock | Origin::Drained)
        };
        let inputs = program.cells.iter().map(decided_outside).collect();
        let mut graph = Graph {
            program,
            protocols,
            arena: program.arena.clone(),
            tracked: tracked.to_vec(),
            lost,
            inputs,
            live: Vec::new(),
            rank: Vec::new(),
            modes: Vec::new(),
            mode_index: FxHashMap::default(),
            known: Vec::new(),
            known_index: FxHashMap::default(),
            states: Vec::new(),
            index: FxHashMap::default(),
            steps: Vec::new(),
            from: Vec::new(),
            violations: Vec::new(),
            foreign: Vec::new(),
        };
        (graph.live, graph.rank) = live(program, tracked);
        let modes = graph.mode(protocols.start());
        let known = graph.knowledge(Known::default());
        graph.state(State { node: program.entry, modes, known, atomic: 0 }, None);
        let mut at = 0;
        while at < graph.states.len() {
            if at % 4096 == 0 && Instant::now() > budget.deadline {
                return Err(Stopped::Time);
            }
            if graph.states.len() > budget.states {
                return Err(Stopped::States);
            }
            graph.expand(at as u32);
            at += 1;
        }
        Ok(graph)
    }

    fn mode(&mut self, modes: Vec<u8>) -> u32 {
        if let Some(&index) = self.mode_index.get(&modes) {
            return index;
        }
        let index = self.modes.len() as u32;
        self.modes.push(modes.clone());
        self.mode_index.insert(modes, index);
        index
    }

    fn knowledge(&mut self, known: Known) -> u32 {
        if let Some(&index) = self.known_index.get(&known) {
            return index;
        }
        let index = self.known.len() as u32;
        self.known.push(known.clone());
        self.known_index.insert(known, index);
        index
    }

    fn state(&mut self, state: State, from: Option<(u32, Step)>) -> u32 {
        if let Some(&index) = self.index.get(&state) {
            return index;
        }
        let index = self.states.len() as u32;
        self.states.push(state);
        self.steps.push(Vec::new());
        self.from.push(from.map(|(before, step)| (before, Step { to: index, ..step })));
        self.index.insert(state, index);
        index
    }

    fn expand(&mut self, index: u32) {
        let state = self.states[index as usize];
        let modes = self.modes[state.modes as usize].clone();
        if state.node == self.program.exit {
            for (at, machine) in self.protocols.machines.iter().enumerate() {
                if !machine.states[modes[at] as usize].final_ {
                    self.violations.push(Violation { state: index, edge: None, what: Wrong::End(at) });
                }
            }
        }
        let known = self.known[state.known as usize].clone();
        let program = self.program;
        for &edge in &program.out[state.node as usize] {
            let step = &program.edges[edge as usize];
            let mut arena = std::mem::take(&mut self.arena);
            let stepper = Stepper {
                program,
                protocols: self.protocols,
                tracked: Some(&self.tracked),
                lost: &self.lost,
                inputs: None,
                limits: SEARCH,
            };
            let before = Before { known: known.clone(), modes: modes.clone(), atomic: state.atomic };
            let result = stepper.step(&mut arena, before, &step.action);
            if let Some(what) = result.wrong {
                self.violations.push(Violation { state: index, edge: Some(edge), what });
            }
            if let Some(what) = result.foreign {
                self.foreign.push((edge, what));
            }
            for outcome in result.outcomes {
                let words = &self.live[step.to as usize];
                let rank = &self.rank;
                let live = |cell: u32| {
                    let at = rank[cell as usize];
                    at != u32::MAX && words[at as usize / 64] >> (at % 64) & 1 == 1
                };
                let next = first_free(&arena, &outcome.known);
                let work = Work {
                    arena: &mut arena,
                    known: outcome.known,
                    next,
                    tracked: Some(&self.tracked),
                    lost: &self.lost,
                    inputs: None,
                    limits: SEARCH,
                    forgot: false,
                };
                let known = work.canonical(&live);
                let known = self.knowledge(known);
                let modes = self.mode(outcome.modes);
                let next = State { node: step.to, modes, known, atomic: outcome.atomic };
                let taken = Step { edge, received: outcome.received, to: 0 };
                let to = self.state(next, Some((index, taken)));
                self.steps[index as usize].push(Step { to, ..taken });
            }
            self.arena = arena;
        }
    }

    /// The steps from the start to a state.
    pub fn path(&self, state: u32) -> Vec<Step> {
        let (mut path, mut at) = (Vec::new(), state);
        while let Some((before, step)) = self.from[at as usize] {
            path.push(step);
            at = before;
        }
        path.reverse();
        path
    }
}

/// Of each place, the followed cells whose value may still be read; and the index of each followed cell.
fn live(program: &Program, tracked: &[bool]) -> (Vec<Vec<u64>>, Vec<u32>) {
    let mut rank = vec![u32::MAX; program.cells.len()];
    let mut count = 0u32;
    for (cell, on) in tracked.iter().enumerate() {
        if *on {
            rank[cell] = count;
            count += 1;
        }
    }
    let words = count.div_ceil(64).max(1) as usize;
    let mut live = vec![vec![0u64; words]; program.nodes.len()];
    let bit = |cell: u32| (rank[cell as usize] != u32::MAX).then(|| rank[cell as usize]);
    // What each edge reads and what it sets.
    let effects: Vec<(Vec<u32>, Vec<u32>)> = program
        .edges
        .iter()
        .map(|edge| {
            let mut reads = Vec::new();
            let mut sets = Vec::new();
            let mut read = |id| reads.extend(program.arena.cells(id).into_iter().filter_map(bit));
            match &edge.action {
                Action::Assume(id) | Action::Emit(id) | Action::Sleep(id, _) => read(*id),
                Action::Await(id, cell) => {
                    read(*id);
                    sets.extend(bit(*cell));
                }
                Action::Assign(all) => {
                    for (cell, value) in all {
                        if let (Some(at), value) = (bit(*cell), value) {
                            sets.push(at);
                            if let Some(value) = value {
                                read(*value);
                            }
                        }
                    }
                }
                Action::Skip => {}
            }
            (reads, sets)
        })
        .collect();
    let mut into: Vec<Vec<u32>> = vec![Vec::new(); program.nodes.len()];
    for (index, edge) in program.edges.iter().enumerate() {
        into[edge.to as usize].push(index as u32);
    }
    let mut work: Vec<u32> = (0..program.nodes.len() as u32).collect();
    let mut queued = vec![true; program.nodes.len()];
    while let Some(node) = work.pop() {
        queued[node as usize] = false;
        for &edge in &into[node as usize] {
            let (reads, sets) = &effects[edge as usize];
            let mut new = live[node as usize].clone();
            for at in sets {
                new[*at as usize / 64] &= !(1 << (at % 64));
            }
            for at in reads {
                new[*at as usize / 64] |= 1 << (at % 64);
            }
            let from = program.edges[edge as usize].from as usize;
            let mut grew = false;
            for (old, new) in live[from].iter_mut().zip(&new) {
                grew |= *new & !*old != 0;
                *old |= new;
            }
            if grew && !queued[from] {
                queued[from] = true;
                work.push(from as u32);
            }
        }
    }
    (live, rank)
}

/// A stepper that follows these cells along one path.
pub fn along<'a>(graph: &'a Graph<'_>, tracked: Option<&'a [bool]>) -> Stepper<'a> {
    Stepper {
        program: graph.program,
        protocols: graph.protocols,
        tracked,
        lost: &graph.lost,
        inputs: Some(&graph.inputs),
        limits: PATH,
    }
}
