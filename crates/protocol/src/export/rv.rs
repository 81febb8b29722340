//! Automata of the kernel's runtime verification (`tools/verification` and `Documentation/trace/rv`).

use super::flat;
use crate::Machine;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The dialect of DOT that `rvgen` reads: it expects these lines in this order.
pub(super) fn dot(machine: &Machine) -> String {
    let mut out = String::from("digraph state_automaton {\n\tcenter = true;\n\tsize = \"7,11\";\n");
    let start = flat(&machine.states[machine.start].name);
    for state in &machine.states {
        let name = flat(&state.name);
        if name == start {
            let _ =
                writeln!(out, "\t{{node [shape = plaintext, style=invis, label=\"\"] \"__init_{name}\"}};");
        }
        let shape = if state.final_ { "doublecircle" } else { "circle" };
        let _ = writeln!(out, "\t{{node [shape = {shape}] \"{name}\"}};");
    }
    let _ = writeln!(out, "\t\"__init_{start}\" -> \"{start}\";");
    for (at, state) in machine.states.iter().enumerate() {
        let name = flat(&state.name);
        let _ = writeln!(out, "\t\"{name}\" [label = \"{name}\"];");
        let mut labels: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        for (message, to) in machine.moves(at) {
            labels.entry(to).or_default().push(event(machine, message));
        }
        for (to, labels) in labels {
            let to = flat(&machine.states[to].name);
            let _ = writeln!(out, "\t\"{name}\" -> \"{to}\" [ label = \"{}\" ];", labels.join("\\n"));
        }
    }
    let _ = writeln!(out, "\t{{ rank = min ;\n\t\t\"__init_{start}\";\n\t\t\"{start}\";\n\t}}\n}}");
    out
}

/// The event of a message. Events and states are enumerators of one C file, and a state may have the name of a message.
pub(super) fn event(machine: &Machine, message: usize) -> String {
    let direction = if machine.is_in(message) { "in" } else { "out" };
    format!("{direction}_{}", machine.messages()[message].name)
}

/// The automaton as the C structure that `rvgen` makes from the dialect. States and events are sorted as it sorts them: the
/// initial state first, the others by name.
///
/// The monitor's name is not the protocol's, so that no enumerator has the name of something in the kernel.
pub(super) fn c(machine: &Machine) -> String {
    let protocol = machine.name();
    let name = &format!("{protocol}_protocol");
    let mut states: Vec<usize> = (0..machine.states.len()).collect();
    states.sort_by_key(|&at| (at != machine.start, flat(&machine.states[at].name)));
    let mut events: Vec<usize> = (0..machine.messages().len()).collect();
    events.retain(|&message| (0..machine.states.len()).any(|state| machine.allows(state, message)));
    events.sort_by_key(|&at| event(machine, at));
    let state_name = |at: usize| flat(&machine.states[at].name);
    let event_name = |at: usize| event(machine, at);

    let mut out = format!(
        "/*\n * The protocol {protocol} as an automaton of the kernel's runtime verification.\n */\n\n"
    );
    let _ = writeln!(out, "enum states_{name} {{");
    for (place, &at) in states.iter().enumerate() {
        let first = if place == 0 { " = 0" } else { "" };
        let _ = writeln!(out, "\t{}_{name}{first},", state_name(at));
    }
    let _ = writeln!(out, "\tstate_max_{name}\n}};\n\n#define INVALID_STATE state_max_{name}\n");
    let _ = writeln!(out, "enum events_{name} {{");
    for (place, &at) in events.iter().enumerate() {
        let first = if place == 0 { " = 0" } else { "" };
        let _ = writeln!(out, "\t{}_{name}{first},", event_name(at));
    }
    let _ = writeln!(out, "\tevent_max_{name}\n}};\n");
    // A protocol has at most 255 states, so that all of them and the invalid one fit.
    let kind = "unsigned char";
    let _ = writeln!(
        out,
        "struct automaton_{name} {{\n\tchar *state_names[state_max_{name}];\n\tchar *event_names[event_max_{name}];\n\
         \t{kind} function[state_max_{name}][event_max_{name}];\n\t{kind} initial_state;\n\
         \tbool final_states[state_max_{name}];\n}};\n"
    );
    let _ = writeln!(out, "static const struct automaton_{name} automaton_{name} = {{\n\t.state_names = {{");
    for &at in &states {
        let _ = writeln!(out, "\t\t\"{}\",", state_name(at));
    }
    out.push_str("\t},\n\t.event_names = {\n");
    for &at in &events {
        let _ = writeln!(out, "\t\t\"{}\",", event_name(at));
    }
    out.push_str("\t},\n\t.function = {\n");
    for &from in &states {
        let cell = |&event: &usize| match machine.step(from, event) {
            Some(to) => format!("\t\t\t{}_{name},\n", state_name(to)),
            None => "\t\t\tINVALID_STATE,\n".to_owned(),
        };
        let row: String = events.iter().map(cell).collect();
        let _ = writeln!(out, "\t\t{{\n{row}\t\t}},");
    }
    let _ = writeln!(out, "\t}},\n\t.initial_state = {}_{name},", state_name(machine.start));
    // Where no state is final, rvgen takes the initial one.
    let none = machine.states.iter().all(|state| !state.final_);
    let is_final = |&at: &usize| machine.states[at].final_ || none && at == machine.start;
    let finals: Vec<&str> = states.iter().map(|at| if is_final(at) { "1" } else { "0" }).collect();
    let _ = writeln!(out, "\t.final_states = {{ {} }},\n}};", finals.join(", "));
    out
}
