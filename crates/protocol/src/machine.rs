//! A protocol as a flat machine: leaves, and for each leaf and message at most one next leaf.

use crate::ChartError;
use crate::model::{Direction, Message, Protocol};

/// A state of a flat machine, with the flags of all states around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The name with those of the states that it is part of, as `bound.running`.
    pub name: String,
    /// Index of the state in the protocol.
    pub state: usize,
    /// See [`State::fair`](crate::model::State::fair).
    pub fair: bool,
    /// See [`State::owed`](crate::model::State::owed).
    pub owed: bool,
    /// See [`State::final_`](crate::model::State::final_).
    pub final_: bool,
}

/// A deterministic machine. States and messages are indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What it was made from; its messages are the machine's.
    pub protocol: Protocol,
    /// The states.
    pub states: Vec<Leaf>,
    /// The state in which it starts.
    pub start: usize,
    /// For each state and message the next state; `None` where the message is not allowed.
    pub next: Vec<Vec<Option<usize>>>,
    /// For each state and message the transitions of the protocol that say so.
    pub rules: Vec<Vec<Vec<usize>>>,
}

impl Machine {
    /// Flattens a protocol. Two lines that move one leaf to different states by one message are an error.
    pub fn new(protocol: Protocol) -> Result<Machine, ChartError> {
        let error = |line: usize, what: String| ChartError { file: protocol.file.clone(), line, what };
        let leaves: Vec<usize> = protocol.leaves().collect();
        let index = |state: usize| leaves.binary_search(&state).ok();
        let states: Vec<Leaf> = leaves.iter().map(|&state| leaf(&protocol, state)).collect();
        let start = protocol.entry(None).and_then(index).ok_or_else(|| {
            error(protocol.line, "no state is initial; expected 'state NAME initial'".to_owned())
        })?;
        let mut next = vec![vec![None; protocol.messages.len()]; states.len()];
        let mut rules = vec![vec![Vec::new(); protocol.messages.len()]; states.len()];
        for (rule, transition) in protocol.transitions.iter().enumerate() {
            let target = match transition.to {
                None => None,
                Some(to) => Some(protocol.entry(Some(to)).and_then(index).ok_or_else(|| {
                    error(
                        transition.line,
                        format!(
                            "state {} has no part that is initial, so it cannot be entered",
                            protocol.path(to)
                        ),
                    )
                })?),
            };
            for (at, &state) in leaves.iter().enumerate() {
                if !protocol.around(state).any(|outer| transition.from.contains(&outer)) {
                    continue;
                }
                let to = target.unwrap_or(at);
                let known: &mut Option<usize> = &mut next[at][transition.message];
                let because: &mut Vec<usize> = &mut rules[at][transition.message];
                if let Some(known) = known.filter(|&known| known != to) {
                    let first = because.first().map_or(0, |&rule| protocol.transitions[rule].line);
                    let message = &protocol.messages[transition.message].name;
                    return Err(error(
                        transition.line,
                        format!(
                            "{message} moves {} to {}, but to {} by line {first}; expected one target",
                            states[at].name, states[to].name, states[known].name
                        ),
                    ));
                }
                *known = Some(to);
                because.push(rule);
            }
        }
        Ok(Machine { states, start, next, rules, protocol })
    }

    /// The protocol's name.
    pub fn name(&self) -> &str {
        &self.protocol.name
    }

    /// All messages; a message's index is its place here.
    pub fn messages(&self) -> &[Message] {
        &self.protocol.messages
    }

    /// The message of this name.
    pub fn message(&self, name: &str) -> Option<usize> {
        self.messages().iter().position(|message| message.name == name)
    }

    /// The state of this name, with those that it is part of.
    pub fn state(&self, name: &str) -> Option<usize> {
        self.states.iter().position(|state| state.name == name)
    }

    /// The next state, if the message is allowed.
    pub fn step(&self, state: usize, message: usize) -> Option<usize> {
        *self.next.get(state)?.get(message)?
    }

    /// Whether a message is allowed in a state.
    pub fn allows(&self, state: usize, message: usize) -> bool {
        self.step(state, message).is_some()
    }

    /// The messages of a state, in the order of the file: each with the next state.
    pub fn moves(&self, state: usize) -> impl Iterator<Item = (usize, usize)> {
        let row = self.next.get(state).map_or(&[][..], Vec::as_slice);
        row.iter().enumerate().filter_map(|(message, &to)| Some((message, to?)))
    }

    /// The messages that the driver may receive in a state.
    pub fn enabled(&self, state: usize) -> impl Iterator<Item = usize> {
        self.moves(state).map(|(message, _)| message).filter(|&message| self.is_in(message))
    }

    /// Whether the kernel sends a message.
    pub fn is_in(&self, message: usize) -> bool {
        self.messages().get(message).is_some_and(|message| message.direction == Direction::In)
    }

    /// The messages that the kernel sends.
    pub fn incoming(&self) -> impl Iterator<Item = usize> {
        (0..self.messages().len()).filter(|&message| self.is_in(message))
    }

    /// How many pairs of a state and a message are allowed.
    pub fn transitions(&self) -> usize {
        self.next.iter().flatten().flatten().count()
    }
}

fn leaf(protocol: &Protocol, state: usize) -> Leaf {
    let mut leaf = Leaf { name: protocol.path(state), state, fair: false, owed: false, final_: false };
    for outer in protocol.around(state) {
        let outer = &protocol.states[outer];
        leaf.fair |= outer.fair;
        leaf.owed |= outer.owed;
        leaf.final_ |= outer.final_;
    }
    leaf
}
