//! What is found in an ordinary driver, as findings of a report.

use super::property::Property;
use crate::engine::search::Wrong;
use crate::findings::at;
use crate::ir::Module;
use crate::knowledge::plain;
use crate::messages::Protocols;
use crate::program::Program;
use crate::sequence;
use crate::verdict::{Broken, Fault};
use guardrail_finding::Finding;
use guardrail_protocol::model::Link;

/// A run that breaks a property, as a finding. The notes hold the sequence of callbacks and calls.
pub fn finding(
    modules: &[Module],
    property: &Property,
    (program, protocols): (&Program, &Protocols),
    fault: &Fault,
) -> Finding {
    let (_, states) = sequence::messages(program, protocols, fault);
    let own = protocols.machines.len() - 1;
    let state = protocols.machines[own].states[states[own] as usize].name.clone();
    let edge = fault.last.or_else(|| fault.path.last().map(|step| step.edge));
    let numbered = |edge: &u32| program.edges[*edge as usize].line.number != 0;
    let edge = edge.filter(numbered).or_else(|| fault.path.iter().rev().map(|step| step.edge).find(numbered));
    let place = property.line.as_ref().map(|(home, line)| {
        let file = modules[*home].debug.files.get(line.file as usize).cloned().unwrap_or_default();
        format!(" at {file}:{}", line.number)
    });
    let place = place.unwrap_or_default() + &property.object;
    let (acquire, release) = (plain(&property.acquire), &property.release);
    let (kind, message) = match &fault.rule {
        Broken::Step(Wrong::End(_)) => (
            "not-released",
            format!(
                "the driver has left the device, and what {acquire}{place} acquired is not released by {release}"
            ),
        ),
        _ if property.rule => (
            "not-allowed",
            format!(
                "{acquire} or one like it is called while {} is in state {state}",
                protocols.machines[own].name()
            ),
        ),
        _ if state == "held" => ("acquired-twice", format!("{acquire} is called again without {release}")),
        _ if state == "released" => {
            ("released-twice", format!("{release} is called again, for what {acquire}{place} acquired"))
        }
        _ => ("not-acquired", format!("{release} is called, and nothing was acquired by {acquire}")),
    };
    let mut notes = vec![if fault.feasible {
        "This run is feasible: each condition on it is decided, or depends on the device or the kernel alone."
            .to_owned()
    } else {
        "Whether this run is feasible is unknown: a condition on it was too complex to be decided.".to_owned()
    }];
    let unseen: Vec<String> = protocols
        .machines
        .iter()
        .flat_map(|machine| machine.protocol.transitions.iter().map(move |one| (machine, one)))
        .filter(|(machine, transition)| {
            transition.link == Some(Link::Unseen) && machine.is_in(transition.message)
        })
        .map(|(machine, one)| format!(" {}.{} ", machine.name(), machine.messages()[one.message].name))
        .collect();
    let text = sequence::text(program, protocols, fault);
    notes.extend(text.into_iter().filter(|line| !unseen.iter().any(|name| line.contains(name))));
    at(program, edge, kind.to_owned(), message, notes)
}
