//! A driver's control skeleton: one graph for its main function, with all calls of functions of the driver put in.

mod arithmetic;
mod calls;
mod client;
pub mod expression;
mod finish;
mod memory;
mod places;
pub mod plan;
mod private;
mod scan;
mod size;
mod translate;

use crate::ir::debug::Line;
use expression::{Arena, Id};
use std::collections::BTreeSet;

pub use calls::targets;
pub use translate::{Source, translate};

/// A place in the graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// The source line.
    pub line: Line,
    /// Index into [`Program::functions`].
    pub function: u32,
}

/// What an edge does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing happens.
    Skip,
    /// Is taken only if the bit is 1.
    Assume(Id),
    /// Sets cells at once; `None` is an unknown value.
    Assign(Vec<(u32, Option<Id>)>),
    /// Sends the message with this number.
    Emit(Id),
    /// Waits for the messages of this mask; the number of the one that came goes into the cell.
    Await(Id, u32),
    /// Calls something that may sleep if the bit is 1: its name.
    Sleep(Id, std::rc::Rc<str>),
}

/// An edge.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Where it begins.
    pub from: u32,
    /// Where it ends.
    pub to: u32,
    /// What it does.
    pub action: Action,
    /// The source line.
    pub line: Line,
}

/// Where an unknown value comes from, as far as a loop's end depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing is known.
    Unknown,
    /// The time, which passes.
    Clock,
    /// A pointer that was read from a structure of the kernel: the next element of a list, where it is used so.
    Link,
    /// An element that was taken out of a queue.
    Drained,
    /// What a function outside the driver's files returned, or inline assembly: any value, each time.
    Outside,
}

/// A piece of memory that the engine may follow.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Index of the object.
    pub object: u32,
    /// Its offset in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its width.
    pub bits: u32,
    /// Its name for people.
    pub name: String,
    /// Whether something else may write it at any time, or pieces of other lengths overlap it.
    pub lost: bool,
    /// Whether it is a local variable or a result.
    pub local: bool,
    /// Where its value comes from, if it is the result of a call or of a read.
    pub origin: Origin,
}

/// The whole graph.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// All places.
    pub nodes: Vec<Node>,
    /// All edges.
    pub edges: Vec<Edge>,
    /// Indices of edges by the place where they begin.
    pub out: Vec<Vec<u32>>,
    /// Where the main function begins.
    pub entry: u32,
    /// Where it has returned.
    pub exit: u32,
    /// All cells.
    pub cells: Vec<Cell>,
    /// All expressions.
    pub arena: Arena,
    /// Names of functions.
    pub functions: Vec<String>,
    /// Names of source files.
    pub files: Vec<String>,
    /// What the translation takes for granted, one sentence each.
    pub assumptions: BTreeSet<String>,
    /// Cells that are followed from the start: conditions that C computes in several blocks.
    pub seeds: Vec<u32>,
    /// Whether structures of the driver are followed.
    pub deep: bool,
}

impl Program {
    /// `file:line` of a line.
    pub fn location(&self, line: &Line) -> String {
        let file = self.files.get(line.file as usize).map_or("?", String::as_str);
        format!("{file}:{}", line.number)
    }

    /// Names of the cells that a search followed, by number, without those that are followed from the start.
    pub fn followed(&self, tracked: &[bool]) -> Vec<String> {
        let chosen = (0u32..).zip(&self.cells).filter(|(cell, _)| tracked.get(*cell as usize) == Some(&true));
        chosen.filter(|(cell, _)| !self.seeds.contains(cell)).map(|(_, cell)| cell.name.clone()).collect()
    }
}
