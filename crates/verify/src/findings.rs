//! Faults as findings of a report.

use crate::engine::liveness::{Duty, Ended};
use crate::engine::ranking::Measure;
use crate::engine::search::Wrong;
use crate::messages::Protocols;
use crate::program::Program;
use crate::sequence;
use crate::verdict::{Broken, Fault};
use guardrail_finding::{Finding, Location};
use std::collections::BTreeSet;

/// One sentence about a fault.
fn sentence(program: &Program, protocols: &Protocols, fault: &Fault) -> String {
    let (_, states) = sequence::messages(program, protocols, fault);
    let state = |at: usize| protocols.machines[at].states[states[at] as usize].name.clone();
    match &fault.rule {
        Broken::Step(Wrong::Emit(number)) => match protocols.mail(*number) {
            Ok(mail) => format!(
                "the driver sends {}, which state {} of {} does not allow",
                protocols.name(mail),
                state(mail.0),
                protocols.machines[mail.0].name()
            ),
            Err(what) => format!("the driver sends {what}"),
        },
        Broken::Step(Wrong::Await(mask)) => format!(
            "AWAIT({}) may never end: no protocol is in a fair state with all its messages awaited ({})",
            sequence::mask(protocols, *mask),
            protocols.describe(&states).join(", ")
        ),
        Broken::Step(Wrong::End(at)) => {
            format!(
                "the main function returns while {} is in state {}",
                protocols.machines[*at].name(),
                state(*at)
            )
        }
        Broken::Step(Wrong::Sleep(name)) => {
            format!("{name} may sleep between an atomic message and the next AWAIT")
        }
        Broken::Step(Wrong::Open) => "which message is sent or awaited is not known".to_owned(),
        Broken::Duty(Duty::Await(mail)) => {
            format!("{} may stay enabled for ever without an AWAIT for it", protocols.name(*mail))
        }
        Broken::Duty(Duty::Leave(at, mode)) => {
            let machine = &protocols.machines[*at];
            format!(
                "the driver may stay in the owed state {}.{} for ever",
                machine.name(),
                machine.states[*mode as usize].name
            )
        }
    }
}

/// A fault as a finding. The notes hold the sequence of messages.
pub fn finding(program: &Program, protocols: &Protocols, fault: &Fault) -> Finding {
    let edge = fault
        .last
        .or_else(|| fault.cycle.first().map(|step| step.edge))
        .or_else(|| fault.path.last().map(|step| step.edge));
    // The last line of what goes around says where it turns.
    let numbered = |edge: &u32| program.edges[*edge as usize].line.number != 0;
    let turn = fault.cycle.iter().rev().map(|step| step.edge).find(numbered);
    let edge = turn.filter(|_| fault.last.is_none()).or(edge);
    let mut notes = vec![if fault.feasible {
        "This run is feasible: each condition on it is decided, or depends on what the device and functions of the kernel return, which may be anything."
            .to_owned()
    } else {
        "Whether this run is feasible is unknown: a condition on it is too complex, or depends on memory that is not followed.".to_owned()
    }];
    notes.extend(sequence::text(program, protocols, fault));
    let kind = format!("protocol-rule-{}", fault.rule.rule());
    at(program, edge, kind, sentence(program, protocols, fault), notes)
}

/// A finding at the line and in the function of an edge.
pub fn at(
    program: &Program,
    edge: Option<u32>,
    kind: String,
    message: String,
    notes: Vec<String>,
) -> Finding {
    let line = edge.map(|edge| program.edges[edge as usize].line.clone()).unwrap_or_default();
    let function = edge.map_or("?".to_owned(), |edge| {
        let node = program.edges[edge as usize].from;
        program.functions[program.nodes[node as usize].function as usize].clone()
    });
    let file = program.files.get(line.file as usize).cloned().unwrap_or_default();
    let mut finding = Finding {
        checker: "verify".to_owned(),
        kind,
        message,
        module: file.rsplit('/').next().unwrap_or_default().trim_end_matches(".c").to_owned(),
        function,
        location: (line.number != 0).then_some(Location { file, line: line.number }),
        notes,
        count: 1,
        ..Finding::default()
    };
    finding.id = finding.fingerprint();
    finding
}

/// What is taken for granted where loops end by the time or with a list.
pub fn loops(program: &Program, ended: &[(Duty, Vec<Ended>)]) -> Vec<String> {
    let mut found = BTreeSet::new();
    let mut work: Vec<&Ended> = ended.iter().flat_map(|(_, all)| all).collect();
    while let Some(one) = work.pop() {
        work.extend(&one.inner);
        let line = one.rank.guards.first().map(|edge| program.location(&program.edges[*edge as usize].line));
        let line = line.unwrap_or_default();
        match one.rank.measure {
            Measure::Clock => {
                found.insert(format!("the time passes, so that the loop at {line} ends"));
            }
            Measure::List => {
                found.insert(format!("the list or queue that the loop at {line} walks has an end"));
            }
            Measure::Ring(_) | Measure::Counter | Measure::Bits => {}
        }
    }
    found.into_iter().collect()
}
