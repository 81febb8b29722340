//! Whether rules mean the same as a protocol. This shares no code with `decompose`, which makes the rules.
//!
//! The protocol and all rules run side by side through every run that both sides allow. In each place, both must allow the
//! same messages, and be fair for the same set of messages.

use crate::Machine;
use crate::decompose::{Subject, Subprotocol};
use std::collections::{BTreeSet, HashMap};

/// The most places that are looked at. A true decomposition has as many as its protocol has states.
const LIMIT: usize = 200_000;

/// What makes both sides differ: after these messages, that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Names of the messages of the run, with their signs.
    pub run: Vec<String>,
    /// What differs, as a part of a sentence.
    pub what: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.run.is_empty() {
            true => write!(f, "at the start, {}", self.what),
            false => write!(f, "after {}, {}", self.run.join(" "), self.what),
        }
    }
}

/// A state of the protocol with the states of all rules.
type Place = (usize, Vec<usize>);

/// The number of places that were compared, or the first difference.
pub fn check(machine: &Machine, rules: &[Subprotocol]) -> Result<usize, Difference> {
    let malformed = |what: &str| Difference { run: Vec::new(), what: what.to_owned() };
    for rule in rules {
        let states = rule.next.len();
        let inside = |to: &Option<usize>| to.is_none_or(|to| to < states);
        let whole = rule.start < states
            && rule.yes.len() == states
            && rule
                .next
                .iter()
                .all(|row| row.len() == machine.protocol.messages.len() && row.iter().all(inside));
        if !whole {
            return Err(malformed("a rule's table has a hole"));
        }
    }
    let start: Place = (machine.start, rules.iter().map(|rule| rule.start).collect());
    // Each place with the number of the place before it and the message between them.
    let mut places: Vec<(Place, Option<(usize, usize)>)> = vec![(start.clone(), None)];
    let mut known: HashMap<Place, usize> = HashMap::from([(start, 0)]);
    let mut at = 0;
    while at < places.len() {
        let place = places[at].0.clone();
        fairness(machine, rules, &place)
            .map_err(|what| Difference { run: run(machine, &places, at), what })?;
        for message in 0..machine.protocol.messages.len() {
            let differs = |what: String| Err(Difference { run: run(machine, &places, at), what });
            let by_protocol = machine.next[place.0][message];
            let refuses = |&(rule, &state): &(&Subprotocol, &usize)| {
                rule.subject == Subject::Message(message) && !rule.yes[state]
            };
            let refusal = rules.iter().zip(&place.1).find(refuses);
            let name = machine.protocol.messages[message].signed();
            let to = match (by_protocol, refusal) {
                (None, Some(_)) => continue,
                (Some(to), None) => to,
                (Some(_), Some(_)) => {
                    return differs(format!("a rule refuses {name}, the protocol allows it"));
                }
                (None, None) => return differs(format!("no rule refuses {name}, the protocol does")),
            };
            let moved = |(rule, &state): (&Subprotocol, &usize)| rule.next[state][message].unwrap_or(state);
            let next: Place = (to, rules.iter().zip(&place.1).map(moved).collect());
            if known.contains_key(&next) {
                continue;
            }
            if places.len() == LIMIT {
                return differs(format!("more than {LIMIT} places, so it is not decided"));
            }
            known.insert(next.clone(), places.len());
            places.push((next, Some((at, message))));
        }
        at += 1;
    }
    Ok(places.len())
}

/// Both sides are fair for the same set of messages, or neither is fair.
fn fairness(machine: &Machine, rules: &[Subprotocol], place: &Place) -> Result<(), String> {
    let mut expected: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    if machine.states[place.0].fair {
        let row = machine.next[place.0].iter().enumerate();
        let incoming = row.filter(|(message, to)| to.is_some() && machine.is_in(*message));
        let set: BTreeSet<usize> = incoming.map(|(message, _)| message).collect();
        if !set.is_empty() {
            expected.insert(set);
        }
    }
    let mut found: BTreeSet<BTreeSet<usize>> = BTreeSet::new();
    for (rule, &state) in rules.iter().zip(&place.1) {
        if let Subject::Fair(set) = &rule.subject
            && rule.yes[state]
        {
            found.insert(set.clone());
        }
    }
    if expected == found {
        return Ok(());
    }
    let state = &machine.states[place.0].name;
    Err(match expected.is_empty() {
        false => format!("state {state} is fair, and the rules do not say so"),
        true => format!("a rule is fair, and state {state} is not"),
    })
}

/// The messages from the start to a place.
fn run(machine: &Machine, places: &[(Place, Option<(usize, usize)>)], at: usize) -> Vec<String> {
    let mut messages = Vec::new();
    let mut before = places[at].1;
    while let Some((place, message)) = before {
        messages.push(machine.protocol.messages[message].signed());
        before = places[place].1;
    }
    messages.reverse();
    messages
}
