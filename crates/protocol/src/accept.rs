//! Whether a recorded run of an ordinary driver is a run of a protocol.
//!
//! The driver sends no messages: its callbacks and calls stand for them, by the links of the transitions. Some messages have
//! nothing that stands for them, so the state is not known, and a set of states is followed.

use crate::Machine;
use crate::model::{Link, Outcome, Transition};
use std::collections::BTreeSet;

/// What a recorded run shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Observed {
    /// A callback of the object chart begins.
    Begin(String),
    /// A callback ends with a result, where that is known.
    End(String, Option<u64>),
    /// A kernel function that the driver has called returns a result, where that is known.
    Call(String, Option<u64>),
}

impl Observed {
    /// The callback that begins or ends.
    pub fn callback(&self) -> Option<&str> {
        match self {
            Observed::Begin(name) | Observed::End(name, _) => Some(name),
            Observed::Call(..) => None,
        }
    }
}

impl std::fmt::Display for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, name, result) = match self {
            Observed::Begin(name) => return write!(f, "begin of {name}"),
            Observed::End(name, result) => ("end of", name, result),
            Observed::Call(name, result) => ("call of", name, result),
        };
        match result {
            Some(result) => write!(f, "{what} {name} with {}", *result as i32),
            None => write!(f, "{what} {name}"),
        }
    }
}

/// What a protocol says about an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No transition of the protocol stands for it.
    Irrelevant,
    /// The protocol allows it.
    Allowed,
    /// No state that the object may be in allows it.
    Refused,
}

/// Follows one object.
#[derive(Clone, Debug)]
pub struct Acceptor<'a> {
    machine: &'a Machine,
    /// The callbacks that the run of the object has somewhere.
    callbacks: BTreeSet<&'a str>,
    states: BTreeSet<usize>,
}

impl<'a> Acceptor<'a> {
    /// An object whose run begins, and has these callbacks somewhere.
    pub fn new(machine: &'a Machine, callbacks: BTreeSet<&'a str>) -> Acceptor<'a> {
        let mut acceptor = Acceptor { machine, callbacks, states: BTreeSet::from([machine.start]) };
        acceptor.silent();
        acceptor
    }

    /// Names of the states that the object may be in.
    pub fn states(&self) -> Vec<&'a str> {
        self.states.iter().map(|&state| self.machine.states[state].name.as_str()).collect()
    }

    /// Whether the object may be in a state where the driver may end.
    pub fn may_end(&self) -> bool {
        self.states.iter().any(|&state| self.machine.states[state].final_)
    }

    /// Takes an event. Behind one that is refused, the states are those before it.
    pub fn take(&mut self, event: &Observed) -> Verdict {
        if !self.machine.protocol.transitions.iter().any(|transition| stands(transition.link.as_ref(), event))
        {
            return Verdict::Irrelevant;
        }
        let mut next = BTreeSet::new();
        for &state in &self.states {
            for (message, to) in self.machine.moves(state) {
                if self.rules(state, message).any(|rule| stands(rule.link.as_ref(), event)) {
                    next.insert(to);
                }
            }
        }
        if next.is_empty() {
            return Verdict::Refused;
        }
        self.states = next;
        self.silent();
        Verdict::Allowed
    }

    fn rules(&self, state: usize, message: usize) -> impl Iterator<Item = &'a Transition> + use<'a> {
        let machine = self.machine;
        machine.rules[state][message].iter().map(|&rule| &machine.protocol.transitions[rule])
    }

    /// Adds the states that messages lead to which a run does not show.
    fn silent(&mut self) {
        let mut todo: Vec<usize> = self.states.iter().copied().collect();
        while let Some(state) = todo.pop() {
            for (message, to) in self.machine.moves(state) {
                let unseen = self.rules(state, message).any(|rule| self.unseen(rule));
                if unseen && self.states.insert(to) {
                    todo.push(to);
                }
            }
        }
    }

    /// Whether the run of the object does not show a transition.
    fn unseen(&self, rule: &Transition) -> bool {
        match &rule.link {
            None | Some(Link::Unseen) => true,
            Some(Link::Begin(name) | Link::End(name, _)) => {
                rule.optional && !self.callbacks.contains(name.as_str())
            }
            Some(Link::Call(..)) => false,
        }
    }
}

/// Whether an event stands for a transition with this link. A result that is not known fits both outcomes.
fn stands(link: Option<&Link>, event: &Observed) -> bool {
    let fits = |outcome: &Outcome, result: &Option<u64>| match (outcome, result) {
        (Outcome::Any, _) | (_, None) => true,
        // 32 bits of a result count, as for charts of objects.
        (Outcome::Zero, Some(result)) => *result as u32 == 0,
        (Outcome::NonZero, Some(result)) => *result as u32 != 0,
    };
    match (link, event) {
        (Some(Link::Begin(name)), Observed::Begin(begun)) => name == begun,
        (Some(Link::End(name, outcome)), Observed::End(ended, result)) => {
            name == ended && fits(outcome, result)
        }
        (Some(Link::Call(names, outcome)), Observed::Call(called, result)) => {
            names.contains(called) && fits(outcome, result)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const DRIVER: &str = "protocol p
  of pci
  state unbound initial final
  state probing owed
  state bound
    state running initial
    state asleep
    state removing owed
  in probe: unbound -> probing is begin probe
  out probed: probing -> bound is end probe if zero
  out probe_failed: probing -> unbound is end probe if nonzero
  out allow: running -> same is call allow|permit if zero
  in nap: running -> asleep unseen
  out woken: asleep -> running unseen
  in remove: running|asleep -> removing is begin remove
  out removed: removing -> unbound is end remove
";

    fn verdicts(events: &[Observed]) -> Vec<Verdict> {
        let machine = parse::machines("x", DRIVER).unwrap().remove(0);
        let mut acceptor = Acceptor::new(&machine, events.iter().filter_map(Observed::callback).collect());
        events.iter().map(|event| acceptor.take(event)).collect()
    }

    fn begin(name: &str) -> Observed {
        Observed::Begin(name.to_owned())
    }

    fn end(name: &str, result: u64) -> Observed {
        Observed::End(name.to_owned(), Some(result))
    }

    #[test]
    fn a_run_is_followed_through_messages_that_are_not_seen() {
        use Verdict::*;
        let call = Observed::Call("permit".to_owned(), Some(0));
        let run =
            [begin("probe"), end("probe", 0), call, begin("shutdown"), begin("remove"), end("remove", 7)];
        assert_eq!(verdicts(&run), [Allowed, Allowed, Allowed, Irrelevant, Allowed, Allowed]);
        // A failure leads back, and 32 bits of it count.
        let run = [begin("probe"), end("probe", 0xffff_fff4), begin("remove")];
        assert_eq!(verdicts(&run), [Allowed, Allowed, Refused]);
        let run = [begin("probe"), end("probe", 0xff00_0000_0000), begin("remove")];
        assert_eq!(verdicts(&run), [Allowed, Allowed, Allowed]);
    }

    #[test]
    fn what_no_state_allows_is_refused_and_not_followed() {
        use Verdict::*;
        let run = [begin("remove"), begin("probe"), begin("probe"), end("probe", 0), begin("remove")];
        assert_eq!(verdicts(&run), [Refused, Allowed, Refused, Allowed, Allowed]);
    }

    #[test]
    fn a_result_that_is_not_known_fits_both_outcomes() {
        let machine = parse::machines("x", DRIVER).unwrap().remove(0);
        let mut acceptor = Acceptor::new(&machine, BTreeSet::new());
        acceptor.take(&begin("probe"));
        assert!(!acceptor.may_end());
        acceptor.take(&Observed::End("probe".to_owned(), None));
        assert_eq!(acceptor.states(), ["unbound", "bound.running", "bound.asleep"]);
        assert!(acceptor.may_end());
    }

    #[test]
    fn a_callback_that_a_driver_does_without_is_not_seen() {
        use Verdict::*;
        let text = DRIVER
            .replace("is begin remove", "is begin remove optional")
            .replace("is end remove", "is end remove optional");
        let machine = parse::machines("x", &text).unwrap().remove(0);
        let run = |events: &[Observed]| -> Vec<Verdict> {
            let mut acceptor =
                Acceptor::new(&machine, events.iter().filter_map(Observed::callback).collect());
            events.iter().map(|event| acceptor.take(event)).collect()
        };
        let twice = [begin("probe"), end("probe", 0), begin("probe"), end("probe", 0)];
        assert_eq!(run(&twice), [Allowed; 4]);
        assert_eq!(verdicts(&twice), [Allowed, Allowed, Refused, Refused]);
        // It is there once, so it must be there each time.
        let once = [begin("remove")].iter().chain(&twice).cloned().collect::<Vec<_>>();
        assert_eq!(run(&once), [Refused, Allowed, Allowed, Refused, Refused]);
    }
}
