//! A protocol as a table, read from its export to Graphviz. It shares no code with the crate that wrote that.

use guardrail_tests::guardrail;
use std::collections::BTreeSet;

/// Names of states and messages; a message has its sign.
pub struct Table {
    pub states: Vec<String>,
    pub start: usize,
    /// The states that are fair.
    pub fair: BTreeSet<usize>,
    /// State, message, next state.
    pub moves: Vec<(usize, String, usize)>,
}

impl Table {
    /// The table of a stock protocol.
    pub fn of(name: &str) -> Table {
        let done = guardrail(&["protocol", "export", name, "--as", "dot"]);
        assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{name}");
        let lines = || done.stdout.lines().map(str::trim);
        let node =
            |line: &str| line.strip_prefix('"')?.split_once("\" [label").map(|(name, _)| name.to_owned());
        let states: Vec<String> = lines().filter(|line| !line.contains("->")).filter_map(node).collect();
        let at = |name: &str| states.iter().position(|state| state == name).unwrap();
        let fair = lines().filter(|line| line.contains("dashed")).filter_map(node);
        let fair = fair.map(|name| at(&name)).collect();
        let mut start = None;
        let mut moves = Vec::new();
        for line in lines().filter(|line| line.contains("->")) {
            let words: Vec<&str> = line.split('"').collect();
            if words[1].is_empty() {
                start = Some(at(words[3]));
                continue;
            }
            let all = words[5].split("\\n").map(|message| (at(words[1]), message.to_owned(), at(words[3])));
            moves.extend(all);
        }
        Table { states, start: start.unwrap(), fair, moves }
    }

    /// The states that some run reaches.
    pub fn reached(&self) -> BTreeSet<usize> {
        let mut reached = BTreeSet::from([self.start]);
        let mut todo = vec![self.start];
        while let Some(state) = todo.pop() {
            for (from, _, to) in &self.moves {
                if *from == state && reached.insert(*to) {
                    todo.push(*to);
                }
            }
        }
        reached
    }

    /// All messages.
    pub fn messages(&self) -> BTreeSet<&str> {
        self.moves.iter().map(|(_, message, _)| message.as_str()).collect()
    }

    /// The messages to the driver that a state allows.
    pub fn incoming(&self, state: usize) -> BTreeSet<&str> {
        let here = self.moves.iter().filter(|(from, message, _)| *from == state && message.starts_with('?'));
        here.map(|(_, message, _)| message.as_str()).collect()
    }
}
