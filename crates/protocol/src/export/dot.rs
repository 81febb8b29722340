//! Graphviz.

use crate::Machine;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The protocol with super-states as clusters: fair states dashed, owed ones with a clock, final ones doubled.
pub(super) fn text(machine: &Machine) -> String {
    let mut out = format!(
        "digraph {} {{\n\tcompound = true;\n\tnode [shape = box, style = rounded];\n",
        machine.name()
    );
    let _ = writeln!(out, "\t\"\" [shape = point];");
    parts(&mut out, machine, None, 1);
    let _ = writeln!(out, "\t\"\" -> \"{}\";", machine.states[machine.start].name);
    let mut labels: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
    for from in 0..machine.states.len() {
        for (message, to) in machine.moves(from) {
            labels.entry((from, to)).or_default().push(machine.messages()[message].signed());
        }
    }
    for ((from, to), labels) in labels {
        let (from, to) = (&machine.states[from].name, &machine.states[to].name);
        let _ = writeln!(out, "\t\"{from}\" -> \"{to}\" [label = \"{}\"];", labels.join("\\n"));
    }
    out.push_str("}\n");
    out
}

/// The states right inside a state, with what is inside them.
fn parts(out: &mut String, machine: &Machine, state: Option<usize>, depth: usize) {
    let tabs = "\t".repeat(depth);
    for part in machine.protocol.parts(state) {
        let declared = &machine.protocol.states[part];
        match machine.states.iter().find(|leaf| leaf.state == part) {
            Some(leaf) => {
                let clock = if leaf.owed { " ⏱" } else { "" };
                let style = if leaf.fair { ", style = \"rounded,dashed\"" } else { "" };
                let double = if leaf.final_ { ", peripheries = 2" } else { "" };
                let _ = writeln!(
                    out,
                    "{tabs}\"{}\" [label = \"{}{clock}\"{style}{double}];",
                    leaf.name, declared.name
                );
            }
            None => {
                let _ = writeln!(out, "{tabs}subgraph \"cluster_{}\" {{", machine.protocol.path(part));
                let _ = writeln!(out, "{tabs}\tlabel = \"{}\";", declared.name);
                parts(out, machine, Some(part), depth + 1);
                let _ = writeln!(out, "{tabs}}}");
            }
        }
    }
}
