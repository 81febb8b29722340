//! The loop: search, find what breaks a rule, follow it, and search again with more cells where it is impossible.

use crate::engine::liveness::{self, Duty, Ended};
use crate::engine::parts::Move;
use crate::engine::refine::{Footprint, Judge, Judged, repeats};
use crate::engine::replay::Claim;
use crate::engine::search::{Budget, Graph, Step, Stopped, Violation, Wrong};
use crate::messages::{Mail, Protocols};
use crate::program::{Program, Source, translate};
use rustc_hash::FxHashSet;
use std::collections::BTreeSet;
use std::time::Instant;

/// How many rounds of refinement there may be.
const ROUNDS: u32 = 200;
/// Where rules are known to be broken, how much larger a later search may get, which looks for more.
const GROWTH: usize = 4;
/// What such a search may have in any case.
const LEAST: usize = 200_000;
/// How many states the searches may have together that follow structures.
const SECOND: usize = 2_400_000;
/// How many violations are followed in one round.
const AT_ONCE: usize = 60;
/// How often a cycle is gone through to see whether it can be.
const TURNS: usize = 3;

/// A run that breaks a rule.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it breaks.
    pub rule: Broken,
    /// The steps up to it, or up to where it begins to go around.
    pub path: Vec<Step>,
    /// The edge that breaks it, or the steps that go around.
    pub last: Option<u32>,
    /// See `last`.
    pub cycle: Vec<Step>,
    /// Whether it can happen for certain.
    pub feasible: bool,
}

/// What a run breaks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Broken {
    /// Rules 1, 3, 5 and 6.
    Step(Wrong),
    /// Rules 2 and 4.
    Duty(Duty),
}

impl Broken {
    /// The number of the rule.
    pub fn rule(&self) -> u32 {
        match self {
            Broken::Step(Wrong::Emit(_) | Wrong::Open) => 1,
            Broken::Duty(Duty::Await(_)) => 2,
            Broken::Step(Wrong::Await(_)) => 3,
            Broken::Duty(Duty::Leave(..)) => 4,
            Broken::Step(Wrong::End(_)) => 5,
            Broken::Step(Wrong::Sleep(_)) => 6,
        }
    }
}

/// The end of the loop.
pub enum Outcome {
    /// All rules hold.
    Proved,
    /// Some do not.
    Broken(Vec<Fault>),
    /// A limit was reached: why.
    Undecided(String),
    /// The program cannot be followed, or is wrong: one sentence.
    Refused(String),
}

/// What was done to decide.
pub struct Decision<'p> {
    /// The end.
    pub outcome: Outcome,
    /// The last search.
    pub graph: Option<Graph<'p>>,
    /// Rounds of refinement.
    pub rounds: u32,
    /// Why runs end, for each duty.
    pub ended: Vec<(Duty, Vec<Ended>)>,
    /// Messages whose rules are missing: a run was found that these rule out. Nothing is decided then.
    pub missing: BTreeSet<Mail>,
    /// Cells that were followed.
    pub tracked: Vec<bool>,
}

/// Which rules are asked for, and which runs cannot be whatever the driver does.
pub trait Focus {
    /// Whether a break of this rule counts.
    fn asks(&self, what: &Broken) -> bool;
    /// Messages of a run that the protocols as a whole do not allow. The run goes around its cycle in the end, if it
    /// has one, and breaks a rule in its last step, if that is given.
    fn missing(
        &self,
        graph: &Graph<'_>,
        path: &[Step],
        cycle: &[Step],
        last: Option<&Violation>,
    ) -> BTreeSet<Mail>;
}

/// All rules, of whole protocols.
struct All;

impl Focus for All {
    fn asks(&self, _: &Broken) -> bool {
        true
    }

    fn missing(&self, _: &Graph<'_>, _: &[Step], _: &[Step], _: Option<&Violation>) -> BTreeSet<Mail> {
        BTreeSet::new()
    }
}

/// Cells that are followed from the start.
pub fn seeds(program: &Program) -> Vec<bool> {
    let mut tracked = vec![false; program.cells.len()];
    for &seed in &program.seeds {
        tracked[seed as usize] = !program.cells[seed as usize].lost;
    }
    tracked
}

/// Decides all rules.
pub fn decide<'p>(program: &'p Program, protocols: &'p Protocols, budget: &Budget) -> Decision<'p> {
    decide_some(program, protocols, budget, seeds(program), &All)
}

/// Translates a program and decides all rules, first without what the driver's structures hold. Where something seems
/// broken then, they are followed too. What the first search found stands if that takes too many states.
pub fn decided<T>(
    source: &Source<'_>,
    protocols: &Protocols,
    budget: &Budget,
    mut judge: impl FnMut(&Program, Decision<'_>) -> T,
) -> Result<T, String> {
    let first = translate(&Source { deep: false, ..source.clone() })?;
    let decision = decide(&first, protocols, budget);
    if !matches!(decision.outcome, Outcome::Broken(_)) {
        return Ok(judge(&first, decision));
    }
    let second = translate(&Source { deep: true, ..source.clone() })?;
    let again = decide(&second, protocols, &Budget { work: SECOND, ..*budget });
    Ok(match again.outcome {
        Outcome::Proved | Outcome::Broken(_) => judge(&second, again),
        _ => judge(&first, decision),
    })
}

/// Decides the rules that are asked for. `tracked` are the cells that are followed from the start.
pub fn decide_some<'p>(
    program: &'p Program,
    protocols: &'p Protocols,
    budget: &Budget,
    mut tracked: Vec<bool>,
    focus: &dyn Focus,
) -> Decision<'p> {
    let footprint = Footprint::new(program);
    let (mut rounds, mut work) = (0, 0);
    // What the last round found to be broken, or could rule out by counters in memory only. A limit does not hide it.
    let mut broken: Option<(Vec<Fault>, Graph<'p>)> = None;
    loop {
        rounds += 1;
        let followed = tracked.clone();
        let end = |outcome, graph, missing| Decision {
            outcome,
            graph,
            rounds,
            ended: Vec::new(),
            missing,
            tracked: followed.clone(),
        };
        let stop = |outcome, missing| end(outcome, None, missing);
        let mut limits = *budget;
        limits.states = limits.states.min(budget.work - work);
        if let Some((_, graph)) = &broken {
            limits.states = limits.states.min(graph.states.len().saturating_mul(GROWTH).max(LEAST));
        }
        let explored = Graph::explore(program, protocols, &tracked, &limits);
        if let (Err(_), Some((mut faults, graph))) = (&explored, broken.take()) {
            faults.sort_by_key(|fault| (fault.rule.rule(), fault.path.len()));
            return end(Outcome::Broken(faults), Some(graph), BTreeSet::new());
        }
        let mut graph = match explored {
            Ok(graph) => graph,
            Err(Stopped::States) if limits.states < budget.states => {
                return stop(
                    Outcome::Undecided(format!("all searches have {} states", budget.work)),
                    BTreeSet::new(),
                );
            }
            Err(Stopped::Time) => return stop(out_of_time(), BTreeSet::new()),
            Err(Stopped::States) => {
                return stop(
                    Outcome::Undecided(format!("there are more than {} states", budget.states)),
                    BTreeSet::new(),
                );
            }
        };
        work = budget.work.min(work + graph.states.len());
        if rounds > ROUNDS {
            return stop(Outcome::Undecided(format!("{ROUNDS} refinements do not do")), BTreeSet::new());
        }
        let mut round = Round {
            graph: &mut graph,
            footprint: &footprint,
            focus,
            missing: BTreeSet::new(),
            more: FxHashSet::default(),
            faults: Vec::new(),
            doubtful: Vec::new(),
            stuck: false,
        };
        round.safety();
        let mut ended = Vec::new();
        if round.more.is_empty() && round.missing.is_empty() {
            round.liveness(&mut ended, budget.deadline);
        }
        let Round { more, mut faults, doubtful, stuck, missing, .. } = round;
        if !missing.is_empty() {
            return stop(Outcome::Undecided("rules of messages are missing".to_owned()), missing);
        }
        let new: Vec<u32> = more.into_iter().filter(|cell| !tracked[*cell as usize]).collect();
        if !new.is_empty() {
            if Instant::now() > budget.deadline {
                return stop(out_of_time(), BTreeSet::new());
            }
            for cell in new {
                tracked[cell as usize] = true;
            }
            faults.retain(|fault| fault.rule != Broken::Step(Wrong::Open));
            if faults.is_empty() {
                faults = doubtful;
                let mut seen = FxHashSet::default();
                faults.retain(|fault| seen.insert((fault.last, fault.rule.clone())));
            }
            broken = (!faults.is_empty() && graph.foreign.is_empty()).then_some((faults, graph));
            continue;
        }
        let outcome = outcome(&graph, faults, stuck);
        return Decision {
            outcome,
            graph: Some(graph),
            rounds,
            ended,
            missing: BTreeSet::new(),
            tracked: followed,
        };
    }
}

/// What a search says that needs no more cells.
fn outcome(graph: &Graph<'_>, mut faults: Vec<Fault>, stuck: bool) -> Outcome {
    if let Some(text) = foreign(graph) {
        return Outcome::Refused(text);
    }
    if let Some(open) = faults.iter().find(|fault| fault.rule == Broken::Step(Wrong::Open)) {
        let program = graph.program;
        let line = open.last.map(|edge| program.location(&program.edges[edge as usize].line));
        return Outcome::Refused(format!(
            "which messages are sent or awaited at {} is not constant, and the engine cannot follow it",
            line.unwrap_or_default()
        ));
    }
    if !faults.is_empty() {
        faults.sort_by_key(|fault| (fault.rule.rule(), fault.path.len()));
        return Outcome::Broken(faults);
    }
    if stuck {
        return Outcome::Undecided(
            "a run that cannot happen is not ruled out by cells that can be followed".to_owned(),
        );
    }
    Outcome::Proved
}

fn out_of_time() -> Outcome {
    Outcome::Undecided("the time is up".to_owned())
}

/// Messages that the program may not use, where it can reach them.
fn foreign(graph: &Graph<'_>) -> Option<String> {
    let (edge, what) = graph.foreign.first()?;
    let line = graph.program.location(&graph.program.edges[*edge as usize].line);
    Some(format!("{line} uses {what}"))
}

struct Round<'g, 'p> {
    graph: &'g mut Graph<'p>,
    footprint: &'g Footprint,
    focus: &'g dyn Focus,
    missing: BTreeSet<Mail>,
    more: FxHashSet<u32>,
    faults: Vec<Fault>,
    /// Runs that only counters in memory rule out. A longer run may break the same rule.
    doubtful: Vec<Fault>,
    stuck: bool,
}

impl Round<'_, '_> {
    fn safety(&mut self) {
        let mut seen = FxHashSet::default();
        let mut failed = FxHashSet::default();
        let costs = &self.footprint.costs;
        let mut judge = Judge::new(self.footprint);
        for violation in &self.graph.violations.clone() {
            let Violation { state, edge, what } = violation;
            let key = (*edge, what.clone());
            if seen.contains(&key) || failed.len() > AT_ONCE || !self.focus.asks(&Broken::Step(what.clone()))
            {
                continue;
            }
            let path = self.graph.path(*state);
            let missing = self.focus.missing(self.graph, &path, &[], Some(violation));
            if !missing.is_empty() {
                self.missing.extend(missing);
                continue;
            }
            let claim = Claim { path: &path, last: edge.map(|edge| (edge, what)) };
            match judge.judge(self.graph, &claim) {
                Judged::Ruled(cells) => {
                    let counts = cells
                        .iter()
                        .any(|cell| costs[*cell as usize] == 2 && !self.graph.tracked[*cell as usize]);
                    if counts {
                        let rule = Broken::Step(what.clone());
                        let cycle = Vec::new();
                        self.doubtful.push(Fault { rule, path, last: *edge, cycle, feasible: false });
                    }
                    failed.insert((*state, key));
                    self.ruled(cells);
                }
                Judged::Breaks(feasible) => {
                    seen.insert(key);
                    self.faults.push(Fault {
                        rule: Broken::Step(what.clone()),
                        path,
                        last: *edge,
                        cycle: Vec::new(),
                        feasible,
                    });
                }
            }
        }
    }

    /// Follows more cells. A path that those which are followed rule out already is not understood.
    fn ruled(&mut self, cells: Vec<u32>) {
        self.stuck |= cells.iter().all(|cell| self.graph.tracked[*cell as usize]);
        self.more.extend(cells);
    }

    fn liveness(&mut self, ended: &mut Vec<(Duty, Vec<Ended>)>, deadline: Instant) {
        for duty in liveness::duties(self.graph) {
            if !self.focus.asks(&Broken::Duty(duty.clone())) {
                continue;
            }
            let moves = liveness::region(self.graph, &duty);
            match liveness::ends(self.graph, &moves) {
                Ok(why) => ended.push((duty, why)),
                Err(part) => self.staying(duty, &part),
            }
            if Instant::now() > deadline {
                self.stuck = true;
                return;
            }
        }
    }

    /// A run that may stay where it must not.
    fn staying(&mut self, duty: Duty, part: &[Move]) {
        let (start, cycle) = liveness::cycle(part);
        let stem = self.graph.path(start);
        let missing = self.focus.missing(self.graph, &stem, &cycle, None);
        if !missing.is_empty() {
            self.missing.extend(missing);
            return;
        }
        let mut path = stem.clone();
        for _ in 0..TURNS {
            path.extend(&cycle);
        }
        let claim = Claim { path: &path, last: None };
        match Judge::new(self.footprint).judge(self.graph, &claim) {
            Judged::Ruled(cells) => {
                self.ruled(cells);
            }
            Judged::Breaks(feasible) => {
                let again = feasible && repeats(self.graph, &claim, stem.len(), &cycle, self.footprint);
                self.faults.push(Fault {
                    rule: Broken::Duty(duty),
                    path: stem,
                    last: None,
                    cycle,
                    feasible: again,
                });
            }
        }
    }
}
