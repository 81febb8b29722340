//! Takes a protocol apart into small rules that mean the same together.
//!
//! There is one rule for each message, which says when that message may be sent, and one for each set of messages that is
//! fair in some state, which says when it is. A rule's machine is the protocol's with states merged: those that agree on the
//! rule's question, closed under the messages that both have. Where neither has a message it does not matter what the rule
//! does, because the rule of that message refuses it. A word is therefore in the protocol's language if and only if all rules
//! allow it, by induction on its prefixes.
//!
//! `equivalence` checks the result by other means. The idea follows "Automatic Verification of Active Device Drivers"
//! (2012), section 4.1, which leaves the construction to people.

#[cfg(test)]
mod tests;

use crate::Machine;
use std::collections::BTreeSet;

/// How many orders of merging are tried for a rule; the best result counts.
const ORDERS: usize = 32;
/// How often all orders of all rules may try to merge rows of the tables. A result within the budget is exact, but may be
/// larger.
const BUDGET: usize = 8_000_000;

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// When this message may be sent.
    Message(usize),
    /// When it is fair to await these messages.
    Fair(BTreeSet<usize>),
    /// When the protocol is in one of these states. No part of a decomposition; see [`answers`].
    States(BTreeSet<usize>),
}

/// A small machine that answers one question about a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subprotocol {
    /// The question.
    pub subject: Subject,
    /// The state in which it starts.
    pub start: usize,
    /// For each state, whether the answer is yes.
    pub yes: Vec<bool>,
    /// For each state and message the next state; `None` where it stays.
    pub next: Vec<Vec<Option<usize>>>,
    /// For each state the names of the protocol's states that it stands for.
    pub stands_for: Vec<Vec<String>>,
}

impl Subprotocol {
    /// The messages that move it from one state to another.
    pub fn moved_by(&self) -> Vec<usize> {
        let moves = |message: &usize| {
            self.next.iter().enumerate().any(|(at, row)| row[*message].is_some_and(|to| to != at))
        };
        (0..self.next.first().map_or(0, Vec::len)).filter(moves).collect()
    }

    /// The pairs of a state and a message that move it, or that its question is about.
    pub fn transitions(&self) -> usize {
        let moved: usize = (self.next.iter().enumerate())
            .map(|(at, row)| row.iter().filter(|to| to.is_some_and(|to| to != at)).count())
            .sum();
        let Subject::Message(message) = self.subject else { return moved };
        let stays = |at: &usize| self.yes[*at] && self.next[*at][message].is_none_or(|to| to == *at);
        moved + (0..self.next.len()).filter(stays).count()
    }
}

/// The rules of a protocol: those of messages, then those of fair sets, each in the order of the file. A message that
/// every state allows needs no rule.
pub fn decompose(machine: &Machine) -> Vec<Subprotocol> {
    let reachable = reachable(machine);
    let mut budget = BUDGET;
    let mut rules = Vec::new();
    for message in 0..machine.messages().len() {
        let yes: Vec<bool> = (0..machine.states.len()).map(|state| machine.allows(state, message)).collect();
        if reachable.iter().any(|&state| !yes[state]) {
            rules.push(rule(machine, &reachable, Subject::Message(message), &yes, &mut budget));
        }
    }
    let mut known: Vec<BTreeSet<usize>> = Vec::new();
    for &state in reachable.iter().filter(|&&state| machine.states[state].fair) {
        let set: BTreeSet<usize> = machine.enabled(state).collect();
        if set.is_empty() || known.contains(&set) {
            continue;
        }
        let fair =
            |state: usize| machine.states[state].fair && machine.enabled(state).eq(set.iter().copied());
        let yes: Vec<bool> = (0..machine.states.len()).map(fair).collect();
        rules.push(rule(machine, &reachable, Subject::Fair(set.clone()), &yes, &mut budget));
        known.push(set);
    }
    rules
}

/// A small machine that says when a protocol is in one of some states, as long as all rules of messages are kept.
pub fn answers(machine: &Machine, states: &BTreeSet<usize>) -> Subprotocol {
    let yes: Vec<bool> = (0..machine.states.len()).map(|state| states.contains(&state)).collect();
    let mut budget = BUDGET;
    rule(machine, &reachable(machine), Subject::States(states.clone()), &yes, &mut budget)
}

/// The states that a run can be in, in order.
fn reachable(machine: &Machine) -> Vec<usize> {
    let mut seen = BTreeSet::from([machine.start]);
    let mut todo = vec![machine.start];
    while let Some(state) = todo.pop() {
        todo.extend(machine.moves(state).map(|(_, to)| to).filter(|&to| seen.insert(to)));
    }
    seen.into_iter().collect()
}

/// The smallest rule that some order of merging gives: few states first, then few messages that move it.
fn rule(
    machine: &Machine,
    reachable: &[usize],
    subject: Subject,
    yes: &[bool],
    budget: &mut usize,
) -> Subprotocol {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    // States that one message joins come first: if they can be one, that message does not move the rule.
    for &state in reachable {
        pairs.extend(machine.moves(state).map(|(_, to)| (state, to)).filter(|(from, to)| from != to));
    }
    for (at, &one) in reachable.iter().enumerate() {
        pairs.extend(reachable[..at].iter().map(|&other| (other, one)));
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut best: Option<((usize, usize), Subprotocol)> = None;
    for order in 0..ORDERS {
        if order > 0 {
            random.shuffle(&mut pairs);
        }
        let mut classes = Classes::new(machine, yes);
        for &(one, other) in &pairs {
            classes.merge(one, other, budget);
        }
        let made = classes.subprotocol(machine, reachable, subject.clone());
        let size = (made.next.len(), made.moved_by().len());
        if best.as_ref().is_none_or(|(known, _)| size < *known) {
            best = Some((size, made));
        }
        if *budget == 0 {
            break;
        }
    }
    best.map(|(_, made)| made).expect("there is at least one order")
}

/// States in classes. Each class has the next states of all its members.
#[derive(Clone)]
struct Classes<'a> {
    parent: Vec<usize>,
    next: Vec<Vec<Option<usize>>>,
    yes: &'a [bool],
}

impl<'a> Classes<'a> {
    fn new(machine: &Machine, yes: &'a [bool]) -> Classes<'a> {
        Classes { parent: (0..machine.states.len()).collect(), next: machine.next.clone(), yes }
    }

    fn find(&self, mut state: usize) -> usize {
        while self.parent[state] != state {
            state = self.parent[state];
        }
        state
    }

    /// Makes two states one class, with all that follows from it, or changes nothing where they cannot be one.
    fn merge(&mut self, one: usize, other: usize, budget: &mut usize) {
        if *budget == 0 || self.find(one) == self.find(other) {
            return;
        }
        *budget -= 1;
        // What is overwritten, so that it can be taken back.
        let mut undo: Vec<(usize, usize, Vec<Option<usize>>)> = Vec::new();
        let mut todo = vec![(one, other)];
        let mut good = true;
        while let Some((one, other)) = todo.pop() {
            let (one, other) = (self.find(one), self.find(other));
            if one == other {
                continue;
            }
            if self.yes[one] != self.yes[other] || *budget == 0 {
                good = false;
                break;
            }
            *budget -= 1;
            undo.push((one, other, self.next[one].clone()));
            self.parent[other] = one;
            for message in 0..self.next[one].len() {
                match (self.next[one][message], self.next[other][message]) {
                    (Some(to), Some(also)) => todo.push((to, also)),
                    (None, also) => self.next[one][message] = also,
                    (Some(_), None) => {}
                }
            }
        }
        if !good {
            for (one, other, row) in undo.into_iter().rev() {
                self.parent[other] = other;
                self.next[one] = row;
            }
        }
    }

    fn subprotocol(&self, machine: &Machine, reachable: &[usize], subject: Subject) -> Subprotocol {
        let roots: BTreeSet<usize> = reachable.iter().map(|&state| self.find(state)).collect();
        let roots: Vec<usize> = roots.into_iter().collect();
        let class = |state: usize| roots.binary_search(&self.find(state)).unwrap_or_default();
        let row = |&root: &usize| self.next[root].iter().map(|to| to.map(class)).collect();
        let members = |&root: &usize| {
            let inside = reachable.iter().filter(|&&state| self.find(state) == root);
            inside.map(|&state| machine.states[state].name.clone()).collect()
        };
        Subprotocol {
            subject,
            start: class(machine.start),
            yes: roots.iter().map(|&root| self.yes[root]).collect(),
            next: roots.iter().map(row).collect(),
            stands_for: roots.iter().map(members).collect(),
        }
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
