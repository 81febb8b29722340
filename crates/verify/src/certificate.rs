//! A proof of all rules as a file: the states that a driver and its protocols reach, and what ends runs among them.
//!
//! [`crate::recheck`] checks it without the search.

use crate::engine::liveness::{Duty, Ended};
use crate::engine::search::Graph;
use crate::program::Program;
use crate::program::expression::{Arena, Expression, Id};
use guardrail_protocol::model::Protocol;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Name and version of the format.
pub const FORMAT: &str = "guardrail-verify-certificate/2";

/// An expression; operands are indices of earlier ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Node {
    /// A number of so many bits.
    Number(u32, u64),
    /// An unknown number of so many bits.
    Symbol(u32, u32),
    /// An operation by its name.
    Binary(String, u32, u32),
    /// A comparison by its name.
    Compare(String, u32, u32),
    /// Zeros in front.
    Zero(u32, u32),
    /// The sign in front.
    Sign(u32, u32),
    /// The low bits.
    Cut(u32, u32),
    /// One of two.
    Select(u32, u32, u32),
    /// An address.
    Address(u32, u64),
    /// A function.
    Function(u32),
}

/// What is known in some states.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Cells with their values, as indices of expressions.
    pub cells: Vec<(u32, u32)>,
    /// Conditions that hold.
    pub conditions: Vec<u32>,
}

/// A state: place, index of the protocols' states, the atomic message plus 1, index of what is known.
pub type Row = (u32, u32, u8, u32);

/// A step: the edge, the message that was received plus 1, and the state after it.
pub type Taken = (u32, u8, u32);

/// Why runs do not go through some edges for ever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cut {
    /// The cell that nears an end.
    pub cell: u32,
    /// How: the name of a measure.
    pub measure: String,
    /// Edges that bring it nearer.
    pub updates: Vec<u32>,
    /// Edges that ask whether it is there.
    pub guards: Vec<u32>,
}

/// The file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// The format, [`FORMAT`].
    pub format: String,
    /// The main function.
    pub main: String,
    /// The names of the protocols.
    pub protocols: String,
    /// A digest of the control skeleton and the protocols.
    pub digest: String,
    /// Whether the control skeleton follows structures of the driver.
    pub deep: bool,
    /// Cells that are followed.
    pub followed: Vec<u32>,
    /// The expressions.
    pub expressions: Vec<Node>,
    /// What is known.
    pub known: Vec<Facts>,
    /// States of the protocols, by name.
    pub modes: Vec<Vec<String>>,
    /// The states; the first is where the program starts.
    pub states: Vec<Row>,
    /// The steps from each state. The check finds them itself; this says where they lead.
    pub steps: Vec<Vec<Taken>>,
    /// For rules 2 and 4: what ends runs, in the order in which it is asked.
    pub cuts: Vec<Cut>,
}

/// The digest of what a certificate is about.
pub fn digest(program: &Program, charts: &[&Protocol]) -> String {
    let mut hash = Sha256::new();
    let count = program.edges.len() + program.cells.len();
    hash.update(format!("{} {} {count}", program.entry, program.exit));
    for id in 0..program.arena.count() {
        hash.update(format!("{:?}\n", program.arena.get(id)));
    }
    for edge in &program.edges {
        hash.update(format!("{} {} {:?}\n", edge.from, edge.to, edge.action));
    }
    for cell in &program.cells {
        hash.update(format!("{} {} {} {}\n", cell.object, cell.offset, cell.bits, cell.lost));
    }
    for chart in charts {
        hash.update(format!("{}\n", chart.name));
        for one in &chart.states {
            let flags = (one.initial, one.final_, one.fair, one.owed);
            hash.update(format!("{} {:?} {flags:?}\n", one.name, one.parent));
        }
        for one in &chart.messages {
            hash.update(format!("{} {:?} {}\n", one.name, one.direction, one.sleeps));
        }
        for one in &chart.transitions {
            hash.update(format!("{} {:?} {:?}\n", one.message, one.from, one.to));
        }
    }
    format!("{:x}", hash.finalize())
}

/// The certificate of a search that found no violation.
pub fn certificate(
    graph: &Graph<'_>,
    ended: &[(Duty, Vec<Ended>)],
    main: &str,
    protocols: &str,
) -> Certificate {
    let mut writer = Writer { arena: &graph.arena, nodes: Vec::new(), index: HashMap::new() };
    let known = graph.known.iter().map(|known| Facts {
        cells: known.cells.iter().map(|(cell, value)| (*cell, writer.node(*value))).collect(),
        conditions: known.facts.iter().map(|fact| writer.node(*fact)).collect(),
    });
    let known = known.collect();
    let machines = &graph.protocols.machines;
    let names = |modes: &Vec<u8>| -> Vec<String> {
        let all = machines.iter().zip(modes);
        all.map(|(machine, mode)| machine.states[*mode as usize].name.clone()).collect()
    };
    let charts: Vec<&Protocol> = machines.iter().map(|machine| &machine.protocol).collect();
    let taken = |step: &crate::engine::search::Step| -> Taken {
        (step.edge, step.received.map_or(0, |number| number + 1), step.to)
    };
    let mut cuts = Vec::new();
    for (_, parts) in ended {
        collect(parts, &mut cuts);
    }
    Certificate {
        format: FORMAT.to_owned(),
        main: main.to_owned(),
        protocols: protocols.to_owned(),
        digest: digest(graph.program, &charts),
        deep: graph.program.deep,
        followed: (0..graph.tracked.len() as u32).filter(|cell| graph.tracked[*cell as usize]).collect(),
        expressions: writer.nodes,
        known,
        modes: graph.modes.iter().map(names).collect(),
        states: graph.states.iter().map(|one| (one.node, one.modes, one.atomic, one.known)).collect(),
        steps: graph.steps.iter().map(|steps| steps.iter().map(taken).collect()).collect(),
        cuts,
    }
}

/// The cuts of some parts, each once, outer ones first.
fn collect(parts: &[Ended], cuts: &mut Vec<Cut>) {
    for part in parts {
        let cut = Cut {
            cell: part.rank.cell,
            measure: format!("{:?}", part.rank.measure),
            updates: part.rank.updates.clone(),
            guards: part.rank.guards.clone(),
        };
        if !cuts.contains(&cut) {
            cuts.push(cut);
        }
    }
    for part in parts {
        collect(&part.inner, cuts);
    }
}

struct Writer<'a> {
    arena: &'a Arena,
    nodes: Vec<Node>,
    index: HashMap<Id, u32>,
}

impl Writer<'_> {
    fn node(&mut self, id: Id) -> u32 {
        if let Some(&index) = self.index.get(&id) {
            return index;
        }
        let node = match self.arena.get(id) {
            Expression::Number(bits, value) => Node::Number(bits, value),
            // No value of a state is over cells.
            Expression::Cell(_, bits) => Node::Symbol(u32::MAX, bits),
            Expression::Symbol(symbol, bits) => Node::Symbol(symbol, bits),
            Expression::Binary(operation, _, a, b) => {
                Node::Binary(format!("{operation:?}"), self.node(a), self.node(b))
            }
            Expression::Compare(predicate, a, b) => {
                Node::Compare(format!("{predicate:?}"), self.node(a), self.node(b))
            }
            Expression::Zero(bits, a) => Node::Zero(bits, self.node(a)),
            Expression::Sign(bits, a) => Node::Sign(bits, self.node(a)),
            Expression::Cut(bits, a) => Node::Cut(bits, self.node(a)),
            Expression::Select(c, a, b) => Node::Select(self.node(c), self.node(a), self.node(b)),
            Expression::Address(object, offset) => Node::Address(object, offset),
            Expression::Function(function) => Node::Function(function),
        };
        self.nodes.push(node);
        self.index.insert(id, self.nodes.len() as u32 - 1);
        self.nodes.len() as u32 - 1
    }
}
