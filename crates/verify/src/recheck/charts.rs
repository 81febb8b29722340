//! The protocols of a program as their charts say them, transition by transition, without the machines of the search.

use guardrail_protocol::model::{Direction, Protocol, State};
use std::collections::HashMap;

/// The first number of a message that a driver sends.
const OUT: u64 = 64;

/// A message: the index of its protocol among those that are followed, and its index there.
pub type Mail = (usize, usize);

/// The protocols that a program follows.
pub struct Charts<'a> {
    /// The protocols.
    pub all: Vec<&'a Protocol>,
    /// Messages by number.
    pub numbers: HashMap<u64, Mail>,
}

impl<'a> Charts<'a> {
    /// The protocols with these names. Messages are numbered over all protocols.
    pub fn new(stock: &'a [&'a Protocol], names: &str) -> Result<Charts<'a>, String> {
        let mut charts = Charts { all: Vec::new(), numbers: HashMap::new() };
        for name in names.split_whitespace() {
            let found = stock.iter().find(|one| one.name == name);
            charts.all.push(found.ok_or_else(|| format!("there is no protocol {name}"))?);
        }
        let mut next = [0, OUT];
        for protocol in stock {
            let at = charts.all.iter().position(|one| one.name == protocol.name);
            for (message, it) in protocol.messages.iter().enumerate() {
                let next = &mut next[usize::from(it.direction == Direction::Out)];
                charts.numbers.extend(at.map(|at| (*next, (at, message))));
                *next += 1;
            }
        }
        Ok(charts)
    }

    /// The number of a message.
    pub fn number(&self, mail: Mail) -> Option<u64> {
        self.numbers.iter().find(|(_, one)| **one == mail).map(|(number, _)| *number)
    }

    /// Whether the kernel sends a message.
    pub fn comes(&self, mail: Mail) -> bool {
        self.all[mail.0].messages[mail.1].direction == Direction::In
    }

    /// Whether an AWAIT with this mask ends.
    pub fn ends(&self, states: &[u16], mask: u64) -> bool {
        self.all.iter().enumerate().any(|(at, protocol)| {
            let mut some = false;
            let all = (0..protocol.messages.len()).all(|message| {
                let may_come = self.comes((at, message)) && step(protocol, states[at], message).is_some();
                some |= may_come;
                !may_come
                    || self
                        .number((at, message))
                        .is_some_and(|number| number < OUT && mask >> number & 1 == 1)
            });
            all && some && has(protocol, states[at], |state| state.fair)
        })
    }
}

/// A state and those around it.
fn outwards(protocol: &Protocol, state: u16) -> Vec<usize> {
    let mut all = vec![usize::from(state)];
    while let Some(parent) = all.last().and_then(|at| protocol.states[*at].parent) {
        if all.len() > protocol.states.len() {
            break;
        }
        all.push(parent);
    }
    all
}

/// Whether a state or one around it has a flag.
pub fn has(protocol: &Protocol, state: u16, flag: impl Fn(&State) -> bool) -> bool {
    outwards(protocol, state).into_iter().any(|at| flag(&protocol.states[at]))
}

/// The leaf that is entered with a state, or at the start.
pub fn enter(protocol: &Protocol, state: Option<usize>) -> Option<u16> {
    let mut at = state;
    for _ in 0..=protocol.states.len() {
        let mut inner = protocol.states.iter().enumerate().filter(|(_, one)| one.parent == at);
        let Some(first) = inner.next() else { return at.and_then(|at| u16::try_from(at).ok()) };
        at = Some(std::iter::once(first).chain(inner).find(|(_, one)| one.initial)?.0);
    }
    None
}

/// The state after a message; absent where the chart does not allow it, or does not say where it leads.
pub fn step(protocol: &Protocol, state: u16, message: usize) -> Option<u16> {
    let around = outwards(protocol, state);
    let mut found = None;
    for transition in &protocol.transitions {
        if transition.message != message || !transition.from.iter().any(|from| around.contains(from)) {
            continue;
        }
        let to = match transition.to {
            None => state,
            Some(to) => enter(protocol, Some(to))?,
        };
        if found.is_some_and(|found| found != to) {
            return None;
        }
        found = Some(to);
    }
    found
}

/// The leaf of a name such as `bound.running`.
pub fn named(protocol: &Protocol, name: &str) -> Option<u16> {
    let mut at = None;
    for part in name.split('.') {
        at = Some(protocol.states.iter().position(|state| state.parent == at && state.name == part)?);
    }
    at.and_then(|at| u16::try_from(at).ok())
}

/// A leaf's name.
pub fn name(protocol: &Protocol, state: u16) -> String {
    let mut names: Vec<&str> =
        outwards(protocol, state).into_iter().map(|at| protocol.states[at].name.as_str()).collect();
    names.reverse();
    names.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use guardrail_protocol::stock;

    /// Two readings of the stock charts agree: this one and the machines of the search.
    #[test]
    fn charts_and_machines_agree() {
        let machines = stock::machines().unwrap();
        let mut pairs = 0;
        for machine in &machines {
            let protocol = &machine.protocol;
            let leaf = |state: usize| named(protocol, &machine.states[state].name).unwrap();
            assert_eq!(enter(protocol, None), Some(leaf(machine.start)));
            for (state, it) in machine.states.iter().enumerate() {
                let at = leaf(state);
                assert_eq!(name(protocol, at), it.name);
                assert_eq!(has(protocol, at, |one| one.fair), it.fair);
                assert_eq!(has(protocol, at, |one| one.owed), it.owed);
                assert_eq!(has(protocol, at, |one| one.final_), it.final_);
                for message in 0..protocol.messages.len() {
                    assert_eq!(step(protocol, at, message), machine.step(state, message).map(leaf));
                    pairs += 1;
                }
            }
        }
        assert!(pairs > 1000);
    }
}
