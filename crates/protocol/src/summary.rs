//! What is printed about protocols as a whole: their sizes, and the rules that they are made of.

use crate::decompose::{Subject, Subprotocol, decompose};
use crate::equivalence;
use crate::{Machine, ProtocolError};
use guardrail_report::columns::table;
use serde::Serialize;
use std::fmt::Write;

/// The version of the JSON form of a decomposition.
const SCHEMA: &str = "guardrail-decomposition/1";

/// A protocol's size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The protocol's name.
    pub name: String,
    /// The file that it was read from.
    pub file: String,
    /// Name of the object chart that it belongs to.
    pub of: Option<String>,
    /// States that have no parts.
    pub states: usize,
    /// Pairs of a state and a message that the protocol allows.
    pub transitions: usize,
    /// Lines of transitions in the file.
    pub lines: usize,
    /// Messages that the kernel sends.
    pub incoming: usize,
    /// Messages that the driver sends.
    pub outgoing: usize,
    /// Fair states.
    pub fair: usize,
    /// States that the driver must leave.
    pub owed: usize,
    /// States in which the driver may end.
    #[serde(rename = "final")]
    pub final_: usize,
}

impl Size {
    /// Measures a protocol.
    pub fn of(machine: &Machine) -> Size {
        let incoming = machine.incoming().count();
        Size {
            name: machine.name().to_owned(),
            file: machine.protocol.file.clone(),
            of: machine.protocol.of.clone(),
            states: machine.states.len(),
            transitions: machine.transitions(),
            lines: machine.protocol.transitions.len(),
            incoming,
            outgoing: machine.messages().len() - incoming,
            fair: machine.states.iter().filter(|state| state.fair).count(),
            owed: machine.states.iter().filter(|state| state.owed).count(),
            final_: machine.states.iter().filter(|state| state.final_).count(),
        }
    }
}

/// The protocols and their sizes, for people.
pub fn list(machines: &[&Machine]) -> String {
    let head = ["protocol", "states", "transitions", "in", "out", "fair", "owed", "final", "file"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for size in machines.iter().map(|machine| Size::of(machine)) {
        let numbers =
            [size.states, size.transitions, size.incoming, size.outgoing, size.fair, size.owed, size.final_];
        let mut row = vec![size.name];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(size.file);
        rows.push(row);
    }
    table(&rows)
}

/// A protocol that was taken apart, and checked against its parts.
#[derive(Clone, Debug)]
pub struct Decomposition<'a> {
    machine: &'a Machine,
    rules: Vec<Subprotocol>,
    /// How many places the check has compared.
    places: usize,
}

/// The JSON form of a protocol that was taken apart.
#[derive(Debug, Serialize)]
struct JsonProtocol<'a> {
    name: &'a str,
    states: usize,
    transitions: usize,
    subprotocols: usize,
    largest: usize,
    places_compared: usize,
    rules: Vec<JsonRule<'a>>,
}

/// The JSON form of a rule.
#[derive(Debug, Serialize)]
struct JsonRule<'a> {
    about: &'static str,
    messages: Vec<String>,
    transitions: usize,
    states: Vec<JsonState<'a>>,
    moves: Vec<JsonMove>,
}

/// The JSON form of a rule's state.
#[derive(Debug, Serialize)]
struct JsonState<'a> {
    holds: bool,
    initial: bool,
    stands_for: &'a [String],
}

/// The JSON form of a rule's move.
#[derive(Debug, Serialize)]
struct JsonMove {
    from: usize,
    to: usize,
    message: String,
}

impl<'a> Decomposition<'a> {
    /// Takes a protocol apart. An error means that the parts do not mean the same, which is a mistake of this program.
    pub fn new(machine: &'a Machine) -> Result<Decomposition<'a>, ProtocolError> {
        let rules = decompose(machine);
        let places = equivalence::check(machine, &rules).map_err(|difference| {
            ProtocolError::Broken(format!("protocol {} and its rules differ: {difference}", machine.name()))
        })?;
        Ok(Decomposition { machine, rules, places })
    }

    fn largest(&self) -> usize {
        self.rules.iter().map(|rule| rule.next.len()).max().unwrap_or(0)
    }

    fn counts(&self) -> (usize, usize) {
        let fair = self.rules.iter().filter(|rule| matches!(rule.subject, Subject::Fair(_))).count();
        (self.rules.len() - fair, fair)
    }

    fn signed(&self, messages: impl IntoIterator<Item = usize>) -> Vec<String> {
        messages.into_iter().map(|message| self.machine.messages()[message].signed()).collect()
    }

    fn json(&self) -> JsonProtocol<'_> {
        JsonProtocol {
            name: self.machine.name(),
            states: self.machine.states.len(),
            transitions: self.machine.transitions(),
            subprotocols: self.rules.len(),
            largest: self.largest(),
            places_compared: self.places,
            rules: self.rules.iter().map(|rule| self.json_rule(rule)).collect(),
        }
    }

    fn json_rule(&self, rule: &'a Subprotocol) -> JsonRule<'_> {
        let (about, messages) = match &rule.subject {
            Subject::Message(message) => ("message", self.signed([*message])),
            Subject::Fair(set) => ("fair", self.signed(set.iter().copied())),
            Subject::States(_) => ("states", Vec::new()),
        };
        let state = |(at, stands_for): (usize, &'a Vec<String>)| JsonState {
            holds: rule.yes[at],
            initial: at == rule.start,
            stands_for,
        };
        JsonRule {
            about,
            messages,
            transitions: rule.transitions(),
            states: rule.stands_for.iter().enumerate().map(state).collect(),
            moves: moves(rule)
                .map(|(from, message, to)| JsonMove {
                    from,
                    to,
                    message: self.machine.messages()[message].signed(),
                })
                .collect(),
        }
    }

    /// The rules, for people: each with its states, and what moves it.
    fn text(&self) -> String {
        let mut out = String::new();
        let (of_messages, fair) = self.counts();
        let _ = writeln!(
            out,
            "\n{}: {of_messages} rules of messages and {fair} of fairness; same meaning in {} places",
            self.machine.name(),
            self.places
        );
        let mut rows = Vec::new();
        for rule in &self.rules {
            let subject = match &rule.subject {
                Subject::Message(message) => self.signed([*message]).concat(),
                Subject::Fair(set) => format!("fair: {}", self.signed(set.iter().copied()).join(" ")),
                Subject::States(_) => "states".to_owned(),
            };
            let moved = self.signed(rule.moved_by());
            let moved =
                if moved.is_empty() { String::new() } else { format!("moved by {}", moved.join(" ")) };
            rows.push(vec![format!("  {subject}"), format!("{} states", rule.next.len()), moved]);
        }
        out.push_str(&table(&rows));
        out
    }
}

/// The moves of a rule from one state to another, with their messages.
fn moves(rule: &Subprotocol) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
    let row = |(from, row): (usize, &'_ Vec<Option<usize>>)| {
        let moves: Vec<(usize, usize, usize)> = (row.iter().enumerate())
            .filter_map(|(message, to)| Some((from, message, to.filter(|&to| to != from)?)))
            .collect();
        moves
    };
    rule.next.iter().enumerate().flat_map(row)
}

/// All decompositions as a table like the paper's first one, and the rules below it.
pub fn text(all: &[Decomposition]) -> String {
    let head = ["protocol", "states", "transitions", "subprotocols", "largest"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in all {
        let (of_messages, fair) = one.counts();
        rows.push(vec![
            one.machine.name().to_owned(),
            one.machine.states.len().to_string(),
            one.machine.transitions().to_string(),
            format!("{of_messages} + {fair}"),
            format!("{} states", one.largest()),
        ]);
    }
    all.iter().fold(table(&rows), |out, one| out + &one.text())
}

/// All decompositions as JSON.
pub fn json(all: &[Decomposition]) -> serde_json::Value {
    let protocols: Vec<JsonProtocol> = all.iter().map(Decomposition::json).collect();
    serde_json::json!({ "schema": SCHEMA, "protocols": protocols })
}
