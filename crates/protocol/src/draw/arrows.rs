//! Which arrows a picture has, and what stands in its boxes.

use crate::Machine;
use crate::model::Protocol;
use std::collections::BTreeMap;

/// A label with the lines to it and the arrow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    /// States of the protocol where the lines begin, sorted.
    pub sources: Vec<usize>,
    /// The state where the arrow ends.
    pub target: usize,
    /// The messages, in the order of the file.
    pub messages: Vec<usize>,
    /// The innermost state around all of them; `None` is the whole picture.
    pub within: Option<usize>,
}

/// All arrows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrows {
    /// The labels.
    pub labels: Vec<Label>,
    /// For each state of the protocol the messages that leave it as it is.
    pub inside: Vec<Vec<usize>>,
}

/// Collects the arrows of a protocol as it was written: a line from a super-state is drawn once.
pub(super) fn arrows(machine: &Machine) -> Arrows {
    let protocol = &machine.protocol;
    let mut found = Arrows { labels: Vec::new(), inside: vec![Vec::new(); protocol.states.len()] };
    // For each message and target its sources, in the order of the file.
    let mut order: Vec<(usize, usize)> = Vec::new();
    let mut sources: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for transition in &protocol.transitions {
        for &from in &transition.from {
            for (from, to) in ends(protocol, from, transition.to) {
                if from == to {
                    add(&mut found.inside[from], transition.message);
                    continue;
                }
                let key = (transition.message, to);
                if !order.contains(&key) {
                    order.push(key);
                }
                add(sources.entry(key).or_default(), from);
            }
        }
    }
    for (message, target) in order {
        let mut from = sources.remove(&(message, target)).unwrap_or_default();
        from.sort_unstable();
        match found.labels.iter_mut().find(|label| label.sources == from && label.target == target) {
            Some(label) => add(&mut label.messages, message),
            None => {
                let within = around_all(protocol, from.iter().chain([&target]));
                found.labels.push(Label { sources: from, target, messages: vec![message], within });
            }
        }
    }
    found
}

fn add(list: &mut Vec<usize>, item: usize) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The ends of an arrow as it is drawn. An arrow between a state and one inside it is drawn between leaves.
fn ends(protocol: &Protocol, from: usize, to: Option<usize>) -> Vec<(usize, usize)> {
    let inside = |inner: usize, outer: usize| protocol.around(inner).any(|state| state == outer);
    let Some(to) = to else { return vec![(from, from)] };
    let entered = || protocol.entry(Some(to)).unwrap_or(to);
    if inside(to, from) {
        let leaves = protocol.leaves().filter(|&leaf| inside(leaf, from));
        leaves.map(|leaf| (leaf, entered())).collect()
    } else if inside(from, to) {
        vec![(from, entered())]
    } else {
        vec![(from, to)]
    }
}

/// The innermost state that is around all of these and is not one of them.
fn around_all<'a>(protocol: &Protocol, states: impl Iterator<Item = &'a usize>) -> Option<usize> {
    let mut common: Option<Vec<usize>> = None;
    for &state in states {
        let mut around: Vec<usize> = protocol.around(state).skip(1).collect();
        around.reverse();
        common = Some(match common {
            None => around,
            Some(known) => known
                .iter()
                .zip(&around)
                .take_while(|(one, other)| one == other)
                .map(|(&one, _)| one)
                .collect(),
        });
    }
    common.and_then(|common| common.last().copied())
}
