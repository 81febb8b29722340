//! Checks a certificate: the start is in it, each step from it leads into it, no step breaks a rule, and runs end
//! where they must.
//!
//! It is a program of its own beside the search. Shared are the parser, the control skeleton, the parser of charts, and
//! the names of operations. Steps of protocols are taken from the charts ([`charts`]). Conditions are decided bit by bit
//! by a small solver ([`blast`], [`solver`]) over terms that are not simplified ([`terms`]). What a listed unknown number
//! stands for is guessed ([`witness`]); a wrong guess is a refusal, never a proof. [`ending`] is about rules 2 and 4.

pub mod blast;
pub mod charts;
mod ending;
mod read;
pub mod script;
pub mod solver;
mod steps;
pub mod terms;
mod witness;

use crate::certificate::{Certificate, FORMAT, digest};
use crate::program::Program;
use blast::together;
use charts::Charts;
use guardrail_protocol::model::Protocol;
use rustc_hash::{FxHashMap, FxHashSet};
use script::Script;
use solver::Answer;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;
use terms::{Id, Terms};

/// The first name of unknown numbers that no certificate has.
const FRESH: u32 = 1 << 20;

/// What is known, over unknown numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    cells: BTreeMap<u32, Id>,
    conditions: Vec<Id>,
}

/// A step that the check has seen, with the listed state that holds what is after it.
#[derive(Clone, Copy, Debug)]
struct Seen {
    from: u32,
    edge: u32,
    to: u32,
    /// What an AWAIT waits for; 0 for other edges.
    mask: u64,
}

pub(crate) struct Checker<'a> {
    program: &'a Program,
    charts: Charts<'a>,
    terms: Terms,
    followed: Vec<bool>,
    views: Vec<View>,
    /// The protocols' states, each a leaf of its chart.
    modes: Vec<Vec<u16>>,
    fresh: u32,
    decided: FxHashMap<Vec<Id>, bool>,
    script: Option<Script>,
    deadline: Instant,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// What it takes for granted beside what the translation does: why runs end that no number ends.
    pub assumptions: BTreeSet<String>,
    /// How many steps were checked.
    pub steps: usize,
}

/// Checks a certificate. `stock` are all protocols, in the order in which their messages are numbered. An error is one
/// sentence.
pub fn check(
    certificate: &Certificate,
    program: &Program,
    stock: &[&Protocol],
    deadline: Instant,
) -> Result<Checked, String> {
    let mut checker = Checker::new(certificate, program, stock, deadline)?;
    let seen = checker.invariant(certificate)?;
    let mut checked = Checked { steps: seen.len(), ..Checked::default() };
    ending::check(&mut checker, certificate, &seen, &mut checked.assumptions)?;
    Ok(checked)
}

/// The obligations of a certificate in SMT-LIB 2, each to be found unsatisfiable by another solver, and their number.
pub fn obligations(
    certificate: &Certificate,
    program: &Program,
    stock: &[&Protocol],
    deadline: Instant,
) -> Result<(String, usize), String> {
    let mut checker = Checker::new(certificate, program, stock, deadline)?;
    checker.script = Some(Script::new(&checker.charts));
    let seen = checker.invariant(certificate)?;
    ending::check(&mut checker, certificate, &seen, &mut BTreeSet::new())?;
    checker.script.map(Script::text).ok_or_else(|| "there is no script".to_owned())
}

impl<'a> Checker<'a> {
    fn new(
        certificate: &Certificate,
        program: &'a Program,
        stock: &'a [&'a Protocol],
        deadline: Instant,
    ) -> Result<Checker<'a>, String> {
        if certificate.format != FORMAT {
            return Err(format!("the certificate is of format '{}', not {FORMAT}", certificate.format));
        }
        let charts = Charts::new(stock, &certificate.protocols)?;
        if certificate.digest != digest(program, &charts.all) {
            return Err("the certificate is about other code or other protocols".to_owned());
        }
        let mut checker = Checker {
            program,
            charts,
            terms: Terms::default(),
            followed: vec![false; program.cells.len()],
            views: Vec::new(),
            modes: Vec::new(),
            fresh: FRESH,
            decided: FxHashMap::default(),
            script: None,
            deadline,
        };
        checker.read(certificate).ok_or("the certificate is damaged")?;
        Ok(checker)
    }

    fn late(&self) -> Result<(), String> {
        if Instant::now() > self.deadline {
            return Err("the time is up".to_owned());
        }
        Ok(())
    }

    /// Rules 1, 3, 5 and 6: the states are closed under steps, and no step breaks one. Gives all steps.
    fn invariant(&mut self, certificate: &Certificate) -> Result<Vec<Seen>, String> {
        let mut at: HashMap<(u32, u32, u8), Vec<u32>> = HashMap::new();
        for (index, (place, modes, atomic, _)) in certificate.states.iter().enumerate() {
            at.entry((*place, *modes, *atomic)).or_default().push(index as u32);
        }
        let mode_index: HashMap<Vec<u16>, u32> =
            self.modes.iter().enumerate().map(|(index, modes)| (modes.clone(), index as u32)).collect();
        let start: Option<Vec<u16>> =
            self.charts.all.iter().map(|chart| charts::enter(chart, None)).collect();
        let start = start.ok_or("a protocol has no start")?;
        let listed = mode_index.get(&start).and_then(|modes| at.get(&(self.program.entry, *modes, 0)));
        let empty = View::default();
        let start = listed.and_then(|all| {
            let mut known = all.iter().map(|state| certificate.states[*state as usize].3);
            known.find(|known| self.covers(*known, &empty))
        });
        if start.is_none() {
            return Err("the certificate does not hold the start of the program".to_owned());
        }
        let mut seen = Vec::new();
        for index in 0..certificate.states.len() as u32 {
            if index % 64 == 0 {
                self.late()?;
            }
            let (place, modes, atomic, known) = certificate.states[index as usize];
            let modes = self.modes[modes as usize].clone();
            let view = self.views[known as usize].clone();
            for next in self.steps(place, &modes, atomic, &view)? {
                let edge = &self.program.edges[next.edge as usize];
                let there =
                    mode_index.get(&next.modes).and_then(|modes| at.get(&(edge.to, *modes, next.atomic)));
                let there = there.map_or(&[][..], Vec::as_slice);
                let received = next.received.map_or(0, |number| number + 1);
                let hint = certificate.steps.get(index as usize).and_then(|steps| {
                    steps.iter().find(|(edge, number, _)| (*edge, *number) == (next.edge, received))
                });
                let hint = hint.map(|(_, _, to)| *to).filter(|to| there.contains(to));
                let all = hint.into_iter().chain(there.iter().copied().filter(|to| Some(*to) != hint));
                let mut to = None;
                for state in all {
                    self.late()?;
                    let known = certificate.states[state as usize].3;
                    if self.covers(known, &next.view) {
                        to = Some(state);
                        break;
                    }
                }
                self.note(&next, &modes, to.or(hint), certificate);
                let Some(to) = to.or(hint.filter(|_| self.script.is_some())) else {
                    if self.script.is_some() {
                        continue;
                    }
                    let line = self.program.location(&edge.line);
                    return Err(format!("the certificate does not hold a state that is reached at {line}"));
                };
                seen.push(Seen { from: index, edge: next.edge, to, mask: next.mask });
            }
        }
        Ok(seen)
    }

    fn unknown(&mut self, bits: u32) -> Id {
        self.fresh += 1;
        self.terms.unknown(self.fresh, bits)
    }

    /// Whether these bits cannot be 1 together.
    fn impossible(&mut self, bits: &[Id]) -> bool {
        let mut all: Vec<Id> = bits.iter().copied().filter(|bit| self.terms.value(*bit) != Some(1)).collect();
        if all.iter().any(|bit| self.terms.value(*bit) == Some(0)) {
            return true;
        }
        all.sort_unstable();
        all.dedup();
        if let Some(&known) = self.decided.get(&all) {
            return known;
        }
        let answer = together(&self.terms, &all) == Answer::Impossible;
        self.decided.insert(all, answer);
        answer
    }

    /// Whether a bit is 1 wherever the conditions hold.
    fn proves(&mut self, given: &[Id], goal: Id) -> bool {
        if self.terms.value(goal) == Some(1) || given.contains(&goal) {
            return true;
        }
        let mut wanted: FxHashSet<Id> = self.terms.unknowns(&[goal]).into_iter().collect();
        let mut used: Vec<Id> = Vec::new();
        // Conditions about other numbers do not help, or contradict each other; both would be a refusal at worst.
        loop {
            let before = used.len();
            for &one in given {
                if !used.contains(&one) {
                    let own = self.terms.unknowns(&[one]);
                    if own.iter().any(|own| wanted.contains(own)) {
                        wanted.extend(own);
                        used.push(one);
                    }
                }
            }
            if used.len() == before {
                break;
            }
        }
        let opposite = self.terms.opposite(goal);
        used.push(opposite);
        self.impossible(&used)
    }
}
