//! Protocols in the languages of other tools.

mod dot;
mod promela;
mod rv;
#[cfg(test)]
mod tests;

use crate::Machine;
use std::collections::{BTreeMap, BTreeSet};

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Graphviz, with the hierarchy as clusters.
    Dot,
    /// Spin: the kernel follows the protocol, the driver is nondeterministic.
    Promela,
    /// Graphviz in the dialect that the kernel's `rvgen` reads.
    Rv,
    /// C, as the kernel's `rvgen` makes it.
    RvC,
}

/// A protocol in a language, or why it has no form there.
pub fn export(machine: &Machine, form: Form) -> Result<String, String> {
    if form != Form::Dot {
        distinct(machine)?;
    }
    if matches!(form, Form::Rv | Form::RvC) {
        apart(machine)?;
    }
    Ok(match form {
        Form::Dot => dot::text(machine),
        Form::Promela => promela::text(machine),
        Form::Rv => rv::dot(machine),
        Form::RvC => rv::c(machine),
    })
}

/// Refuses two states of one name, where dots are not allowed.
fn distinct(machine: &Machine) -> Result<(), String> {
    let mut known: BTreeMap<String, &str> = BTreeMap::new();
    for state in &machine.states {
        if let Some(other) = known.insert(flat(&state.name), &state.name) {
            return Err(format!(
                "{}: states {other} and {} would have one name in this language; rename one",
                machine.protocol.file, state.name
            ));
        }
    }
    Ok(())
}

/// Refuses a state with the name of an event.
fn apart(machine: &Machine) -> Result<(), String> {
    let events: BTreeSet<String> = (0..machine.messages().len()).map(|at| rv::event(machine, at)).collect();
    match machine.states.iter().find(|state| events.contains(&flat(&state.name))) {
        None => Ok(()),
        Some(state) => Err(format!(
            "{}: state {} has the name of an event in this language; rename it",
            machine.protocol.file, state.name
        )),
    }
}

/// A state's name where a dot is not allowed.
fn flat(name: &str) -> String {
    name.replace('.', "_")
}
