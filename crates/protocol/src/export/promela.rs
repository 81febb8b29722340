//! Spin.

use super::flat;
use crate::Machine;
use std::fmt::Write;

/// A process that is the protocol, a driver that sends what it likes and receives all, and a claim for each owed state.
///
/// Channels have no room, so that a message is sent only where the protocol takes it. All names have a prefix, because
/// names such as `timeout` are words of Promela.
pub(super) fn text(machine: &Machine) -> String {
    let name = machine.name();
    let message = |at: usize| format!("{name}_{}", machine.messages()[at].name);
    let label = |at: usize| {
        let state = &machine.states[at];
        format!("{}at_{}", if state.final_ { "end_" } else { "" }, flat(&state.name))
    };
    let all: Vec<String> = (0..machine.messages().len()).map(message).collect();
    let mut out = format!("/* The protocol {name}. ");
    out.push_str(
        "Replace the process driver by a model of a driver; the protocol ends in its final states. */\n",
    );
    let _ = writeln!(out, "mtype = {{ {} }};", all.join(", "));
    out.push_str("chan to_driver = [0] of { mtype };\nchan to_kernel = [0] of { mtype };\n\n");
    let _ = writeln!(out, "active proctype protocol_{name}()\n{{");
    let _ = writeln!(out, "\tgoto {};", label(machine.start));
    for state in 0..machine.states.len() {
        let _ = writeln!(out, "{}:", label(state));
        let mut moves = machine.moves(state).peekable();
        if moves.peek().is_none() {
            out.push_str("\tfalse;\n");
            continue;
        }
        out.push_str("\tif\n");
        for (at, to) in moves {
            let act = if machine.is_in(at) { "to_driver!" } else { "to_kernel?" };
            let _ = writeln!(out, "\t:: {act}{} -> goto {}", message(at), label(to));
        }
        out.push_str("\tfi;\n");
    }
    out.push_str("}\n\nactive proctype driver()\n{\nend_driver:\n\tdo\n");
    for (at, name) in all.iter().enumerate() {
        let act = if machine.is_in(at) { "to_driver?" } else { "to_kernel!" };
        let _ = writeln!(out, "\t:: {act}{name}");
    }
    out.push_str("\tod\n}\n\n");
    out.push_str("/* The driver leaves each owed state: choose one with spin -a -N or with the verifier's option -N. */\n");
    for (at, state) in machine.states.iter().enumerate().filter(|(_, state)| state.owed) {
        let here = format!("protocol_{name}@{}", label(at));
        let _ = writeln!(out, "ltl leaves_{} {{ [] (({here}) -> <> !({here})) }}", flat(&state.name));
    }
    out
}
