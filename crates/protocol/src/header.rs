//! C files that active drivers and the core of active drivers are built from: numbers of messages, accessors of payloads, and
//! the protocols as tables for the monitor.

#[cfg(test)]
mod tests;

use crate::Machine;
use crate::boxes::{Boxes, c_name};
use crate::model::{Direction, Message, ParameterKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Where the header is, from the folder of active drivers.
pub const HEADER: &str = "include/protocols.h";
/// Where the tables are, from the folder of active drivers.
pub const TABLES: &str = "core/protocols.c";

/// In the tables: the message is not allowed.
const NONE: usize = 255;

/// The texts of both files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The text of [`HEADER`].
    pub header: String,
    /// The text of [`TABLES`].
    pub tables: String,
}

/// Makes both files, or says why these protocols do not fit in C.
pub fn sources(machines: &[Machine]) -> Result<Sources, String> {
    let boxes = Boxes::new(machines)?;
    distinct(machines)?;
    fits(machines, &boxes)?;
    Ok(Sources { header: header(machines, &boxes), tables: tables(machines, &boxes) })
}

/// Refuses two messages of one C name, such as those of `a_b` in `c` and of `b` in `c_a`.
fn distinct(machines: &[Machine]) -> Result<(), String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for machine in machines {
        for message in machine.messages() {
            let path = format!("{}.{}", machine.name(), message.name);
            let name = c_name(machine.name(), &message.name);
            if let Some(other) = known.insert(name.clone(), path.clone()) {
                return Err(format!("{other} and {path} would both be {name} in C; rename one"));
            }
        }
    }
    Ok(())
}

/// Refuses what the tables have no room for.
fn fits(machines: &[Machine], boxes: &Boxes) -> Result<(), String> {
    if boxes.end() > 256 {
        return Err(format!("all messages have {} numbers; the tables have room for 256", boxes.end()));
    }
    for machine in machines {
        if let Some(message) = machine.messages().iter().find(|message| message.room > u16::MAX.into()) {
            let Message { name, room, line, .. } = message;
            let file = &machine.protocol.file;
            return Err(format!(
                "{file}, line {line}: {name} has room {room}; the tables have room for 65535"
            ));
        }
    }
    Ok(())
}

/// The words above both files.
const HEAD: &str = "/* Generated from knowledge/CLASS/protocol.chart by `guardrail protocol header`, as tables; do not edit. */\n";

/// The C name of a protocol's number.
fn number_name(machine: &Machine) -> String {
    format!("ACTIVE_{}", machine.name().to_ascii_uppercase())
}

fn header(machines: &[Machine], boxes: &Boxes) -> String {
    let mut out = format!("/* SPDX-License-Identifier: GPL-2.0-or-later */\n{HEAD}");
    out.push_str("#ifndef ACTIVE_PROTOCOLS_H\n#define ACTIVE_PROTOCOLS_H\n\nenum active_protocol_id {\n");
    for machine in machines {
        let _ = writeln!(out, "\t{},", number_name(machine));
    }
    out.push_str("\tACTIVE_PROTOCOLS,\n};\n\n");
    out.push_str(
        "/* The driver receives the messages below 64, and sends the others. */\nenum active_box {\n",
    );
    for (protocol, message) in (0..boxes.end()).filter_map(|number| boxes.owner(number)) {
        let name = c_name(machines[protocol].name(), &machines[protocol].messages()[message].name);
        let _ = writeln!(out, "\t{name} = {},", boxes.number(protocol, message).unwrap_or_default());
    }
    let _ = write!(out, "\tACTIVE_BOXES_END = {},\n}};\n\n", boxes.end());
    let pointers = machines.iter().flat_map(Machine::messages).filter_map(Message::pointer);
    let types: BTreeSet<&str> =
        pointers.map(|(_, target)| target).filter(|target| target.contains(' ')).collect();
    for name in types {
        let _ = writeln!(out, "{name};");
    }
    for machine in machines {
        for message in machine.messages() {
            accessors(&mut out, machine.name(), message);
        }
    }
    out.push_str("\n#endif\n");
    out
}

/// What reads and what writes each part of a message's payload.
fn accessors(out: &mut String, protocol: &str, message: &Message) {
    for parameter in &message.payload {
        let (kind, member) = match &parameter.kind {
            ParameterKind::Pointer(target) => (format!("{target} *"), "pointer"),
            ParameterKind::Number => ("long ".to_owned(), "number"),
        };
        let (prefix, name) = (format!("{protocol}_{}", message.name), &parameter.name);
        let _ = write!(
            out,
            "\nstatic inline {kind}{prefix}_{name}(const struct active_message *m)\n{{\n\treturn m->{member};\n}}\n\
             \nstatic inline void {prefix}_set_{name}(struct active_message *m, {kind}{name})\n{{\n\
             \tm->{member} = {name};\n}}\n"
        );
    }
}

fn tables(machines: &[Machine], boxes: &Boxes) -> String {
    let mut out = format!("// SPDX-License-Identifier: GPL-2.0-or-later\n{HEAD}");
    out.push_str("#include <linux/types.h>\n\n#include \"active.h\"\n#include \"protocol.h\"\n");
    for (protocol, machine) in machines.iter().enumerate() {
        states(&mut out, protocol, machine, boxes);
        messages(&mut out, machine);
        next(&mut out, machine);
    }
    out.push_str("\nconst struct active_protocol active_protocols[ACTIVE_PROTOCOLS] = {\n");
    for (protocol, machine) in machines.iter().enumerate() {
        let name = machine.name();
        let incoming = machine.incoming().count();
        let first = |direction: Direction| {
            let first = machine.messages().iter().position(|message| message.direction == direction);
            first.and_then(|message| boxes.number(protocol, message)).unwrap_or_default()
        };
        let _ = writeln!(
            out,
            "\t[{}] = {{\n\t\t.name = \"{name}\", .states = {name}_states, .state_count = {}, .initial = {},\n\
             \t\t.ins = {name}_ins, .first_in = {}, .in_count = {incoming},\n\
             \t\t.outs = {name}_outs, .first_out = {}, .out_count = {}, .next = &{name}_next[0][0],\n\t}},",
            number_name(machine),
            machine.states.len(),
            machine.start,
            first(Direction::In),
            first(Direction::Out),
            machine.messages().len() - incoming,
        );
    }
    out.push_str("};\n");
    out
}

fn states(out: &mut String, protocol: usize, machine: &Machine, boxes: &Boxes) {
    let _ = writeln!(out, "\nstatic const struct active_state {}_states[] = {{", machine.name());
    for (at, state) in machine.states.iter().enumerate() {
        let set = flags(&[
            (state.fair, "ACTIVE_STATE_FAIR"),
            (state.owed, "ACTIVE_STATE_OWED"),
            (state.final_, "ACTIVE_STATE_FINAL"),
        ]);
        let enabled = mask(boxes, protocol, machine.enabled(at));
        let _ = writeln!(out, "\t{{ \"{}\", {set}, {enabled:#x}ULL }},", state.name);
    }
    out.push_str("};\n");
}

fn messages(out: &mut String, machine: &Machine) {
    for (suffix, direction) in [("ins", Direction::In), ("outs", Direction::Out)] {
        let _ = writeln!(out, "\nstatic const struct active_box_info {}_{suffix}[] = {{", machine.name());
        for message in machine.messages().iter().filter(|message| message.direction == direction) {
            let set = flags(&[(message.sleeps, "ACTIVE_BOX_SLEEPS"), (message.head, "ACTIVE_BOX_HEAD")]);
            let room = if direction == Direction::In { message.room } else { 0 };
            let _ = writeln!(out, "\t{{ \"{}\", {set}, {room} }},", message.name);
        }
        out.push_str("};\n");
    }
}

/// The next states: a row for each state, and in it the incoming messages before the outgoing ones.
fn next(out: &mut String, machine: &Machine) {
    let count = machine.messages().len();
    let (mut columns, outgoing): (Vec<usize>, Vec<usize>) =
        (0..count).partition(|&message| machine.is_in(message));
    columns.extend(outgoing);
    let _ = writeln!(out, "\nstatic const u8 {}_next[][{count}] = {{", machine.name());
    for row in &machine.next {
        let cells: Vec<String> =
            columns.iter().map(|&message| row[message].unwrap_or(NONE).to_string()).collect();
        let _ = writeln!(out, "\t{{ {} }},", cells.join(", "));
    }
    out.push_str("};\n");
}

fn mask(boxes: &Boxes, protocol: usize, messages: impl Iterator<Item = usize>) -> u64 {
    messages.filter_map(|message| boxes.number(protocol, message)).fold(0, |mask, number| mask | 1 << number)
}

fn flags(all: &[(bool, &str)]) -> String {
    let set: Vec<&str> = all.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    if set.is_empty() { "0".to_owned() } else { set.join(" | ") }
}
