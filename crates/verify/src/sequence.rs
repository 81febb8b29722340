//! A run as a message sequence chart: text and SVG.

use crate::messages::{Mail, Protocols};
use crate::program::{Action, Program};
use crate::verdict::Fault;
use std::fmt::Write;

/// A message of a run.
pub struct Sent {
    /// Whether the driver receives it.
    pub incoming: bool,
    /// Its name.
    pub name: String,
    /// The source line.
    pub location: String,
    /// The protocol's state before and after.
    pub states: (String, String),
    /// Whether it is in the part that goes around.
    pub repeated: bool,
}

/// The messages of a run, and the states at its end.
pub fn messages(program: &Program, protocols: &Protocols, fault: &Fault) -> (Vec<Sent>, Vec<u8>) {
    let mut states = protocols.start();
    let mut all = Vec::new();
    let steps =
        fault.path.iter().map(|step| (step, false)).chain(fault.cycle.iter().map(|step| (step, true)));
    for (step, repeated) in steps {
        let edge = &program.edges[step.edge as usize];
        let number = match (&edge.action, step.received) {
            (Action::Await(..), Some(number)) => Some(u64::from(number)),
            (Action::Emit(id), _) => program.arena.number(*id),
            _ => None,
        };
        let Some(mail) = number.and_then(|number| protocols.mail(number).ok()) else { continue };
        let Some(next) = protocols.step(&states, mail) else { continue };
        let name = |states: &[u8]| protocols.machines[mail.0].states[states[mail.0] as usize].name.clone();
        all.push(Sent {
            incoming: step.received.is_some(),
            name: protocols.name(mail),
            location: program.location(&edge.line),
            states: (name(&states), name(&next)),
            repeated,
        });
        states = next;
    }
    (all, states)
}

/// The chart as lines of text.
pub fn text(program: &Program, protocols: &Protocols, fault: &Fault) -> Vec<String> {
    let (all, states) = messages(program, protocols, fault);
    let width = all.iter().map(|sent| sent.name.len()).max().unwrap_or(0);
    let mut lines = Vec::new();
    let mut around = false;
    for sent in &all {
        if sent.repeated && !around {
            around = true;
            lines.push("from here on again and again:".to_owned());
        }
        let arrow = if sent.incoming { "kernel -->" } else { "kernel <--" };
        let change = if sent.states.0 == sent.states.1 {
            sent.states.0.clone()
        } else {
            format!("{} -> {}", sent.states.0, sent.states.1)
        };
        lines.push(format!("{arrow} {:width$}  {}  ({change})", sent.name, sent.location));
    }
    if !fault.cycle.is_empty() && !around {
        lines.push("from here on without a message, again and again".to_owned());
    }
    lines.push(format!("states: {}", protocols.describe(&states).join(", ")));
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The chart as a picture; `last` says what is wrong at its end.
pub fn svg(program: &Program, protocols: &Protocols, fault: &Fault, last: &str) -> String {
    const ROW: usize = 34;
    const LEFT: usize = 140;
    const RIGHT: usize = 460;
    let (all, states) = messages(program, protocols, fault);
    let height = 90 + ROW * (all.len() + 2);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"900\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <defs><marker id=\"a\" markerWidth=\"9\" markerHeight=\"7\" refX=\"9\" refY=\"3.5\" orient=\"auto\"><path d=\"M0,0 L9,3.5 L0,7 z\"/></marker></defs>\n"
    );
    for (x, name) in [(LEFT, "kernel"), (RIGHT, "driver")] {
        let _ = writeln!(
            out,
            "<text x=\"{x}\" y=\"24\" text-anchor=\"middle\" font-weight=\"bold\">{name}</text>\n\
             <line x1=\"{x}\" y1=\"32\" x2=\"{x}\" y2=\"{}\" stroke=\"gray\"/>",
            height - 50
        );
    }
    for (index, sent) in all.iter().enumerate() {
        let y = 56 + ROW * index;
        let (from, to) = if sent.incoming { (LEFT, RIGHT) } else { (RIGHT, LEFT) };
        let color = if sent.repeated { "#b00" } else { "black" };
        let _ = writeln!(
            out,
            "<line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\" stroke=\"{color}\" marker-end=\"url(#a)\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"{color}\">{}</text>\n\
             <text x=\"{}\" y=\"{}\" fill=\"gray\">{}  {}</text>",
            (LEFT + RIGHT) / 2,
            y - 5,
            escape(&sent.name),
            RIGHT + 14,
            y + 4,
            escape(sent.location.rsplit('/').next().unwrap_or_default()),
            escape(&sent.states.1)
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"20\" y=\"{}\">{}</text>\n<text x=\"20\" y=\"{}\" fill=\"#b00\">{}</text>\n</svg>",
        height - 32,
        escape(&protocols.describe(&states).join(", ")),
        height - 12,
        escape(last)
    );
    out
}

/// Names of messages in a mask.
pub fn mask(protocols: &Protocols, mask: u64) -> String {
    let known = |number: u64| -> Option<Mail> { protocols.mail(number).ok() };
    let names: Vec<String> =
        (0..64).filter(|at| mask >> at & 1 == 1).filter_map(known).map(|mail| protocols.name(mail)).collect();
    names.join(", ")
}
