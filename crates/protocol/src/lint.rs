//! Looks for mistakes in a protocol that its parser cannot see.

#[cfg(test)]
mod tests;

use crate::Machine;
use crate::model::{Direction, Link};
use guardrail_knowledge::chart::parse::Draft;
use std::collections::BTreeSet;

/// A mistake: one sentence, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The file of the protocol.
    pub file: String,
    /// Number of the line that is wrong.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, line {}: {}", self.file, self.line, self.what)
    }
}

/// All mistakes of a protocol, by line. `charts` are the object charts that it may belong to.
pub fn lint(machine: &Machine, charts: &[Draft]) -> Vec<Mistake> {
    let mut linter = Linter { machine, reachable: reachable(machine), found: BTreeSet::new() };
    linter.unreachable();
    linter.dead_messages();
    linter.flags();
    linter.endings();
    linter.queued();
    linter.links(charts);
    linter.found.into_iter().collect()
}

struct Linter<'a> {
    machine: &'a Machine,
    /// For each state, whether a run can be in it.
    reachable: Vec<bool>,
    found: BTreeSet<Mistake>,
}

fn reachable(machine: &Machine) -> Vec<bool> {
    let mut seen = vec![false; machine.states.len()];
    let mut todo = vec![machine.start];
    while let Some(state) = todo.pop() {
        if !std::mem::replace(&mut seen[state], true) {
            todo.extend(machine.moves(state).map(|(_, to)| to));
        }
    }
    seen
}

impl Linter<'_> {
    fn report(&mut self, line: usize, what: String) {
        let file = self.machine.protocol.file.clone();
        self.found.insert(Mistake { file, line, what });
    }

    /// The line of a state.
    fn line(&self, state: usize) -> usize {
        self.machine.protocol.states[self.machine.states[state].state].line
    }

    fn name(&self, state: usize) -> &str {
        &self.machine.states[state].name
    }

    /// The states that a run can be in.
    fn states(&self) -> Vec<usize> {
        (0..self.machine.states.len()).filter(|&state| self.reachable[state]).collect()
    }

    fn unreachable(&mut self) {
        for state in
            (0..self.machine.states.len()).filter(|&state| !self.reachable[state]).collect::<Vec<_>>()
        {
            let what = format!("no run reaches state {}", self.name(state));
            self.report(self.line(state), what);
        }
    }

    fn dead_messages(&mut self) {
        let states = self.states();
        for (message, declared) in self.machine.messages().iter().enumerate() {
            if !states.iter().any(|&state| self.machine.allows(state, message)) {
                self.report(declared.line, format!("no run has message {}", declared.signed()));
            }
        }
    }

    /// A fair state has something to wait for, and an owed state has an answer.
    fn flags(&mut self) {
        for state in self.states() {
            let leaf = &self.machine.states[state];
            if leaf.fair && self.machine.enabled(state).next().is_none() {
                let what = format!("state {} is fair, but allows no incoming message", leaf.name);
                self.report(self.line(state), what);
            }
            let mut leaving = self.machine.moves(state).filter(|&(_, to)| to != state);
            if leaf.owed && leaving.all(|(message, _)| self.machine.is_in(message)) {
                let what = format!(
                    "the driver must leave state {}, but no message of the driver leads out of it",
                    leaf.name
                );
                self.report(self.line(state), what);
            }
        }
    }

    /// From every state the driver can come to an end.
    fn endings(&mut self) {
        let states = self.states();
        let mut ends: Vec<bool> = self.machine.states.iter().map(|state| state.final_).collect();
        let mut changed = true;
        while changed {
            changed = false;
            for &state in &states {
                if !ends[state] && self.machine.moves(state).any(|(_, to)| ends[to]) {
                    ends[state] = true;
                    changed = true;
                }
            }
        }
        if !ends[self.machine.start] {
            let what = format!("no run of protocol {} reaches a final state", self.machine.name());
            return self.report(self.machine.protocol.line, what);
        }
        for state in states.into_iter().filter(|&state| !ends[state]) {
            let what = format!("no run from state {} reaches a final state", self.name(state));
            self.report(self.line(state), what);
        }
    }

    /// A message that waits in its box stays acceptable when the driver sends another, or the chart says what happens.
    fn queued(&mut self) {
        let (kept, stays) = (self.kept(false), self.kept(true));
        let mut needed: BTreeSet<(usize, usize)> = BTreeSet::new();
        for state in self.states() {
            let waiting: BTreeSet<usize> =
                self.machine.enabled(state).chain(stays[state].iter().copied()).collect();
            for (by, to) in self.machine.moves(state) {
                for &waiting in waiting.iter().filter(|&&waiting| !self.machine.allows(to, waiting)) {
                    let rules = &self.machine.rules[state][by];
                    let says = |&&rule: &&usize| {
                        let transition = &self.machine.protocol.transitions[rule];
                        transition.keeps.contains(&waiting) || transition.refuses.contains(&waiting)
                    };
                    if let Some(&rule) = rules.iter().find(says) {
                        needed.insert((rule, waiting));
                    } else if !self.machine.is_in(by) && self.machine.allows(state, waiting) {
                        let messages = self.machine.messages();
                        let name = &messages[waiting].name;
                        let what = format!(
                            "?{name} may wait in its box when the driver sends {} in state {}, but state {} does not allow it; \
                             expected 'keeps {name}' or 'refuses {name}'",
                            messages[by].signed(),
                            self.name(state),
                            self.name(to),
                        );
                        let line =
                            rules.first().map_or(0, |&rule| self.machine.protocol.transitions[rule].line);
                        self.report(line, what);
                    }
                }
            }
        }
        for (rule, transition) in self.machine.protocol.transitions.iter().enumerate() {
            for &message in transition.keeps.iter().chain(&transition.refuses) {
                if !needed.contains(&(rule, message)) {
                    let name = &self.machine.messages()[message].name;
                    let what = format!(
                        "?{name} is neither kept nor refused here, because it never waits, or stays allowed"
                    );
                    self.report(transition.line, what);
                }
            }
        }
        for state in self.states().into_iter().filter(|&state| self.machine.states[state].final_) {
            for &message in &kept[state] {
                let name = &self.machine.messages()[message].name;
                let what = format!(
                    "?{name}, which was kept, may still wait when the driver ends in state {}; expected 'refuses {name}' on the way",
                    self.name(state)
                );
                self.report(self.line(state), what);
            }
        }
    }

    /// For each state the messages that wait although it does not allow them: those that transitions on the way have kept. With
    /// `unsaid` also those that wait while the driver receives others, of which no chart says anything.
    fn kept(&self, unsaid: bool) -> Vec<BTreeSet<usize>> {
        let mut kept = vec![BTreeSet::new(); self.machine.states.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for state in self.states() {
                for (by, to) in self.machine.moves(state) {
                    let rules = self.machine.rules[state][by].iter();
                    let rules: Vec<_> = rules.map(|&rule| &self.machine.protocol.transitions[rule]).collect();
                    let says = |message: usize| rules.iter().any(|rule| rule.keeps.contains(&message));
                    let room = |message: usize| self.machine.messages()[message].room;
                    let unsaid = unsaid && self.machine.is_in(by);
                    let new: Vec<usize> = (self.machine.enabled(state))
                        .filter(|&message| (message != by || room(message) > 1) && (unsaid || says(message)))
                        .chain(kept[state].iter().copied())
                        .filter(|&message| !self.machine.allows(to, message))
                        .filter(|message| !rules.iter().any(|rule| rule.refuses.contains(message)))
                        .collect();
                    for message in new {
                        changed |= kept[to].insert(message);
                    }
                }
            }
        }
        kept
    }

    /// Callbacks that transitions stand for are in the object chart.
    fn links(&mut self, charts: &[Draft]) {
        let Some(of) = &self.machine.protocol.of else { return };
        let line = self.machine.protocol.line;
        let Some(draft) = charts.iter().find(|draft| draft.chart.name == *of) else {
            let names: Vec<&str> = charts.iter().map(|draft| draft.chart.name.as_str()).collect();
            return self.report(line, format!("there is no chart {of}; there are {}", names.join(", ")));
        };
        let callbacks: Vec<&str> =
            draft.chart.callbacks.iter().map(|callback| callback.name.as_str()).collect();
        for transition in &self.machine.protocol.transitions {
            let direction = self.machine.messages()[transition.message].direction;
            match &transition.link {
                Some(Link::Begin(name) | Link::End(name, _)) if !callbacks.contains(&name.as_str()) => {
                    let known = callbacks.join(", ");
                    self.report(
                        transition.line,
                        format!("chart {of} has no callback {name}; it has {known}"),
                    );
                }
                Some(Link::Begin(_)) if direction == Direction::Out => self.report(
                    transition.line,
                    "the kernel begins a callback, so it stands for a message that begins with 'in'"
                        .to_owned(),
                ),
                Some(Link::End(..)) if direction == Direction::In => self.report(
                    transition.line,
                    "the driver ends a callback, so it stands for a message that begins with 'out'"
                        .to_owned(),
                ),
                _ => {}
            }
        }
    }
}
